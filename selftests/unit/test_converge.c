// SPDX-License-Identifier: GPL-2.0-only
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "page/page.h"
#include "plan/converge.h"

#define MS 1000000ull

/* 100 MiB/s, 300 ms allowed, 20 ms of them fixed: 28 MiB fit. */
static struct converge at(uint64_t pending_mib, uint64_t before_mib)
{
	return (struct converge) {
		.limit_ns = 300 * MS, .fixed_ns = 20 * MS, .max_rounds = 30, .round = 2, .speed.rate = 100 << 20,
		.pending = pending_mib << 8, .before = before_mib << 8, .best = before_mib << 8,
	};
}

static void prediction_is_pending_over_rate(void **state)
{
	struct converge c = at(25, 1000);

	(void)state;
	converge(&c);
	assert_in_range(c.predicted_ns, 270 * MS - 1000, 270 * MS + 1000);
}

/* What is dirty and zeros is read beside that, which may take longer. */
static void zeros_are_read(void **state)
{
	struct converge c = at(25, 1000);

	(void)state;
	c.read_ns = 200 * MS;
	converge(&c);
	assert_in_range(c.predicted_ns, 270 * MS - 1000, 270 * MS + 1000);
	c.read_ns = 260 * MS;
	converge(&c);
	assert_in_range(c.predicted_ns, 280 * MS - 1000, 280 * MS + 1000);
}

/* As long, if the link is a quarter as fast and each page takes a quarter: what counts is pages per second. */
static void packed_pages_take_less(void **state)
{
	struct converge c = at(25, 1000);

	(void)state;
	c.speed = (struct speed) { .rate = 25 << 20, .page = PAGE_BYTES / 4 };
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
	c.speed.rate = 0;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
}

/* 12 TiB at 1 byte a second: the prediction is huge, and does not wrap into something that fits. */
static void nothing_overflows(void **state)
{
	struct converge c = at(12ull << 20, UINT64_MAX >> 8);

	(void)state;
	c.speed.rate = 100;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_true(c.predicted_ns > c.limit_ns);
}

static void only_rounds_that_do_not_help_raise_the_limit(void **state)
{
	struct converge c = at(100, 1000);

	(void)state;
	c.ramp_ns = 1300 * MS;
	/* 1020 ms: too much, and much less than before. */
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(c.allowed_ns, 300 * MS);
	c.pending = 85 << 8;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(c.allowed_ns, 300 * MS);
	/* From here on it stays: 870 ms. One step a round. */
	c.before = c.pending;
	for (unsigned int i = 1; i <= 5; i++) {
		c.round++;
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
		assert_int_equal(c.allowed_ns, (300 + 100 * i) * MS);
		assert_int_equal(c.stalled, i);
	}
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
	assert_int_equal(c.allowed_ns, 900 * MS);
	assert_true(c.predicted_ns <= c.allowed_ns);
}

static void the_ramp_ends_at_its_cap(void **state)
{
	struct converge c = at(100, 101);

	(void)state;
	c.ramp_ns = 1005 * MS + 7;
	for (unsigned int i = 0; i < 25; i++) {
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
		assert_true(c.allowed_ns <= c.ramp_ns);
	}
	assert_int_equal(c.allowed_ns, c.ramp_ns);
	c.round = c.max_rounds;
	assert_int_equal(converge(&c), CONVERGE_GIVE_UP);
	/* A ramp below the limit is none. */
	c.ramp_ns = 100 * MS;
	converge(&c);
	assert_int_equal(c.allowed_ns, 300 * MS);
}

/* One round may be chance; and what the user allows is tried first. */
static void what_rounds_do_not_help_with_is_owed(void **state)
{
	struct converge c = at(100, 1000);

	(void)state;
	c.may_owe = true;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(converge(&c), CONVERGE_OWE);
	c = at(100, 101);
	c.may_owe = true;
	c.ramp_ns = 800 * MS;
	for (unsigned int i = 0; i < 9; i++)
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(converge(&c), CONVERGE_OWE);
	/* Nothing is owed where rounds do. */
	c = at(100, 101);
	c.may_owe = true;
	for (unsigned int i = 0; c.pending >= 29 << 8; i++, c.pending = c.pending / 10 * 8)
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_not_equal(converge(&c), CONVERGE_OWE);
	c = at(1000, 10000);
	c.may_owe = true;
	c.round = c.max_rounds;
	assert_int_equal(converge(&c), CONVERGE_OWE);
	/* Not before the guest has been slowed as far as can be, nor is more downtime allowed. */
	c = at(100, 1000);
	c.may_owe = c.may_slow = true;
	c.ramp_ns = 800 * MS;
	for (unsigned int i = 0; i < 20; i++)
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
	assert_int_equal(c.allowed_ns, c.limit_ns);
	c.round = c.max_rounds;
	assert_int_equal(converge(&c), CONVERGE_OWE);
	/* Nor where that would not meet the limit either. */
	c.ramp_ns = 0;
	c.fixed_ns = c.limit_ns + 1;
	assert_int_equal(converge(&c), CONVERGE_GIVE_UP);
}

