// SPDX-License-Identifier: GPL-2.0-only
/* The RAM file of a guest that runs before its RAM is there: what is owed is taken out of it, and put there once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lazy_rig.h"

static struct wire_extent want[WIRE_WANTED_MAX + WIRE_WANT_MAX];
static struct lazy_unit part;

static void all_that_is_owed_is_taken_away_and_nothing_else(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 0, 1);
	rig_owe(&rig, 3, 70);
	rig_owe(&rig, 100, 1);
	rig_owe(&rig, PAGES / 2 + 3, 1);	/* a hole already */
	rig_punch(&rig, NULL);
	assert_int_equal(rig_allocated(&rig), PAGES / 2 - 72);
	rig_act(&rig, 0, 0, ACT_LOOK, 1, 2);
	rig_act(&rig, 0, 1, ACT_LOOK, 73, 27);
	rig_act(&rig, 0, 2, ACT_LOOK, 101, PAGES / 2 - 101);
	for (unsigned int i = 0; i < THREADS; i++)
		rig_ends(&rig, 0, i);
	assert_int_equal(rig.faults.seen, 0);
	rig_close(&rig);
}

/*
 * Early: other units than those that are owed in the end. What was emptied, and has no bit, is left as it is; what has no bit and
 * was not emptied may be anything.
 */
static void what_is_a_hole_is_not_emptied_again(void **state)
{
	uint64_t placed[PAGES / 64 + 1] = { 0 }, pages = PAGES;
	const uint32_t unit = 1;
	struct owed early;
	const struct lazy_punch first = { .what = &early, .placed = (uint64_t *[]) { placed } };
	struct lazy_rig rig;
	char page[PAGE_BYTES];

	(void)state;
	rig_begin(&rig, 1);
	memset(page, 1, sizeof(page));
	bitmap_set(placed, 0, PAGES / 2);
	assert_return_code(owed_init(&early, &pages, &unit, 1, &rig.e), 0);
	assert_return_code(owed_add(&early, 0, 10, 20), 0);
	assert_return_code(owed_add(&early, 0, 40, 1), 0);
	assert_return_code(lazy_punch(&rig.ram, &first, &rig.e), 0);
	owed_free(&early);
	assert_int_equal(rig_allocated(&rig), PAGES / 2 - 21);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_int_equal(bitmap_next_shared(placed, 10, 30), 30);
	assert_int_equal(bitmap_next_shared(placed, 30, 40), 30);
	assert_int_equal(bitmap_next_shared(placed, 40, 41), 41);
	/* A round brings two of them again. The third write is nobody's, and shows what is left. */
	for (unsigned int i = 12; i < 15; i++)
		assert_int_equal(pwrite(rig.vm.blocks[0].fd, page, sizeof(page), i * PAGE_BYTES), sizeof(page));
	bitmap_set(placed, 12, 2);
	rig_owe(&rig, 5, 1);
	rig_owe(&rig, 12, 1);
	rig_owe(&rig, 14, 4);
	rig_owe(&rig, 39, 3);
	/* Nobody has a bit for this one either. */
	bitmap_clear(placed, 50, 1);
	rig_owe(&rig, 50, 1);
	rig_punch(&rig, placed);
	assert_int_equal(rig_allocated(&rig), PAGES / 2 - 21 + 3 - 1 - 1 - 2 - 1);
	rig_act(&rig, 0, 0, ACT_LOOK, 12, 1);
	rig_waits(&rig, 0, 0, want, 1);
	rig_act(&rig, 0, 1, ACT_LOOK, 39, 1);
	rig_waits(&rig, 0, 1, want, 1);
	assert_return_code(rig_put(&rig, 12, 1, &part, &rig.e), 0);
	assert_return_code(rig_put(&rig, 39, 3, &part, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	rig_ends(&rig, 0, 1);
	rig_close(&rig);
}

/* The first writer wins, and the guest after it: what comes again changes nothing, even where there is no page any more. */
static void nothing_comes_over_what_the_guest_wrote(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 200, 4);
	rig_punch(&rig, NULL);
	assert_return_code(rig_put(&rig, 200, 2, &part, &rig.e), 0);
	rig_act(&rig, 0, 0, ACT_WRITE, 200, 1);
	rig_ends(&rig, 0, 0);
	rig_act(&rig, 0, 0, ACT_PUNCH, 201, 1);
	rig_ends(&rig, 0, 0);
	assert_return_code(rig_put(&rig, 200, 4, &part, &rig.e), 0);
	assert_int_equal(rig.ram.twice, 2);
	assert_int_equal(rig.ram.units, 4);
	rig_act(&rig, 0, 0, ACT_LOOK, 200, 4);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.nr_asked, 0);
	rig_close(&rig);
}

/* A program that maps the file and is not watched makes a page of zeros. That is found, and no secret. */
static void a_page_that_was_not_put_there_is_an_alarm(void **state)
{
	struct lazy_rig rig;
	volatile uint8_t *map;

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 30, 4);
	rig_punch(&rig, NULL);
	map = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, rig.vm.blocks[0].fd, 0);
	assert_int_equal(map[32 * PAGE_BYTES], 0);
	assert_int_equal(rig_put(&rig, 30, 4, &part, &rig.e), -EEXIST);
	assert_int_equal(rig.e.exit, GW_INTERNAL);
	assert_non_null(strstr(rig.e.text, "page 32 "));
	assert_int_equal(rig.ram.owed.left, 2);
	munmap((void *)map, PAGES * PAGE_BYTES);
	rig_close(&rig);
}

/* After a takeover it is what the receiver before has put there in its last moment. */
static void after_a_takeover_a_page_may_be_there(void **state)
{
	struct lazy_rig rig;
	uint8_t page[PAGE_BYTES];

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 30, 4);
	rig_punch(&rig, NULL);
	rig.ram.taken_over = true;
	rig_fill(page, 31, V_NEW);
	assert_int_equal(pwrite(rig.vm.blocks[0].fd, page, sizeof(page), 31 * PAGE_BYTES), sizeof(page));
	assert_return_code(rig_put(&rig, 30, 4, &part, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 30, 4);
	rig_ends(&rig, 0, 0);
	rig_close(&rig);
}

static void a_page_that_is_not_owed_is_refused(void **state)
{
	struct lazy_rig rig;
	struct wire_extent x = { .block = 0, .first = 61, .pages = 1 };

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 60, 2);
	rig_punch(&rig, NULL);
	assert_int_equal(rig_put(&rig, 59, 1, &part, &rig.e), -EPROTO);
	assert_int_equal(rig.e.exit, GW_BAD_PEER);
	rig.e = (struct err) { 0 };
	/* What was owed before it is in place. */
	assert_int_equal(rig_put(&rig, 60, 3, &part, &rig.e), -EPROTO);
	assert_non_null(strstr(rig.e.text, "page 62 "));
	assert_int_equal(rig.ram.owed.left, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 56, 8);
	rig_ends(&rig, 0, 0);
	/* An answer to no question. */
	assert_int_equal(faults_answered(&rig.faults, &x, &rig.e), -EPROTO);
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(all_that_is_owed_is_taken_away_and_nothing_else),
	cmocka_unit_test(what_is_a_hole_is_not_emptied_again),
	cmocka_unit_test(nothing_comes_over_what_the_guest_wrote),
	cmocka_unit_test(a_page_that_was_not_put_there_is_an_alarm),
	cmocka_unit_test(after_a_takeover_a_page_may_be_there),
	cmocka_unit_test(a_page_that_is_not_owed_is_refused),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
