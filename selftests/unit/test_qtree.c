// SPDX-License-Identifier: GPL-2.0-only
/* "info qtree", the text: what it tells of a device, and what is no such text. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "qom/qtree.h"

/* The value of "p", as JSON, in the only device of a text; "": the text does not tell it. */
static const char *value_of(const char *lines, const char *kind)
{
	static char text[200];
	struct qtree t;
	json_t *value;
	char *dumped;

	snprintf(text, sizeof(text), "bus: main-system-bus\n  type System\n  dev: x, id \"\"\n%s", lines);
	assert_int_equal(qtree_parse(&t, text), 0);
	assert_int_equal(t.ndevices, 1);
	value = qtree_value(&t, 0, "p", kind);
	dumped = value ? json_dumps(value, JSON_ENCODE_ANY) : strdup("");
	snprintf(text, sizeof(text), "%s", dumped);
	free(dumped);
	json_decref(value);
	qtree_free(&t);
	return text;
}

static void test_values(void **state)
{
	(void)state;
	assert_string_equal(value_of("    p = true", "bool"), "true");
	assert_string_equal(value_of("    p = on", "bool"), "");
	assert_string_equal(value_of("    p = -1 (0xffffffffffffffff)", "int32"), "-1");
	assert_string_equal(value_of("    p = 34359738368 (32 GiB)", "size"), "34359738368");
	assert_string_equal(value_of("    p = 18446744073709551615 (0xffffffffffffffff)", "uint64"), "1.8446744073709552e19");
	/* As QEMU prints UINT64_MAX, too. */
	assert_string_equal(value_of("    p = -1 (0xffffffffffffffff)", "uint64"), "");
	assert_string_equal(value_of("    p = 3", "uint8"), "");
	assert_string_equal(value_of("    p = 04.0", "int32"), "");
	assert_string_equal(value_of("    p = 3 (0x3) = 4", "uint8"), "");
	assert_string_equal(value_of("    p = \"auto\"", "OnOffAuto"), "\"auto\"");
	assert_string_equal(value_of("    p = \"a\"b = c\"", "str"), "\"a\\\"b = c\"");
	assert_string_equal(value_of("    p = \"", "str"), "");
	assert_string_equal(value_of("    p = <null>", "str"), "");
	assert_string_equal(value_of("    p = \"\xff\"", "str"), "");
	/* A list of one string. */
	assert_string_equal(value_of("    p = \"a\"", "list"), "");
	assert_string_equal(value_of("    p = \"a\"", "strList"), "");
	assert_string_equal(value_of("    p = \"a\"", "List"), "\"a\"");
	/* A value of two lines, which looks like one more property. */
	assert_string_equal(value_of("    q = \"a\n    p = \"b\"\n    p = \"c\"", "str"), "");
	assert_string_equal(value_of("    class c, p = true", "bool"), "");
}

/* Nothing is taken from a text of another form, however deep or short. */
static void test_malformed(void **state)
{
#define DEVICE "bus: a\n  type A\n  dev: x, id \"\"\n"
	static const char *const bad[] = {
		/* A string of more than one line. */
		DEVICE "    p = \"A\"\nB\"\n",
		DEVICE "    p = \"A\"\n\"\n",
		DEVICE "    p = \"A\"\r    \"\n",
		DEVICE "    p = \"A\"\n  \n    q = \"\"\n",
		DEVICE "    p = \"A\"\n    B\"\n    q = true\n",
		DEVICE "    p = \"A\"\n    class B\"\n    q = true\n",
		DEVICE "    p = \"A\"\n    q = B\"\n",
		DEVICE "    p = \"A\"\n    q r = \"B\"\n",
		DEVICE "    p = \"A\"\nq = \"B\"\n",
		DEVICE "    p = \"A\"\n  q = \"B\"\n",
		DEVICE "    p = \"A\"\n      q = \"B\"\n",
		DEVICE "    p = \"A\"\nbus: B\"\n  type b\n",
		DEVICE "    p = \"A\"\n    bus: B\"\n    q = true\n",
		DEVICE "    p = \"A\"\n  type B\"\n",
		DEVICE "    p = \"A\"\nclass b\n",
		DEVICE "    bus: b\n      type t\n    q = true\n",
		DEVICE "    bus: b\n      type t\n      q = true\n",
		"  bus: a\n    type A\n",
		"dev: x, id \"\"\n", "bus: a\n bus: b\n", "bus: a\n  dev: x\n", "bus: a\n  dev: x, id \"\n",
		"bus: a\n    dev: x, id \"\"\n", "bus: a\n  dev: x, id \"\"\n      bus: b\n", "bus: a\n  bus: b\n",
		"bus: a\n  dev: x, id \"\"\n    bus: b\nbus: c\n      dev: y, id \"\"\n",
	};
	char deep[2 * QTREE_DEPTH + 20];
	struct qtree t;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(qtree_parse(&t, bad[i]), 0);
		assert_int_equal(t.ndevices + t.nbuses + t.nproperties, 0);
		qtree_free(&t);
	}
#undef DEVICE
	memset(deep, ' ', sizeof(deep));
	strcpy(deep + 2 * QTREE_DEPTH, "bus: a\n");
	assert_int_equal(qtree_parse(&t, deep), 0);
	assert_int_equal(t.nbuses, 0);
	qtree_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_malformed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
