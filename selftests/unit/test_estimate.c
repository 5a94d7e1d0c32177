// SPDX-License-Identifier: GPL-2.0-only
/* A migration on paper, against what can be worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "estimate/estimate.h"
#include "page/page.h"
#include "plan/converge.h"
#include "send/round.h"
#include "wire/wire.h"

#define S	1000000000ull
#define MIB	(1ull << 20)
#define PAGE	(PAGE_BYTES + WIRE_EXTENT)

/* The part of the downtime that is not RAM, and with these links most of it. */
static uint64_t fixed(uint64_t rate, uint64_t rtt_ns)
{
	struct blackout b = { .rate = rate, .rtt_ns = rtt_ns, .ram_pages = 1u << 20 };

	return converge_fixed(&b);
}

static struct estimate play(const struct curve *c, uint64_t allocated, uint64_t zero, uint64_t rate)
{
	struct estimate_in in = {
		.curve = c, .content = { allocated, zero }, .rate = rate, .limit_ns = fixed(rate, 0) + 280000000, .max_rounds = 10,
	};
	struct estimate out;

	estimate(&in, &out);
	return out;
}

/* 100 pages a second, for ever new ones. */
static const struct curve steady = { .n = 2, .points = { { S / 2, 50 }, { S, 100 } }, .total_pages = 1u << 20 };
/* The same at first, but 150 pages are all that it writes. */
static const struct curve small_set = {
	.n = 3, .points = { { S, 100 }, { 2 * S, 150 }, { 4 * S, 150 } }, .total_pages = 1u << 20,
};
static const struct curve idle = { .n = 1, .points = { { S, 0 } }, .total_pages = 1u << 20 };

static void curve_between_and_behind_its_points(void **state)
{
	(void)state;
	assert_float_equal(curve_pages(&steady, 0), 0, 1e-6);
	assert_float_equal(curve_pages(&steady, S / 4), 25, 1e-6);
	assert_float_equal(curve_pages(&steady, S * 3 / 4), 75, 1e-6);
	assert_float_equal(curve_pages(&steady, 100 * S), 10000, 1e-3);
	assert_float_equal(curve_pages(&steady, 1000000 * S), 1048576, 1e-6);
	assert_float_equal(curve_pages(&small_set, 3 * S / 2), 125, 1e-6);
	assert_float_equal(curve_pages(&small_set, 1000 * S), 150, 1e-6);
	assert_float_equal(curve_pages(&idle, 1000 * S), 0, 1e-6);
}

static void an_idle_guest_goes_once(void **state)
{
	struct estimate out = play(&idle, 1000, 200, 800 * PAGE);

	(void)state;
	assert_true(out.converges);
	assert_int_equal(out.rounds, 2);
	assert_int_equal(out.bytes, 800 * PAGE);
	assert_int_equal(out.pending_pages, 0);
	assert_int_equal(out.downtime_ns, fixed(800 * PAGE, 0));
	assert_int_equal(out.total_ns, S + out.downtime_ns);
}

/*
 * 200 pages a second go through, 100 are written: each round is half of the one before. 1600 pages: 8 s, 800 pending; 4 s,
 * 400; 2 s, 200; 1 s, 100; 0.5 s, 50: 250 ms, within the limit. Two rounds more: 12 are less than a quarter of the rest.
 */
static void rounds_halve(void **state)
{
	struct estimate out = play(&steady, 1600, 0, 200 * PAGE);

	(void)state;
	assert_true(out.converges);
	assert_int_equal(out.rounds, 5 + 2 + 1);
	assert_in_range(out.bytes, (1600 + 800 + 400 + 200 + 100 + 50 + 25 + 12) * PAGE - 2 * PAGE,
			(1600 + 800 + 400 + 200 + 100 + 50 + 25 + 12) * PAGE);
	assert_in_range(out.total_ns - fixed(200 * PAGE, 0), 15900 * S / 1000, 15950 * S / 1000);
}

static void a_small_set_is_sent_again_and_again(void **state)
{
	struct estimate out = play(&small_set, 1600, 0, 100 * PAGE);

	(void)state;
	assert_false(out.converges);
	assert_int_equal(out.rounds, 10);
	assert_in_range(out.pending_pages, 90, 150);
	out = play(&small_set, 1600, 0, 1000 * PAGE);
	assert_true(out.converges);
}

/* Pages that are cleared late in a round are written to for less long. */
static void what_is_sent_late_is_dirty_less(void **state)
{
	uint64_t pages = 4 * CLEAR_PAGES, rate = pages / 4 * PAGE;
	struct estimate_in in = {
		.curve = &steady, .content = { pages, 0 }, .rate = rate, .limit_ns = UINT64_MAX, .max_rounds = 1,
	};
	struct estimate out;

	(void)state;
	estimate(&in, &out);
	/* 4 s in 4 parts: each quarter is exposed for 4, 3, 2, 1 s. */
	assert_in_range(out.pending_pages, 248, 250);
}

static void the_way_costs_time(void **state)
{
	struct estimate_in in = {
		.curve = &idle, .content = { 0, 0 }, .rate = MIB, .rtt_ns = S / 10, .limit_ns = S, .max_rounds = 3,
	};
	struct estimate out;

	(void)state;
	estimate(&in, &out);
	assert_int_equal(out.downtime_ns, fixed(MIB, S / 10));
	assert_int_equal(out.downtime_ns, fixed(MIB, 0) + S / 20);
	assert_int_equal(out.total_ns, out.downtime_ns + S / 10);
}

/* A device state that is saved spares QEMU the walk through all RAM. */
static void test_saved_device_state(void **state)
{
	struct estimate_in in = {
		.curve = &steady, .content = { 1000, 0 }, .rate = 100 * MIB, .limit_ns = S, .max_rounds = 10,
	};
	struct estimate walked, saved;

	(void)state;
	estimate(&in, &walked);
	in.save_mode = true;
	estimate(&in, &saved);
	assert_int_equal(walked.downtime_ns - saved.downtime_ns, steady.total_pages * PAGE_BYTES / (1u << 30) * 75000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_saved_device_state),
	cmocka_unit_test(curve_between_and_behind_its_points),
	cmocka_unit_test(an_idle_guest_goes_once),
	cmocka_unit_test(rounds_halve),
	cmocka_unit_test(a_small_set_is_sent_again_and_again),
	cmocka_unit_test(what_is_sent_late_is_dirty_less),
	cmocka_unit_test(the_way_costs_time),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
