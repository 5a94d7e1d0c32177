// SPDX-License-Identifier: GPL-2.0-only
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "migrate/converge.h"
#include "page/page.h"

#define MS 1000000ull

/* 100 MiB/s, 300 ms allowed, 20 ms of them fixed: 28 MiB fit. */
static struct converge at(uint64_t pending_mib, uint64_t before_mib)
{
	return (struct converge) {
		.limit_ns = 300 * MS, .fixed_ns = 20 * MS, .max_rounds = 30, .round = 2, .rate = 100 << 20,
		.pending = pending_mib << 8, .before = before_mib << 8,
	};
}

static void prediction_is_pending_over_rate(void **state)
{
	struct converge c = at(25, 1000);

	(void)state;
	converge(&c);
	assert_in_range(c.predicted_ns, 270 * MS - 1000, 270 * MS + 1000);
}

static void goes_on_while_the_limit_is_exceeded(void **state)
{
	struct converge c = at(29, 30);

	(void)state;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_true(c.predicted_ns > c.limit_ns);
}

static void gives_up_after_max_rounds(void **state)
{
	struct converge c = at(29, 30);

	(void)state;
	c.round = 29;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	c.round = 30;
	assert_int_equal(converge(&c), CONVERGE_GIVE_UP);
}

static void switches_when_it_fits_and_does_not_fall(void **state)
{
	struct converge c = at(20, 21);

	(void)state;
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
}

static void switches_in_the_last_round_when_it_fits(void **state)
{
	struct converge c = at(20, 1000);

	(void)state;
	c.round = 30;
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
}

static void polishes_a_few_rounds_only(void **state)
{
	unsigned int rounds = 0;
	struct converge c = at(27, 1000);

	(void)state;
	while (converge(&c) == CONVERGE_AGAIN && rounds < 100) {
		c.before = c.pending;
		c.pending = c.pending * 6 / 10;
		rounds++;
	}
	assert_in_range(rounds, 1, 3);
	assert_true(c.predicted_ns <= c.limit_ns);
}

static void a_quiet_guest_switches_at_once(void **state)
{
	struct converge c = at(0, UINT64_MAX >> 8);

	(void)state;
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
	assert_int_equal(c.predicted_ns, c.fixed_ns);
}

static void an_unknown_rate_never_fits(void **state)
{
	struct converge c = at(1, 1000);

	(void)state;
	c.rate = 0;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
}

/* 12 TiB at 1 byte a second: the prediction is huge, and does not wrap into something that fits. */
static void nothing_overflows(void **state)
{
	struct converge c = at(12ull << 20, UINT64_MAX >> 8);

	(void)state;
	c.rate = 100;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_true(c.predicted_ns > c.limit_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prediction_is_pending_over_rate),
		cmocka_unit_test(goes_on_while_the_limit_is_exceeded),
		cmocka_unit_test(gives_up_after_max_rounds),
		cmocka_unit_test(switches_when_it_fits_and_does_not_fall),
		cmocka_unit_test(switches_in_the_last_round_when_it_fits),
		cmocka_unit_test(polishes_a_few_rounds_only),
		cmocka_unit_test(a_quiet_guest_switches_at_once),
		cmocka_unit_test(an_unknown_rate_never_fits),
		cmocka_unit_test(nothing_overflows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
