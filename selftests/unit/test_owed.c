// SPDX-License-Identifier: GPL-2.0-only
/* Which pages are owed, and which thread has them. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "postcopy/owed.h"
#include "wire/wire.h"

static struct owed o;

static void begin(uint64_t pages, uint32_t unit)
{
	const uint64_t all[] = { 64, pages };
	const uint32_t units[] = { 1, unit };
	struct err e = { 0 };

	assert_return_code(owed_init(&o, all, units, 2, &e), 0);
}

static int end(void **state)
{
	(void)state;
	owed_free(&o);
	return 0;
}

static void a_unit_goes_its_way(void **state)
{
	(void)state;
	begin(1000, 1);
	assert_return_code(owed_add(&o, 1, 70, 3), 0);
	assert_int_equal(o.left, 3);
	assert_int_equal(owed_take(&o, 1, 69), OWED_NEVER);
	assert_int_equal(owed_take(&o, 1, 73), OWED_NEVER);
	assert_int_equal(owed_take(&o, 0, 70 % 64), OWED_NEVER);
	assert_int_equal(owed_take(&o, 1, 70), OWED_MINE);
	assert_int_equal(owed_take(&o, 1, 70), OWED_GONE);
	assert_int_equal(o.left, 3);
	assert_false(owed_arrived(&o, 1, 70));
	assert_int_equal(o.left, 2);
	assert_int_equal(owed_take(&o, 1, 70), OWED_GONE);
	/* A page that was asked for has a fault to wake, and is asked for once. */
	assert_int_equal(owed_fault(&o, 1, 71), OWED_ASK);
	assert_int_equal(owed_fault(&o, 1, 71), OWED_WAIT);
	assert_int_equal(owed_take(&o, 1, 71), OWED_MINE);
	/* It is still not there. */
	assert_int_equal(owed_fault(&o, 1, 71), OWED_WAIT);
	assert_true(owed_arrived(&o, 1, 71));
	assert_int_equal(owed_fault(&o, 1, 71), OWED_HERE);
	assert_int_equal(owed_fault(&o, 1, 70), OWED_HERE);
	assert_int_equal(owed_fault(&o, 1, 999), OWED_HERE);
	assert_int_equal(o.left, 1);
}

/* Named again and again, some of it new. */
static void some_are_new(void **state)
{
	(void)state;
	begin(130, 2);
	assert_true(owed_add_new(&o, 1, 126, 4));
	assert_false(owed_add_new(&o, 1, 126, 2));
	assert_int_equal(o.left, 2);
	assert_true(owed_add_new(&o, 1, 122, 6));
	assert_int_equal(o.left, 4);
	assert_true(owed_add_new(&o, 0, 0, 64));
	assert_int_equal(o.left, 68);
	assert_int_equal(owed_next(&o, 1, 0, 65), 61);
	assert_int_equal(owed_end(&o, 1, 61), 65);
}

/* After a loss of the link: what was taken and did not come may be taken again, and asked for; what came may not. */
static void again(void **state)
{
	(void)state;
	begin(80, 1);
	assert_int_equal(owed_add(&o, 1, 60, 10), 0);
	assert_int_equal(owed_take(&o, 1, 63), OWED_MINE);
	owed_arrived(&o, 1, 63);
	assert_int_equal(owed_take(&o, 1, 64), OWED_MINE);
	assert_int_equal(owed_fault(&o, 1, 64), OWED_ASK);
	assert_int_equal(owed_fault(&o, 1, 69), OWED_ASK);
	owed_again(&o);
	assert_int_equal(o.left, 9);
	assert_int_equal(owed_take(&o, 1, 63), OWED_GONE);
	assert_int_equal(owed_fault(&o, 1, 63), OWED_HERE);
	assert_int_equal(owed_take(&o, 1, 64), OWED_MINE);
	assert_int_equal(owed_fault(&o, 1, 64), OWED_ASK);
	assert_int_equal(owed_fault(&o, 1, 69), OWED_ASK);
	assert_int_equal(owed_take(&o, 1, 70), OWED_NEVER);
}

