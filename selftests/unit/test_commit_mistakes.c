// SPDX-License-Identifier: GPL-2.0-only
/* That the walk of test_commit.c can fail: machines with a mistake, and programs with a slip, each of which must be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "commit_world.h"

static void a_mistake_is_found(void **state)
{
	static const struct mistake mistakes[] = {
		{ "a lost link is taken for a refusal", false, COMMIT_SENT, SOURCE_LOSES_LINK, COMMIT_DEAD, SOURCE_ROLLS_BACK },
		{ "given up behind the commit point", false, COMMIT_SENT, SOURCE_GIVES_UP, COMMIT_DEAD, SOURCE_ROLLS_BACK },
		{ "tired of asking, it lets the source run", false, COMMIT_IN_DOUBT, SOURCE_STOPS_ASKING, COMMIT_DEAD, SOURCE_ROLLS_BACK },
		{ "tired of asking, it says that it has moved", false, COMMIT_IN_DOUBT, SOURCE_STOPS_ASKING, COMMIT_RUNS, SOURCE_IS_DONE },
		{ "a silent QEMU is taken for one that refuses", true, COMMIT_SENT, DESTINATION_SEES_NOTHING, COMMIT_DEAD, DESTINATION_SAYS_DEAD },
		{ "the same, for one that is frozen", true, COMMIT_IN_DOUBT, DESTINATION_SEES_NOTHING, COMMIT_DEAD, DESTINATION_SAYS_DEAD },
		{ "a lost link is taken for the end of it", true, COMMIT_SENT, DESTINATION_GIVES_UP, COMMIT_DEAD, DESTINATION_SAYS_DEAD },
		{ "it says dead, and takes the end", true, COMMIT_DEAD, DESTINATION_GETS_END, COMMIT_SENT, DESTINATION_LOADS_STATE },
		{ "it says dead, and stays as it was", true, COMMIT_PREPARED, DESTINATION_GIVES_UP, COMMIT_PREPARED, DESTINATION_SAYS_DEAD },
		{ "it hands over without the end", true, COMMIT_PREPARED, DESTINATION_GIVES_UP, COMMIT_SENT, DESTINATION_LOADS_STATE },
		{ "RESUME is taken for nothing", true, COMMIT_SENT, DESTINATION_SEES_RUN, COMMIT_DEAD, DESTINATION_SAYS_DEAD },
		{ "it says runs before it does", true, COMMIT_PREPARED, DESTINATION_GETS_END, COMMIT_RUNS, DESTINATION_SAYS_RUNS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
		struct walk k = { .mistake = &mistakes[i] };

		walk(&k);
		if (!k.violations)
			print_error("not found: %s\n", mistakes[i].what);
		assert_true(k.violations > 0);
	}
}

/* What is no matter of the machines: the order in which the programs do what these say. */
static void a_slip_of_the_programs_is_found(void **state)
{
	(void)state;
	for (enum slip slip = KILLED_UNHEARD; slip <= LOADS_EARLY; slip++) {
		struct walk k = { .slip = slip };

		walk(&k);
		assert_true(k.violations > 0);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_mistake_is_found),
	cmocka_unit_test(a_slip_of_the_programs_is_found),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
