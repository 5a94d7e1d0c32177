// SPDX-License-Identifier: GPL-2.0-only
/* What is kept of QEMU's tree of objects: what never changes, for the next reading; nothing of half an answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "qom_scene.h"

static bool all_but_family(const char *type, const char *property, const char *kind)
{
	(void)type;
	(void)kind;
	return strcmp(property, "family");
}

/* What never changes is not asked for again; all else is. */
static void test_known(void **state)
{
	struct scene s = { .tree = tree_text, .qtree = qtree_text };
	unsigned int gets, types;
	struct qom again;

	(void)state;
	read_scene(&s);
	gets = s.gets;
	types = s.types;
	assert_int_equal(qom_read(s.q, all, &s.known, &again, &s.e), 0);
	assert_same_table(&s.qom, &again);
	assert_int_equal(s.types, types);
	assert_int_equal(s.gets, 2 * gets - 1);	/* "family" */
	qom_free(&again);
	/* Other properties of the vCPU. */
	assert_int_equal(qom_read(s.q, all_but_family, &s.known, &again, &s.e), 0);
	assert_int_equal(json_object_size(qom_find(&again, "/machine/unattached/device[0]")->props), 0);
	qom_free(&again);
	assert_int_equal(qom_read(s.q, all, &s.known, &again, &s.e), 0);
	assert_same_table(&s.qom, &again);
	qom_free(&again);
	close_scene(&s);
}

/* At each command: it is said, and nothing is kept of half an answer. */
static void test_dies(void **state)
{
	(void)state;
	for (unsigned int dies = 1; dies < 100; dies++) {
		struct scene s = { .tree = tree_text, .qtree = qtree_text, .dies = dies };
		int r;

		open_scene(&s);
		r = qom_read(s.q, all, &s.known, &s.qom, &s.e);
		if (r) {
			assert_int_equal(s.e.exit, GW_VM_GONE);
			assert_null(s.qom.o);
			assert_int_equal(json_object_size(s.known.types), s.types == 9 ? 9 : 0);
			assert_null(s.known.cpu);
		}
		close_scene(&s);
		if (!r) {
			assert_true(dies > 20);
			return;
		}
	}
	fail_msg("it never ends");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
