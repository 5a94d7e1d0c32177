// SPDX-License-Identifier: GPL-2.0-only
/* Holes of the RAM file: never sent, never made, told when they come, and not counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define PAGES	20480u	/* more than are cleared at a time */

#include "ram_rig.h"

/* Compared by SEEK_DATA first: looking at a hole through a mapping fills it. */
static void holes_are_not_sent(void **state)
{
	struct rig *rig = *state;

	bitmap_set(rig->source.map[0], 0, PAGES);
	rig_write(rig, 7, 1);
	rig_write(rig, 9, 0);
	rig_write(rig, PAGES - 1, 3);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.data_pages, 2);
	assert_int_equal(rig->count.zero_pages, 1);
	/* With the holes after them, as far as one call goes; and the last page. */
	assert_int_equal(rig->cleared, 16384 - 7 + 1);
	assert_int_equal(rig->clears, 2);
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 0, SEEK_DATA), 7 * PAGE_BYTES);
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 8 * PAGE_BYTES, SEEK_DATA), (PAGES - 1) * PAGE_BYTES);
	/* Nor were they made at the source. */
	assert_int_equal(lseek(rig->src.blocks[0].fd, 10 * PAGE_BYTES, SEEK_DATA), (PAGES - 1) * PAGE_BYTES);
	rig_assert_equal(rig);
}

static void pending_counts_allocated_pages(void **state)
{
	struct rig *rig = *state;
	uint64_t pages;

	bitmap_set(rig->source.map[0], 0, PAGES);
	rig_write(rig, 3, 1);
	rig_write(rig, 4, 1);
	rig_write(rig, 4000, 1);
	bitmap_clear(rig->source.map[0], 4, 1);
	assert_int_equal(source_pending(&rig->src, &rig->source, &pages, &rig->e), 0);
	assert_int_equal(pages, 2);
	assert_int_equal(source_allocated(&rig->src, &rig->source, &pages, &rig->e), 0);
	assert_int_equal(pages, 3);
}

/* A hole that is punched is no write; the last round tells of it, though its note came with a round that found data there. */
static void punched_holes_are_holes_there(void **state)
{
	struct rig *rig = *state;

	rig_write_run(rig, 10, 20, 9);
	rig_round(rig, ROUND_PRECOPY);
	rig_punch(rig, 12, 5);
	rig_write(rig, 25, 4);
	rig_round(rig, ROUND_LAST);
	assert_int_equal(rig->count.data_pages, 1);
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 12 * PAGE_BYTES, SEEK_DATA), 17 * PAGE_BYTES);
	/* Never touched memory stays a hole there, too. */
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 30 * PAGE_BYTES, SEEK_DATA), -1);
	rig_assert_equal(rig);
}

/* Where nothing was unmapped only what counts as written is looked at, and its holes are told. */
static void written_holes_are_holes_there(void **state)
{
	struct rig *rig = *state;

	rig_write_run(rig, 10, 290, 9);
	rig_round(rig, ROUND_PRECOPY);
	rig_punch(rig, 12, 5);
	rig_punch(rig, 100, 100);
	rig->source.unmapped = false;
	bitmap_set(rig->source.map[0], 8, 7);
	bitmap_set(rig->source.map[0], 90, 110);
	rig_round(rig, ROUND_LAST);
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 12 * PAGE_BYTES, SEEK_DATA), 15 * PAGE_BYTES);	/* 15, 16: not in the map */
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 100 * PAGE_BYTES, SEEK_DATA), 200 * PAGE_BYTES);
	memset(rig->there + 15 * PAGE_BYTES, 0, 2 * PAGE_BYTES);
	rig_assert_equal(rig);
}

/*
 * The source is not asked about a few pages of a file: what is a hole there is read, as zeros, and
 * stays one at both ends. Of private memory it is always asked.
 */
static void short_runs_are_not_asked_about(void **state)
{
	struct rig *rig = *state;
	struct round rd;
	struct round_piece p;

	rig_write_run(rig, 500, 2, 3);
	rig_round(rig, ROUND_PRECOPY);
	rig_punch(rig, 500, 1);
	bitmap_set(rig->source.map[0], 500, 1);
	for (uint64_t page = 1; page < 400; page += 8)
		rig_write_run(rig, page, 3, (int)page % 250 + 1);
	bitmap_set(rig->source.map[0], 800, 3);
	rig->asked = 0;
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->asked, 0);
	assert_int_equal(rig->count.data_pages, 50 * 3);
	assert_int_equal(rig->count.zero_pages, 1 + 3);
	assert_int_equal(lseek(rig->src.blocks[0].fd, 400 * PAGE_BYTES, SEEK_DATA), 501 * PAGE_BYTES);
	assert_int_equal(lseek(rig->src.blocks[0].fd, 502 * PAGE_BYTES, SEEK_DATA), -1);
	assert_int_equal(lseek(rig->dst.blocks[0].fd, 502 * PAGE_BYTES, SEEK_DATA), -1);
	rig->src.blocks[0].hva = 4096;
	memset(rig->source.map[0], 0, PAGES / 8);
	bitmap_set(rig->source.map[0], 800, 3);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, NULL);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 0);
	round_end(&rd);
	rig->src.blocks[0].hva = 0;
	assert_true(rig->asked > 0);
	rig_assert_equal(rig);	/* makes pages of all */
}

/* A hole between pages that are there is read, as zeros; a longer one is not. */
static void not_exactly_means_a_frame_at_most(void **state)
{
	struct rig *rig = *state;
	uint64_t first, count;
	const int fd = rig->src.blocks[0].fd;

	for (uint64_t p = 0; p < 200; p++)
		if (p % 64 != 5 && (p < 70 || p > 180))
			memset(rig->ram + p * PAGE_BYTES, 1, PAGE_BYTES);
	assert_int_equal(file_next_data(fd, 0, PAGES, false, &first, &count, &rig->e), 1);
	assert_int_equal(first, 0);
	assert_int_equal(count, 64);
	assert_int_equal(file_next_data(fd, 5, PAGES, false, &first, &count, &rig->e), 1);
	assert_int_equal(first, 6);
	assert_int_equal(count, 63);	/* 69 is a hole */
	assert_int_equal(file_next_data(fd, 70, PAGES, false, &first, &count, &rig->e), 1);
	assert_int_equal(first, 181);
	assert_int_equal(count, 16);
	assert_int_equal(file_next_data(fd, 30, 50, false, &first, &count, &rig->e), 1);
	assert_int_equal(first, 30);
	assert_int_equal(count, 20);
	assert_int_equal(file_next_data(fd, 3, 6, false, &first, &count, &rig->e), 1);
	assert_int_equal(first, 3);
	assert_int_equal(count, 2);
	assert_int_equal(file_next_data(fd, 5, 6, false, &first, &count, &rig->e), 0);
	assert_int_equal(file_next_data(fd, 0, PAGES, true, &first, &count, &rig->e), 1);
	assert_int_equal(count, 5);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(holes_are_not_sent, rig_setup_connected, rig_teardown),
	cmocka_unit_test_setup_teardown(pending_counts_allocated_pages, rig_setup_connected, rig_teardown),
	cmocka_unit_test_setup_teardown(punched_holes_are_holes_there, rig_setup_connected, rig_teardown),
	cmocka_unit_test_setup_teardown(written_holes_are_holes_there, rig_setup_connected, rig_teardown),
	cmocka_unit_test_setup_teardown(short_runs_are_not_asked_about, rig_setup_connected,
					rig_teardown),
	cmocka_unit_test_setup_teardown(not_exactly_means_a_frame_at_most, rig_setup_connected, rig_teardown),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
