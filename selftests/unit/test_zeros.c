// SPDX-License-Identifier: GPL-2.0-only
/* Which pages were zeros when they were read: of huge pages, noted as they are sent, and counted where a whole one is dirty. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ram_rig.h"

#define HUGE	512u	/* pages of a huge one */

static int setup(void **state)
{
	struct rig *rig = rig_new();

	rig->src.blocks[0].page_size = HUGE * PAGE_BYTES;
	assert_int_equal(zeros_init(&rig->zeros, &rig->src, &rig->e), 0);
	rig_connect(rig, &engine_poll, &engine_poll, 3, 0);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	zeros_free(&rig->zeros);
	rig_free(rig);
	return 0;
}

static uint64_t dirty_zeros(struct rig *rig, uint64_t first, uint64_t count)
{
	bitmap_set(rig->source.map[0], first, count);
	return zeros_dirty(&rig->zeros, rig->source.map);
}

/* Pages 0, 3, 6 ... of two huge ones have data. */
static void send_two(struct rig *rig, enum round_kind kind)
{
	for (uint64_t p = 0; p < 2 * HUGE; p++)
		rig_write(rig, p, p % 3 ? 0 : 1);
	rig_round(rig, kind);
}

#define ZEROS	(HUGE - (HUGE + 2) / 3)	/* in the first one; as many in the second */

static void a_huge_page_that_is_all_dirty(void **state)
{
	struct rig *rig = *state;

	send_two(rig, ROUND_PRECOPY);
	assert_int_equal(zeros_dirty(&rig->zeros, rig->source.map), 0);
	assert_int_equal(dirty_zeros(rig, 0, HUGE - 1), 0);
	assert_int_equal(dirty_zeros(rig, HUGE - 1, 1), ZEROS);
	assert_int_equal(dirty_zeros(rig, HUGE, HUGE), 2 * ZEROS);
	/* Nothing is known of what was never sent. */
	assert_int_equal(dirty_zeros(rig, 2 * HUGE, HUGE), 2 * ZEROS);
}

static void what_it_is_now(void **state)
{
	struct rig *rig = *state;

	send_two(rig, ROUND_PRECOPY);
	rig_write(rig, 1, 7);
	rig_write(rig, 3, 0);
	rig_write(rig, 4, 8);
	rig_round(rig, ROUND_LATE);
	assert_int_equal(dirty_zeros(rig, 0, HUGE), ZEROS - 1);
	bitmap_clear(rig->source.map[0], 0, PAGES);
	rig_write(rig, 5, 9);
	rig_round(rig, ROUND_LAST);
	assert_int_equal(dirty_zeros(rig, 0, HUGE), ZEROS - 1);
}

/* The log of 4 KiB pages tells of a page that a vCPU has written: that is data most likely. */
static void small_pages_do_not_count(void **state)
{
	struct zeros z = { .vm = NULL };
	struct rig *rig = *state;

	rig->src.blocks[0].page_size = PAGE_BYTES;
	assert_int_equal(zeros_init(&z, &rig->src, &rig->e), 0);
	zeros_note(&z, 0, 1, true);
	assert_int_equal(zeros_dirty(&z, rig->source.map), 0);
	zeros_free(&z);
}

#define IN_RIG(test)	cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_RIG(a_huge_page_that_is_all_dirty), IN_RIG(what_it_is_now), IN_RIG(small_pages_do_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
