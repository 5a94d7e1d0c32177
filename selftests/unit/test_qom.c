// SPDX-License-Identifier: GPL-2.0-only
/*
 * QEMU's tree of objects, read out of the human monitor's texts and by questions: both ways must find the same, and what
 * the texts leave in doubt must be asked for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "qom_scene.h"

static void test_texts_tell_the_same(void **state)
{
	struct scene texts = { .tree = tree_text, .qtree = qtree_text }, questions = { .tree = NULL };

	(void)state;
	read_scene(&texts);
	read_scene(&questions);
	assert_same_table(&texts.qom, &questions.qom);
	assert_int_equal(texts.qom.o[0].parent, QOM_ROOT);
	assert_null(qom_find(&texts.qom, "/machine/peripheral/net0/e1000-io[0]/below"));
	assert_null(qom_find(&texts.qom, "/machine/unattached/device[1]/lapic"));
	/* Siblings by number: device[2] comes before device[10]. */
	assert_true(qom_find(&texts.qom, "/machine/peripheral-anon/device[2]") <
		    qom_find(&texts.qom, "/machine/peripheral-anon/device[10]"));
	assert_int_equal(texts.lists, 0);
	assert_int_equal(questions.gets + questions.lists, 52);
	/* Of net0 "romfile" and "late", all of the two cards that are alike but for their bus, what is on no bus, and the bridge. */
	assert_int_equal(texts.gets, 19);
	close_scene(&texts);
	close_scene(&questions);
}

/* With one of the texts alone, or with garbage, the other way is taken. */
static void test_one_text(void **state)
{
	static const char *const bad[] = { NULL, "", "no tree\r\n", "/machine (a)\r\n     /x (y)\r\n", "/machine (a)\r\n/x (y)\r\n",
					   "/machine (a)\r\n  /x y)\r\n", "/machine (a)\r\n    /x (y)\r\n" };
	struct scene questions = { .tree = NULL };

	(void)state;
	read_scene(&questions);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct scene a = { .tree = tree_text, .qtree = bad[i] }, b = { .tree = bad[i], .qtree = qtree_text };

		read_scene(&a);
		assert_same_table(&a.qom, &questions.qom);
		assert_int_equal(a.lists, 0);
		close_scene(&a);
		read_scene(&b);
		assert_same_table(&b.qom, &questions.qom);
		assert_true(b.lists > 0);
		close_scene(&b);
	}
	close_scene(&questions);
}

/* A newer QEMU lists what the texts lack, object by object, with all values. */
static void test_bulk(void **state)
{
	struct scene texts = { .tree = tree_text, .qtree = qtree_text, .bulk = true }, questions = { .tree = NULL };

	(void)state;
	read_scene(&texts);
	read_scene(&questions);
	assert_same_table(&texts.qom, &questions.qom);
	assert_int_equal(texts.gets, 0);
	assert_int_equal(texts.lists, 2);
	close_scene(&texts);
	close_scene(&questions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts_tell_the_same),
		cmocka_unit_test(test_one_text),
		cmocka_unit_test(test_bulk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
