// SPDX-License-Identifier: GPL-2.0-only
/* How many streams a link takes, and what they can carry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "plan/link.h"

#define MS	1000000ull
#define MIB	(1ull << 20)

static void streams_by_the_round_trip(void **state)
{
	(void)state;
	assert_int_equal(link_streams(2, 0, 16), 2);
	assert_int_equal(link_streams(2, MS / 10, 16), 2);
	assert_int_equal(link_streams(2, 10 * MS, 16), 2);
	assert_int_equal(link_streams(2, 20 * MS, 16), 4);
	assert_int_equal(link_streams(8, 20 * MS, 16), 8);
	assert_int_equal(link_streams(2, 200 * MS, 16), 16);
	assert_int_equal(link_streams(64, 0, 16), 16);
	assert_int_equal(link_streams(2, 200 * MS, 1), 1);
}

static void long_links(void **state)
{
	(void)state;
	assert_false(link_is_long(0));
	assert_false(link_is_long(MS));
	assert_true(link_is_long(20 * MS));
}

/* A round trip of 10 ms where the shortest took 2: four fifths of it were a wait. */
static void what_waits_on_its_way(void **state)
{
	(void)state;
	assert_int_equal(link_waiting(1000000, 10000, 2000), 800000);
	assert_int_equal(link_waiting(1000000, 2000, 2000), 0);
	assert_int_equal(link_waiting(1000000, 1000, 2000), 0);
	/* Nothing is known. */
	assert_int_equal(link_waiting(1000000, 0, UINT32_MAX), 0);
	assert_int_equal(link_waiting(0, 10000, 2000), 0);
	assert_int_equal(link_waiting(4ull << 30, 4000000000u, 0), 4ull << 30);
}

/* 4 ms beside the round trip, shared by the streams. */
static void little_is_under_way(void **state)
{
	(void)state;
	assert_in_range(link_short_buffer(12500000, 1, 2 * MS), 75000, 75001);
	assert_in_range(link_short_buffer(12500000, 2, 2 * MS), 37500, 37501);
	/* Some packets, however slow it is. */
	assert_int_equal(link_short_buffer(1000, 2, 0), 32768);
	assert_int_equal(link_short_buffer(0, 2, MS), 0);
	assert_int_equal(link_short_buffer(12500000, 2, 20 * MS), 0);
}

/* 1 Gbit/s over 200 ms are 25 MB under way; 16 streams of 4 MiB hold them, two do not. */
static void what_buffers_allow(void **state)
{
	const uint64_t gigabit = 125000000;

	(void)state;
	assert_true(link_rate_max(4 * MIB, 16, 200 * MS) > gigabit);
	assert_true(link_rate_max(4 * MIB, 2, 200 * MS) < gigabit);
	assert_in_range(link_rate_max(4 * MIB, 2, 200 * MS), 41000000, 42000000);
	assert_true(link_rate_max(4 * MIB, 1, 0) > 1000 * gigabit);
	assert_true(link_rate_max(UINT64_MAX / 2, 16, 1) > 1000 * gigabit);
	assert_in_range(link_buffer(gigabit, 2, 200 * MS), 12500000, 12500001);
	assert_true(link_rate_max(link_buffer(gigabit, 3, 80 * MS), 3, 80 * MS) >= gigabit);
}

static void patience_grows_with_the_round_trip(void **state)
{
	(void)state;
	assert_int_equal(link_patience_ms(30000, 0), 30000);
	assert_int_equal(link_patience_ms(30000, MS / 10), 30002);
	assert_int_equal(link_patience_ms(2000, 200 * MS), 6000);
	/* Nobody can make it endless. */
	assert_int_equal(link_patience_ms(2000, 3600 * 1000 * MS), 62000);
	/* Not to wait at all is no wait that a link prolongs. */
	assert_int_equal(link_patience_ms(0, 200 * MS), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(streams_by_the_round_trip), cmocka_unit_test(long_links),
	cmocka_unit_test(what_waits_on_its_way), cmocka_unit_test(little_is_under_way),
	cmocka_unit_test(what_buffers_allow), cmocka_unit_test(patience_grows_with_the_round_trip),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
