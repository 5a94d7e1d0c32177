// SPDX-License-Identifier: GPL-2.0-only
/* Other people's text: one line of whole characters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_line) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
