// SPDX-License-Identifier: GPL-2.0-only
/* What a link loses, and what that may cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "plan/loss.h"

#define MS	1000000ull
#define TRIP	(80 * MS)

/* 256 KiB over 16 streams: 196 segments. */
static uint64_t costs(double share, double bytes)
{
	const struct loss l = { .share = share, .segment = 1448, .streams = 16, .rtt_ns = TRIP };

	return loss_ns(&l, bytes);
}

static void nothing_is_lost(void **state)
{
	struct losses l = { 0 };
	struct loss of = { .share = 0.01, .streams = 16, .rtt_ns = TRIP };

	(void)state;
	assert_true(losses_share(&l) == 0);
	for (unsigned int i = 0; i < 5; i++)
		losses_add(&l, 1000000, 0);
	assert_true(losses_share(&l) == 0);
	assert_int_equal(costs(0, 0), 0);
	assert_int_equal(costs(0, 1e15), 0);
	/* Not TCP: how much a segment carries is not known. */
	assert_int_equal(loss_ns(&of, 1e9), 0);
}

static void the_least_counts(void **state)
{
	struct losses l = { 0 };

	(void)state;
	/* TCP has looked for the link's rate. */
	losses_add(&l, 10000, 200);
	assert_float_equal(losses_share(&l), 0.02, 1e-9);
	losses_add(&l, 100, 0);
	assert_true(losses_share(&l) == 0);
	losses_add(&l, 900, 5);
	assert_float_equal(losses_share(&l), 0.005, 1e-9);
	/* One of few is chance. */
	l = (struct losses) { 0 };
	losses_add(&l, 100000, 500);
	losses_add(&l, 10, 1);
	assert_float_equal(losses_share(&l), 501 / 100010., 1e-9);
	/* A round of nothing says nothing, and it is never more than half. */
	l = (struct losses) { 0 };
	losses_add(&l, 1000, 10);
	losses_add(&l, 0, 0);
	assert_float_equal(losses_share(&l), 0.01, 1e-9);
	losses_add(&l, 10, UINT32_MAX);
	assert_float_equal(losses_share(&l), 0.5, 1e-9);
}

/* By a dice: when the last of all segments is there. */
static uint64_t played(double share, unsigned int segments, unsigned int streams)
{
	const unsigned int turns = 4000;
	uint64_t sum = 0;

	srand48(1);
	for (unsigned int t = 0; t < turns; t++) {
		unsigned int worst = 0;

		for (unsigned int i = 0; i < segments + streams; i++) {
			unsigned int trips = 0;

			while (drand48() < share)
				trips++;
			trips += trips && i >= segments;	/* the last of a stream */
			worst = trips > worst ? trips : worst;
		}
		sum += worst;
	}
	return sum * TRIP / turns;
}

static void as_a_dice_has_it(void **state)
{
	static const struct { double share; unsigned int segments; } cases[] = {
		{ 0.0005, 180 }, { 0.005, 180 }, { 0.005, 3000 }, { 0.05, 180 }, { 0.001, 20 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t dice = played(cases[i].share, cases[i].segments, 16);

		assert_in_range(costs(cases[i].share, cases[i].segments * 1448.), dice - TRIP / 50, dice + TRIP / 50);
	}
}

/* More bytes, more loss, a longer link: never less. And it is bounded. */
static void it_only_grows(void **state)
{
	uint64_t before = 0;

	(void)state;
	for (double bytes = 1; bytes < 1e18; bytes *= 3) {
		assert_true(costs(0.003, bytes) >= before);
		before = costs(0.003, bytes);
	}
	before = 0;
	for (double share = 1e-9; share <= 0.5; share *= 1.3) {
		assert_true(costs(share, 256 << 10) >= before);
		before = costs(share, 256 << 10);
	}
	assert_in_range(costs(0.5, 1e18), TRIP, 16 * TRIP);
	assert_in_range(costs(0.005, 256 << 10), TRIP / 2, TRIP);
	assert_in_range(costs(1e-7, 256 << 10), 0, MS / 10);
}

/* Mathis: 1448 bytes over 80 ms at 0.5 % are 313 KB/s, of each of 16. */
static void what_streams_carry(void **state)
{
	struct loss l = { .share = 0.005, .segment = 1448, .streams = 16, .rtt_ns = TRIP };

	(void)state;
	assert_in_range(loss_rate(&l), 5000000, 5050000);
	l.streams = 1;
	assert_in_range(loss_rate(&l), 310000, 320000);
	l.share = 0;
	assert_int_equal(loss_rate(&l), UINT64_MAX);
	l = (struct loss) { .share = 1e-300, .segment = UINT32_MAX, .streams = 16, .rtt_ns = 1 };
	assert_int_equal(loss_rate(&l), UINT64_MAX);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_streams_carry),
	cmocka_unit_test(nothing_is_lost), cmocka_unit_test(the_least_counts), cmocka_unit_test(as_a_dice_has_it),
	cmocka_unit_test(it_only_grows),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