static void whole_units_only(void **state)
{
	(void)state;
	begin(1200, 512);
	assert_int_equal(owed_add(&o, 1, 0, 511), -EINVAL);
	assert_int_equal(owed_add(&o, 1, 1, 511), -EINVAL);
	assert_int_equal(owed_add(&o, 1, 512, 687), -EINVAL);
	assert_int_equal(o.left, 0);
	assert_return_code(owed_add(&o, 1, 512, 688), 0);
	assert_int_equal(o.left, 2);
	assert_int_equal(owed_add(&o, 1, 512, 512), -EEXIST);
	assert_int_equal(owed_extent(&o, 1, 1).pages, 512);
	assert_int_equal(owed_extent(&o, 1, 2).pages, 176);
	assert_int_equal(owed_extent(&o, 1, 2).first, 1024);
	assert_int_equal(owed_take(&o, 1, 2), OWED_MINE);
	assert_int_equal(owed_take(&o, 1, 0), OWED_NEVER);
}

/* Runs of bits at every place of a word, against one bit at a time. */
static void words(void **state)
{
	uint8_t bytes[4 * 8];

	(void)state;
	for (unsigned int seed = 0; seed < 400; seed++) {
		struct wire_extent x = { .block = 1, .kind = WIRE_DATA, .pages = 1 + seed % 256, .first = seed * 7 % 300 };
		uint64_t w[4] = { 0 }, n = 0;

		srand(seed);
		for (unsigned int i = 0; i < x.pages; i++)
			if (rand() % 100 < (int)(seed % 5) * 25)
				w[i / 64] |= 1ull << i % 64, n++;
		for (unsigned int i = 0; i < 4; i++)
			wire_put_u64(bytes + i * 8, w[i]);
		begin(1000, 1);
		assert_return_code(owed_add_words(&o, &x, bytes), 0);
		assert_int_equal(o.left, n);
		for (uint64_t p = 0; p < 1000; p++) {
			bool set = p >= x.first && p < x.first + x.pages && w[(p - x.first) / 64] >> (p - x.first) % 64 & 1;

			assert_int_equal(owed_fault(&o, 1, p), set ? OWED_ASK : OWED_HERE);
		}
		owed_free(&o);
	}
	begin(1000, 1);
	assert_return_code(owed_add_words(&o, &(struct wire_extent) { .block = 1, .kind = WIRE_ZERO, .pages = 900, .first = 100 }, NULL), 0);
	assert_int_equal(o.left, 900);
}

static void the_next_run(void **state)
{
	(void)state;
	begin(300, 1);
	assert_return_code(owed_add(&o, 1, 60, 140), 0);
	assert_return_code(owed_add(&o, 1, 299, 1), 0);
	assert_int_equal(owed_next(&o, 1, 0, 300), 60);
	assert_int_equal(owed_next(&o, 1, 0, 60), 60);
	assert_int_equal(owed_next(&o, 1, 0, 50), 50);
	assert_int_equal(owed_end(&o, 1, 60), 200);
	assert_int_equal(owed_next(&o, 1, 200, 300), 299);
	assert_int_equal(owed_end(&o, 1, 299), 300);
	assert_int_equal(owed_take(&o, 1, 128), OWED_MINE);
	assert_int_equal(owed_end(&o, 1, 60), 128);
	assert_int_equal(owed_next(&o, 1, 128, 300), 129);
	assert_int_equal(owed_end(&o, 1, 128), 128);
}

static void the_source_answers_once(void **state)
{
	(void)state;
	begin(300, 1);
	assert_return_code(owed_add(&o, 1, 60, 10), 0);
	assert_false(owed_want(&o, 1, 59));
	assert_true(owed_want(&o, 1, 60));
	assert_false(owed_want(&o, 1, 60));
	/* What is asked for is not pushed any more; what was pushed may be asked for. */
	assert_int_equal(owed_take(&o, 1, 60), OWED_GONE);
	assert_int_equal(owed_take(&o, 1, 61), OWED_MINE);
	assert_true(owed_want(&o, 1, 61));
	assert_int_equal(owed_next(&o, 1, 0, 300), 62);
}

#define RACERS	4
#define RACE	4000u

struct racer {
	pthread_t thread;
	unsigned int mine, woken;
};

/* Threads that put pages in place, each where the others do as well. */
static void *taker(void *arg)
{
	struct racer *r = arg;

	for (uint64_t n = 0; n < RACE; n++) {
		if (owed_take(&o, 1, n) != OWED_MINE)
			continue;
		r->mine++;
		r->woken += owed_arrived(&o, 1, n);
	}
	return NULL;
}

