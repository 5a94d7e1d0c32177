// SPDX-License-Identifier: GPL-2.0-only
/* Files of pre-shared keys: psktool's are read, and what is wrong with another is said, by line, without the key. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tls/psk.h"

#define KEY "00112233445566778899aAbBcCdDeEfF"

static struct psk_user users[PSK_USERS_MAX];
static unsigned int line;
static const char *why;

/* A copy without a zero at its end: a sanitizer sees each byte too far. */
static int parse(const char *text, unsigned int max)
{
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1);
	int n;

	memcpy(copy, text, len);
	n = psk_parse(copy, len, users, max, &line, &why);
	free(copy);
	return n;
}

static void good_files(void **state)
{
	(void)state;
	assert_int_equal(parse("godwit:" KEY "\n", 4), 1);
	assert_string_equal(users[0].name, "godwit");
	assert_int_equal(users[0].len, 16);
	assert_memory_equal(users[0].key, "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff", 16);
	assert_int_equal(line, 0);
	assert_int_equal(parse("\n\na:" KEY "\r\n\nb@c.d:" KEY KEY "\n" "d:" KEY KEY KEY KEY, 4), 3);
	assert_string_equal(users[1].name, "b@c.d");
	assert_int_equal(users[1].len, 32);
	assert_int_equal(users[2].len, 64);
}

static const struct { const char *text, *says; unsigned int line; } bad[] = {
	{ "", "it is empty", 0 },
	{ "\n\n", "it is empty", 2 },
	{ "godwit\n", "USER:HEXKEY", 1 },
	{ ":" KEY, "1 to 63 characters", 1 },
	{ "a:" KEY "\nb:0011", "32 to 128", 2 },
	{ "a:" KEY "0", "32 to 128", 1 },
	{ "a:" KEY KEY KEY KEY "00", "32 to 128", 1 },
	{ "a:0011223344556677889900112233445g", "hexadecimal digits only", 1 },
	{ "a:001122334455667788990011223344 5", "hexadecimal digits only", 1 },
	{ "a b:" KEY, "printable", 1 },
	{ "#a:" KEY, "does not begin with", 1 },
	{ "\xc3\xa4:" KEY, "printable", 1 },
	{ "a:" KEY "\n\na:" KEY, "has a key already", 3 },
	{ "a:" KEY "\nb:" KEY "\nc:" KEY "\n", "too many", 3 },
	{ "0123456789012345678901234567890123456789012345678901234567890123:" KEY, "1 to 63", 1 },
};

static void bad_files(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(parse(bad[i].text, 2), -EINVAL);
		if (!strstr(why, bad[i].says) || line != bad[i].line)
			fail_msg("%zu: line %u: %s", i, line, why);
		assert_null(strstr(why, "001122"));
	}
}

/* Random changes of a good file: an answer of the two, and no user that is not whole. */
static void any_bytes(void **state)
{
	static const char good[] = "godwit:" KEY "\nanother:" KEY KEY "\n";
	char text[sizeof(good)];

	(void)state;
	srandom(1);
	for (unsigned int i = 0; i < 200000; i++) {
		size_t len = sizeof(good) - 1 - (i % 3 ? 0 : (size_t)random() % sizeof(good));
		int n;

		if (len >= sizeof(good))
			len = 0;
		memcpy(text, good, sizeof(good));
		for (unsigned int k = 0; k < 1 + i % 4; k++)
			text[(size_t)random() % (sizeof(good) - 1)] = (char)random();
		n = psk_parse(text, len, users, PSK_USERS_MAX, &line, &why);
		assert_true(n == -EINVAL || (n > 0 && !line));
		for (int k = 0; k < n; k++)
			assert_true(strlen(users[k].name) - 1 < PSK_USER_MAX && users[k].len >= PSK_KEY_MIN &&
				    users[k].len <= PSK_KEY_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_files),
		cmocka_unit_test(bad_files),
		cmocka_unit_test(any_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
