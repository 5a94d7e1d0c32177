// SPDX-License-Identifier: GPL-2.0-only
/* What pre-copy foretells, whatever becomes of the codec meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "precopy_world.h"

/* The ETA goes by it. */
static void the_speed_is_reported(void **state)
{
	struct report r = migrate(2000, 30, "off", NEVER, 0, NULL);

	(void)state;
	assert_in_range(r.speed.rate, LINK - 10, LINK + 10);
	assert_float_equal(r.speed.page, PAGE_BYTES, 1);
}

/* They are read, and take no time on the link. */
static void zeros_in_huge_pages_are_no_data(void **state)
{
	struct report r;
	uint64_t least_ns;

	(void)state;
	zeros_now = HUGE - DIRTY;
	r = migrate(2000, 30, "off", NEVER, 0, NULL);
	least_ns = DIRTY * PAGE_BYTES * S / LINK + zeros_now * READ_NS;
	zeros_now = 0;
	assert_in_range(r.predicted_ns, least_ns, least_ns * 5 / 4);
	assert_int_equal(r.pending_pages, DIRTY);
}

/* Whenever the codec changes: the guest is not stopped for longer, or for less, than was predicted. */
static void a_codec_that_changes(void **state)
{
	static const struct { enum when when; unsigned int round, last; } cases[] = {
		{ IN_THE_ROUND, 1, 2 }, { IN_THE_ROUND, 2, 3 }, { IN_THE_HARVEST, 1, 2 }, { IN_THE_HARVEST, 2, 3 },
		{ BEFORE_THE_ROUND, 1, 2 }, { WHEN_IT_FITS, 2, 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (unsigned int back = 0; back < 2; back++) {
			struct report r = migrate(2000, 30, back ? "off" : "zstd", cases[i].when, cases[i].round,
						  back ? "zstd" : "off");
			uint64_t ns = (uint64_t)(DIRTY * page_now() * S / LINK);

			assert_in_range(r.predicted_ns, ns, ns + 50 * MS);
			/* One more round is enough. */
			assert_int_equal(r.round, cases[i].last);
		}
	}
}

/* What packs to less than a byte a page is not taken for what does not pack. */
static void less_than_a_byte(void **state)
{
	struct report r = migrate(100, 30, "lz4", NEVER, 0, NULL);

	(void)state;
	assert_in_range(r.predicted_ns, 0, 40 * MS);
	assert_float_equal(r.speed.page, 36. / 64, 0.01);
}

/* The last round has not helped, and the operator has just now done something about it. */
static void no_end_before_it_has_told(void **state)
{
	struct report r = migrate(500, 2, "off", IN_THE_ROUND, 2, "zstd");

	(void)state;
	assert_in_range(r.predicted_ns, 280 * MS, 330 * MS);
	assert_int_equal(r.round, 3);
}

/* TCP that says nothing, and TCP that has lost nothing: both are as ever. */
static void without_a_loss_nothing_changes(void **state)
{
	struct report as_ever, r;

	(void)state;
	rtt_now = 200 * MS;
	as_ever = migrate(2000, 30, "off", NEVER, 0, NULL);
	knows_tcp = true;
	r = migrate(2000, 30, "off", NEVER, 0, NULL);
	assert_in_range(r.link.segments, (ALL + DIRTY) * PAGE_BYTES / SEGMENT - 9, (ALL + DIRTY) * PAGE_BYTES / SEGMENT);
	assert_int_equal(r.link.again + r.link.loss_ns, 0);
	assert_int_equal(r.predicted_ns, as_ever.predicted_ns);
	assert_int_equal(r.round, as_ever.round);
	/* While TCP looked for the link's rate it has lost much. */
	first_loses = 0.03;
	r = migrate(2000, 30, "off", NEVER, 0, NULL);
	first_loses = 0;
	assert_in_range(r.link.again, ALL * PAGE_BYTES / SEGMENT * 3 / 100 - 9, ALL * PAGE_BYTES / SEGMENT * 3 / 100 + 9);
	assert_int_equal(r.predicted_ns, as_ever.predicted_ns);
	knows_tcp = false;
	rtt_now = 0;
}

/* 11 MB in segments, of which 1 in 200 is lost: some are, seldom one twice. */
static void a_loss_is_foreseen(void **state)
{
	struct report as_ever, r;

	(void)state;
	rtt_now = 200 * MS;
	as_ever = migrate(2000, 30, "off", NEVER, 0, NULL);
	knows_tcp = true;
	first_loses = others_lose = 0.005;
	r = migrate(2000, 30, "off", NEVER, 0, NULL);
	knows_tcp = false;
	first_loses = others_lose = 0;
	rtt_now = 0;
	assert_in_range(r.predicted_ns, as_ever.predicted_ns + 200 * MS, as_ever.predicted_ns + 320 * MS);
	assert_int_equal(r.predicted_ns - r.link.loss_ns, as_ever.predicted_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_loss_nothing_changes),
		cmocka_unit_test(a_loss_is_foreseen),
		cmocka_unit_test(the_speed_is_reported),
		cmocka_unit_test(zeros_in_huge_pages_are_no_data),
		cmocka_unit_test(a_codec_that_changes),
		cmocka_unit_test(less_than_a_byte),
		cmocka_unit_test(no_end_before_it_has_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