/* One that reads faults: each must be woken by a taker, or be told that the page is here. */
static void each_unit_has_one_taker_and_each_fault_its_end(void **state)
{
	struct racer r[RACERS] = { 0 };
	unsigned int asked = 0, here = 0, mine = 0, woken = 0;

	(void)state;
	begin(RACE, 1);
	assert_return_code(owed_add(&o, 1, 0, RACE), 0);
	for (unsigned int i = 0; i < RACERS; i++)
		assert_int_equal(pthread_create(&r[i].thread, NULL, taker, &r[i]), 0);
	for (uint64_t n = 0; n < RACE; n++) {
		enum owed_fault f = owed_fault(&o, 1, n);

		asked += f == OWED_ASK;
		here += f == OWED_HERE;
	}
	for (unsigned int i = 0; i < RACERS; i++) {
		pthread_join(r[i].thread, NULL);
		mine += r[i].mine;
		woken += r[i].woken;
	}
	assert_int_equal(mine, RACE);
	assert_int_equal(o.left, 0);
	assert_int_equal(asked + here, RACE);
	assert_true(woken >= asked);
}

/* Both at the same unit at the same time, unit by unit, in ever other steps. */
#define MEETINGS	60000u

static _Atomic uint64_t here[2];
static bool woken[MEETINGS], ends[MEETINGS], mine[2][MEETINGS];

static void meet(unsigned int me, uint64_t n)
{
	atomic_store(&here[me], n + 1);
	for (unsigned int i = 0; atomic_load(&here[!me]) <= n; i++)
		if (i % 4096 == 4095)
			sched_yield();
	for (volatile uint64_t i = (me ? n / 16 : n) % 16; i; i--)
		;
}

static void *meeting_taker(void *arg)
{
	(void)arg;
	for (uint64_t n = 0; n < MEETINGS; n++) {
		meet(0, n);
		if (owed_take(&o, 1, n) == OWED_MINE)
			woken[n] = owed_arrived(&o, 1, n);
	}
	return NULL;
}

static void no_fault_is_forgotten(void **state)
{
	pthread_t thread;

	(void)state;
	begin(MEETINGS, 1);
	assert_return_code(owed_add(&o, 1, 0, MEETINGS), 0);
	here[0] = here[1] = 0;
	assert_int_equal(pthread_create(&thread, NULL, meeting_taker, NULL), 0);
	for (uint64_t n = 0; n < MEETINGS; n++) {
		meet(1, n);
		ends[n] = owed_fault(&o, 1, n) == OWED_HERE;
	}
	pthread_join(thread, NULL);
	for (uint64_t n = 0; n < MEETINGS; n++)
		assert_true(woken[n] || ends[n]);
}

static void *meeting_rival(void *arg)
{
	(void)arg;
	for (uint64_t n = 0; n < MEETINGS; n++) {
		meet(0, n);
		mine[0][n] = owed_take(&o, 1, n) == OWED_MINE;
	}
	return NULL;
}

static void a_unit_has_one_taker(void **state)
{
	pthread_t thread;

	(void)state;
	begin(MEETINGS, 1);
	assert_return_code(owed_add(&o, 1, 0, MEETINGS), 0);
	here[0] = here[1] = 0;
	assert_int_equal(pthread_create(&thread, NULL, meeting_rival, NULL), 0);
	for (uint64_t n = 0; n < MEETINGS; n++) {
		meet(1, n);
		mine[1][n] = owed_take(&o, 1, n) == OWED_MINE;
	}
	pthread_join(thread, NULL);
	for (uint64_t n = 0; n < MEETINGS; n++)
		assert_int_equal(mine[0][n] + mine[1][n], 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_teardown(a_unit_goes_its_way, end),
	cmocka_unit_test_teardown(some_are_new, end),
	cmocka_unit_test_teardown(again, end),
	cmocka_unit_test_teardown(whole_units_only, end),
	cmocka_unit_test_teardown(words, end),
	cmocka_unit_test_teardown(the_next_run, end),
	cmocka_unit_test_teardown(the_source_answers_once, end),
	cmocka_unit_test_teardown(each_unit_has_one_taker_and_each_fault_its_end, end),
	cmocka_unit_test_teardown(no_fault_is_forgotten, end),
	cmocka_unit_test_teardown(a_unit_has_one_taker, end),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
