// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commit's two state machines in every world: the guest never ran at the destination once the source runs; a sender that
 * ended has said what is true.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "commit_world.h"

static void never_both_never_neither_in_silence(void **state)
{
	struct walk k = { .mistake = NULL };

	(void)state;
	walk(&k);
	assert_int_equal(k.violations, 0);
	assert_true(k.worlds > 500);
}

static void names_are_parsed(void **state)
{
	(void)state;
	for (enum commit_state s = 0; s < COMMIT_STATES; s++)
		assert_int_equal(commit_state_parse(commit_state_name(s)), s);
	assert_int_equal(commit_state_parse("gone"), COMMIT_STATES);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(never_both_never_neither_in_silence),
	cmocka_unit_test(names_are_parsed),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