static void the_cap_counts_before_it_is_given_up(void **state)
{
	struct converge c = at(100, 1000);

	(void)state;
	c.ramp_ns = 1100 * MS;
	c.round = c.max_rounds;
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
	assert_int_equal(c.allowed_ns, 1100 * MS);
}

/* Each a twentieth less: three make progress, and one alone does not. */
static void slow_progress_is_no_stall(void **state)
{
	struct converge c = at(1000, UINT64_MAX >> 8);

	(void)state;
	for (unsigned int i = 0; i < 20; i++) {
		assert_int_equal(converge(&c), CONVERGE_AGAIN);
		assert_int_equal(c.stalled, i % 3);
		c.pending = c.pending / 20 * 19;
	}
}

static void a_limit_that_is_changed_counts_at_once(void **state)
{
	struct converge c = at(100, 101);

	(void)state;
	assert_int_equal(converge(&c), CONVERGE_AGAIN);
	c.limit_ns = 2000 * MS;
	assert_int_equal(converge(&c), CONVERGE_SWITCH);
}

/* What the guest writes until it stands still is sent, too; it has never written more than 15 MiB between two looks. */
static void writes_until_the_stop_count(void **state)
{
	struct converge c = at(10, 1000);

	(void)state;
	c.round_ns = 1000 * MS;
	c.lead_ns = 400 * MS;
	c.most = 15 << 8;
	converge(&c);
	assert_in_range(c.predicted_ns, 160 * MS - 1000, 160 * MS + 1000);
	c.lead_ns = 5000 * MS;
	converge(&c);
	assert_in_range(c.predicted_ns, 170 * MS - 1000, 170 * MS + 1000);
	/* From here on it has. */
	c.pending = 25 << 8;
	converge(&c);
	c.pending = 20 << 8;
	c.round_ns = 10 * MS;
	converge(&c);
	assert_in_range(c.predicted_ns, 270 * MS - 1000, 270 * MS + 1000);
}

/* The fixed part grows with how slow the host is, how far, how large the guest; and never wraps. */
static void the_fixed_part_is_made_of_what_was_measured(void **state)
{
	struct blackout b = { .qmp_ns = 200000, .rtt_ns = 100000, .harvest_ns = 500000, .rate = 1000ull << 20, .ram_pages = 2 << 18 };
	uint64_t quick = converge_fixed(&b), slow;

	(void)state;
	assert_in_range(quick, 14 * MS, 16 * MS);
	b.qmp_ns = 10 * MS;
	slow = converge_fixed(&b);
	assert_int_equal(slow - quick, 18 * (10 * MS - 200000));
	b.rtt_ns += 50 * MS;
	assert_int_equal(converge_fixed(&b) - slow, 25 * MS);
	b.rtt_ns -= 50 * MS;
	b.ram_pages += 256ull << 18;
	assert_in_range(converge_fixed(&b) - slow, 19 * MS, 20 * MS);
	b.rate = 1;
	assert_true(converge_fixed(&b) > 100000 * 1000 * MS);
	b.rate = 0;
	b.queued = 1 << 20;
	assert_in_range(converge_fixed(&b), slow, slow + 20 * MS);
	assert_in_range(converge_lead(&b), 20 * b.qmp_ns, 21 * b.qmp_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prediction_is_pending_over_rate),
		cmocka_unit_test(zeros_are_read),
		cmocka_unit_test(packed_pages_take_less),
		cmocka_unit_test(goes_on_while_the_limit_is_exceeded),
		cmocka_unit_test(gives_up_after_max_rounds),
		cmocka_unit_test(switches_when_it_fits_and_does_not_fall),
		cmocka_unit_test(switches_in_the_last_round_when_it_fits),
		cmocka_unit_test(polishes_a_few_rounds_only),
		cmocka_unit_test(a_quiet_guest_switches_at_once),
		cmocka_unit_test(an_unknown_rate_never_fits),
		cmocka_unit_test(nothing_overflows),
		cmocka_unit_test(only_rounds_that_do_not_help_raise_the_limit),
		cmocka_unit_test(the_ramp_ends_at_its_cap),
		cmocka_unit_test(what_rounds_do_not_help_with_is_owed),
		cmocka_unit_test(the_cap_counts_before_it_is_given_up),
		cmocka_unit_test(slow_progress_is_no_stall),
		cmocka_unit_test(a_limit_that_is_changed_counts_at_once),
		cmocka_unit_test(writes_until_the_stop_count),
		cmocka_unit_test(the_fixed_part_is_made_of_what_was_measured),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
