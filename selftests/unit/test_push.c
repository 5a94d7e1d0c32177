// SPDX-License-Identifier: GPL-2.0-only
/* The order in which owed pages are pushed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "postcopy/push.h"

#define PAGES	8192u

static struct owed o;
static struct push p;
static bool got[2][PAGES];

static void begin(uint32_t unit)
{
	const uint64_t pages[] = { 100, PAGES };
	const uint32_t units[] = { 1, unit };
	struct err e = { 0 };

	assert_return_code(owed_init(&o, pages, units, 2, &e), 0);
	assert_return_code(owed_add(&o, 1, 0, PAGES), 0);
	push_init(&p, &o);
	memset(got, 0, sizeof(got));
}

static int end(void **state)
{
	(void)state;
	push_free(&p);
	owed_free(&o);
	return 0;
}

/* Pages [first, first + pages) of block 1 come next; no page comes twice. */
static void next(uint32_t most, uint64_t first, uint32_t pages)
{
	struct wire_extent x;

	assert_true(push_take(&p, most, &x));
	assert_int_equal(x.block, 1);
	assert_int_equal(x.kind, WIRE_DATA);
	assert_int_equal(x.first, first);
	assert_int_equal(x.pages, pages);
	for (uint64_t i = first; i < first + pages; i++) {
		assert_false(got[1][i]);
		got[1][i] = true;
	}
}

/* All the rest comes, each page once. */
static void the_rest(void)
{
	struct wire_extent x;
	unsigned int n = 0;

	while (push_take(&p, 64, &x))
		for (uint64_t i = x.first; i < x.first + x.pages; i++) {
			assert_false(got[x.block][i]);
			got[x.block][i] = true;
		}
	for (unsigned int i = 0; i < PAGES; i++)
		n += got[1][i];
	assert_int_equal(n + o.block[0].pages - 100, PAGES);
}

static void without_faults_in_their_order(void **state)
{
	(void)state;
	begin(1);
	assert_return_code(owed_add(&o, 0, 90, 4), 0);
	struct wire_extent x;

	assert_true(push_take(&p, 64, &x));
	assert_true(x.block == 0 && x.first == 90 && x.pages == 4);
	next(64, 0, 64);
	next(64, 64, 64);
	next(1, 128, 1);
	next(64, 129, 64);
	the_rest();
}

static void from_the_fault_forward(void **state)
{
	(void)state;
	begin(1);
	next(64, 0, 64);
	push_fault(&p, 1, 4101);
	/* Its neighbours first, those before it as well. */
	next(64, 4096, 64);
	next(64, 4160, 64);
	next(64, 4224, 64);
	/* A fault of the same guest a little ahead moves the trail on. */
	push_fault(&p, 1, 4500);
	next(64, 4480, 64);
	/* One just behind it is on the same trail, which does not go back. */
	push_fault(&p, 1, 4530);
	next(64, 4544, 64);
	assert_int_equal(p.nr, 1);
	the_rest();
}

static void the_newest_fault_is_first_and_the_others_have_their_turns(void **state)
{
	(void)state;
	begin(1);
	push_fault(&p, 1, 1024);
	push_fault(&p, 1, 6144);
	next(64, 6144, 64);
	next(64, 6208, 64);
	next(64, 6272, 64);
	next(64, 6336, 64);
	next(64, 1024, 64);
	next(64, 1088, 64);
	push_fault(&p, 1, 3072);
	next(64, 3072, 64);
	/* Again a fault of the first: it is the newest now. */
	push_fault(&p, 1, 1160);
	next(64, 1152, 64);
	assert_int_equal(p.nr, 3);
	the_rest();
}

static void the_oldest_trail_is_forgotten(void **state)
{
	(void)state;
	begin(1);
	for (uint64_t i = 0; i <= PUSH_TRAILS; i++)
		push_fault(&p, 1, 640 + 640 * i);
	assert_int_equal(p.nr, PUSH_TRAILS);
	for (uint64_t i = PUSH_TRAILS; i > 0; i--)
		next(PUSH_TURN, 640 + 640 * i, PUSH_TURN);
	next(PUSH_TURN, 640 + 640 * PUSH_TRAILS + PUSH_TURN, PUSH_TURN);
	the_rest();
}

/* The others go on. */
static void one_of_several_trails_ends(void **state)
{
	(void)state;
	begin(1);
	push_fault(&p, 1, 640);
	push_fault(&p, 1, 2560);
	push_fault(&p, 1, PAGES - 1);
	next(64, PAGES - 64, 64);
	next(64, 2560, 64);
	assert_int_equal(p.nr, 2);
	next(64, 2624, 64);
	next(128, 2688, 128);
	next(64, 640, 64);
	the_rest();
}

/* At the end of a block a trail ends, and what lies before it comes in the order of addresses. */
static void a_trail_ends(void **state)
{
	(void)state;
	begin(1);
	push_fault(&p, 1, PAGES - 1);
	next(100, PAGES - 64, 64);
	next(64, 0, 64);
	assert_int_equal(p.nr, 0);
	the_rest();
}

static void what_is_asked_for_is_not_pushed(void **state)
{
	(void)state;
	begin(1);
	assert_true(owed_want(&o, 1, 20));
	assert_true(owed_want(&o, 1, 0));
	got[1][20] = got[1][0] = true;
	next(64, 1, 19);
	next(64, 21, 64);
	the_rest();
}

/* The destination has said that it needs no more: no fault that is on its way begins anew. */
static void it_stops(void **state)
{
	struct wire_extent x;

	(void)state;
	begin(1);
	push_fault(&p, 1, 640);
	next(64, 640, 64);
	push_stop(&p);
	push_fault(&p, 1, 1280);
	assert_false(push_take(&p, 64, &x));
}

static void units_are_whole(void **state)
{
	(void)state;
	begin(512);
	push_fault(&p, 1, 9);
	next(64, 9 * 512, 512);
	next(1024, 10 * 512, 1024);
	next(64, 12 * 512, 512);
	the_rest();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_teardown(without_faults_in_their_order, end),
	cmocka_unit_test_teardown(from_the_fault_forward, end),
	cmocka_unit_test_teardown(the_newest_fault_is_first_and_the_others_have_their_turns, end),
	cmocka_unit_test_teardown(the_oldest_trail_is_forgotten, end),
	cmocka_unit_test_teardown(one_of_several_trails_ends, end),
	cmocka_unit_test_teardown(a_trail_ends, end),
	cmocka_unit_test_teardown(what_is_asked_for_is_not_pushed, end),
	cmocka_unit_test_teardown(it_stops, end),
	cmocka_unit_test_teardown(units_are_whole, end),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
