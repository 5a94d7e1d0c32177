// SPDX-License-Identifier: GPL-2.0-only
/* Other people's text: one line of whole characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json_text.h"
#include "base/text.h"

static void test_one_line(void **state)
{
	static const struct {
		const char *from, *to;
		size_t size;
	} cases[] = {
		{ "plain", "plain", 20 },
		{ "two\r\nlines\t\x7f", "two  lines  ", 20 },
		{ "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa6", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\xa6", 40 },
		/* Controls of 8 bits, as characters and as bytes; the first behind them is none. */
		{ "a\xc2\x80\xc2\x9b" "31m\xc2\x9f\xc2\xa0z", "a  31m \xc2\xa0z", 20 },
		{ "a\x9b" "31m", "a?31m", 20 },
		/* Cut within a character, at its end, and not at all. */
		{ "ab\xc3\xa9", "ab", 4 },
		{ "ab\xc3\xa9", "ab\xc3\xa9", 5 },
		{ "a\xf0\x9f\x90\xa6", "a", 5 },
		/* No characters: alone, overlong, surrogates, beyond the last, cut short. */
		{ "\x80" "a\xff", "?a?", 20 },
		{ "\xc0\xaf\xe0\x80\x80", "?????", 20 },
		{ "\xed\xa0\x80", "???", 20 },
		{ "\xf4\x90\x80\x80", "????", 20 },
		{ "a\xe2\x82", "a??", 20 },
		{ "\xe2\x82 x", "?? x", 20 },
		{ "", "", 1 },
		{ "x", "", 1 },
	};
	char text[40];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(text, 'z', sizeof(text));
		assert_string_equal(one_line(text, cases[i].size, cases[i].from), cases[i].to);
	}
}

/* Shown as one line is; a text that is UTF-8 stays as it is. */
static void test_in_json(void **state)
{
	static const char *const cases[][2] = {
		{ "", "" }, { "two\nlines \xe2\x82\xac", "two\nlines \xe2\x82\xac" }, { "a\xff\xc3\xa9\x1b", "a?\xc3\xa9 " },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_auto_t *j = text_to_json(cases[i][0]);

		assert_string_equal(json_string_value(j), cases[i][1]);
	}
}

static void test_paths_in_json(void **state)
{
	static const char *const paths[] = { "/run/vm.qmp", "", "unix:/a\xff", "\x80", "/\xe2\x82/\xc3\xa9", "{\"bytes\": \"41\"}" };
	static const char *const odd[] = {
		"5", "{}", "[\"41\"]", "{\"bytes\": 5}", "{\"bytes\": \"\"}", "{\"bytes\": \"414\"}", "{\"bytes\": \"4x\"}",
		"{\"bytes\": \"+1\"}", "{\"bytes\": \"4141414141414141\"}",
	};
	char buf[8];

	(void)state;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		json_auto_t *j = path_to_json(paths[i]), *read = NULL;
		char *line = json_dumps(j, JSON_ENCODE_ANY), at[64];

		assert_non_null(line);
		read = json_loads(line, JSON_DECODE_ANY, NULL);
		free(line);
		assert_string_equal(path_from_json(read, at, sizeof(at)), paths[i]);
	}
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		json_auto_t *j = json_loads(odd[i], JSON_DECODE_ANY, NULL);

		assert_non_null(j);
		assert_null(path_from_json(j, buf, sizeof(buf)));
	}
	assert_null(path_from_json(NULL, buf, sizeof(buf)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_line), cmocka_unit_test(test_in_json), cmocka_unit_test(test_paths_in_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
