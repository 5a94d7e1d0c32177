// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every variant of the bitmap scan, and what sets and clears, against a model that goes bit by bit. What is scanned ends at a
 * page that may not be touched, and what lies around it holds the wrong answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page_arena.h"

#define WORD_BITS	64

static bool bit(const uint64_t *map, uint64_t n)
{
	return map[n / WORD_BITS] >> (n % WORD_BITS) & 1;
}

static uint64_t naive_next(const uint64_t *map, uint64_t nbits, uint64_t from, bool set)
{
	while (from < nbits && bit(map, from) != set)
		from++;
	return from < nbits ? from : nbits;
}

/* A map that ends where the arena does; bits beyond nbits are random, as the words start out. */
static uint64_t *new_map(uint64_t nbits)
{
	uint64_t words = (nbits + WORD_BITS - 1) / WORD_BITS;
	uint64_t *map = (uint64_t *)(arena + ARENA_PAGES * PAGE_BYTES) - words;
	uint64_t i;

	for (i = 0; i < words; i++)
		map[i] = rnd();
	return map;
}

enum pattern { ZEROS, ONES, HALF, FEW_SET, FEW_CLEAR, LONG_RUNS, PATTERNS };

static void fill(uint64_t *map, uint64_t nbits, enum pattern pattern)
{
	uint64_t n = 0;
	uint64_t run = 0;
	bool set = pattern == ONES;

	for (n = 0; n < nbits; n++) {
		if (pattern == HALF)
			set = rnd() & 1;
		else if (pattern == FEW_SET)
			set = rnd() % 300 == 0;
		else if (pattern == FEW_CLEAR)
			set = rnd() % 300 != 0;
		else if (pattern == LONG_RUNS && !run--)
			set = !set, run = rnd() % 3000;
		map[n / WORD_BITS] &= ~(UINT64_C(1) << (n % WORD_BITS));
		map[n / WORD_BITS] |= (uint64_t)set << (n % WORD_BITS);
	}
}

/* Every run in turn is what the naive model says, and there is none after the last. */
static void check_scan(const struct bitmap_scan *s, const uint64_t *map, uint64_t nbits, uint64_t from)
{
	struct run runs[2 * BITMAP_WORD_RUNS + 40];
	uint64_t first = naive_next(map, nbits, from, true), end, at = from;
	const unsigned int room = ARRAY_SIZE(runs) - rnd() % 41;
	unsigned int n;

	do {
		n = s->runs(map, nbits, &at, runs, room);
		assert_in_range(n, 0, room);
		for (unsigned int i = 0; i < n; i++) {
			end = naive_next(map, nbits, first, false);
			if (runs[i].first != first || runs[i].count != end - first)
				fail_msg("%s: %lu bits from %lu, at %lu: a run of %lu at %lu", s->name, nbits, from, first,
					 runs[i].count, runs[i].first);
			first = naive_next(map, nbits, end, true);
		}
	} while (n);
	assert_int_equal(first, nbits);
}

/* The same of the walk, which may go on within a run, or beyond several. */
static void check_walk(const uint64_t *map, uint64_t nbits, uint64_t from)
{
	struct bitmap_runs it = { .map = map, .nbits = nbits };
	uint64_t first = naive_next(map, nbits, from, true), end;
	struct run run;

	while (first < nbits) {
		assert_true(bitmap_runs_next(&it, from, &run));
		assert_int_equal(run.first, first);
		end = naive_next(map, nbits, first, false);
		assert_int_equal(run.count, end - first);
		from = rnd() % 8 ? end : first + rnd() % (rnd() % 2 ? run.count : 3000);
		first = naive_next(map, nbits, from, true);
	}
	assert_false(bitmap_runs_next(&it, from, &run));
	assert_false(bitmap_runs_next(&it, from + 1, &run));
}

static void check_map(const uint64_t *map, uint64_t nbits)
{
	static const uint64_t beyond[] = { 0, 1, 64, 1000000, UINT64_MAX - 100000 };
	unsigned int i, k;

	for (i = 0; i < bitmap_scans_count; i++) {
		const struct bitmap_scan *s = &bitmap_scans[i];

		if (!s->supported())
			continue;
		for (k = 0; k < 12; k++)
			check_scan(s, map, nbits, k < 4 ? k : rnd() % (nbits + 2));
		for (k = 0; k < ARRAY_SIZE(beyond); k++)
			check_scan(s, map, nbits, nbits + beyond[k]);
	}
	check_walk(map, nbits, 0);
	check_walk(map, nbits, rnd() % (nbits + 2));
}

/* Each length up to a few steps of AVX2, then random ones up to what the arena holds. */
static void test_scan_lengths(void **state)
{
	const uint64_t most = ARENA_PAGES * PAGE_BYTES * 8ul;
	enum pattern pattern;
	uint64_t nbits, *map;
	unsigned int i;

	(void)state;
	seed = 2;
	for (nbits = 0; nbits < 200; nbits++) {
		for (pattern = 0; pattern < PATTERNS; pattern++) {
			map = new_map(nbits);
			fill(map, nbits, pattern);
			check_map(map, nbits);
		}
	}
	for (i = 0; i < 300; i++) {
		nbits = i == 0 ? most : rnd() % (i % 10 ? 4096 : most);
		map = new_map(nbits);
		fill(map, nbits, i % PATTERNS);
		check_map(map, nbits);
	}
}

/* One bit that differs, at every place of a map of two AVX2 steps and some, seen from every word before it. */
static void test_scan_every_bit(void **state)
{
	const uint64_t nbits = 2 * 1024 + 300;
	uint64_t *map = new_map(nbits);
	uint64_t n, from;
	unsigned int i;

	(void)state;
	for (i = 0; i < 2 * bitmap_scans_count; i++) {
		const struct bitmap_scan *s = &bitmap_scans[i / 2];
		bool set = i % 2;

		if (!s->supported())
			continue;
		memset(map, set ? 0 : 0xff, (nbits + 7) / 8);
		for (n = 0; n < nbits; n++) {
			map[n / WORD_BITS] ^= UINT64_C(1) << (n % WORD_BITS);
			for (from = n % WORD_BITS; from <= n; from += WORD_BITS)
				check_scan(s, map, nbits, from);
			check_scan(s, map, nbits, n + 1);
			map[n / WORD_BITS] ^= UINT64_C(1) << (n % WORD_BITS);
		}
	}
}

static void test_set_and_clear(void **state)
{
	const uint64_t nbits = 1024;
	uint64_t *map = new_map(nbits);
	uint64_t words = (nbits + WORD_BITS - 1) / WORD_BITS;
	uint64_t before[32];
	uint64_t first, count, n;
	unsigned int round;
	bool set;

	(void)state;
	seed = 3;
	for (round = 0; round < 6000; round++) {
		set = round & 1;
		first = rnd() % (nbits + 1);
		count = rnd() % (nbits - first + 1);
		if (round % 4 < 2)	/* short ones and whole words, too */
			count = round % 8 ? count % 3 : count / WORD_BITS * WORD_BITS;
		if (round % 16 == 6)	/* up to the last word there is */
			count = nbits - first;
		memcpy(before, map, words * sizeof(*map));
		(set ? bitmap_set : bitmap_clear)(map, first, count);
		assert_int_equal(bitmap_all(map, first, count), set || !count);
		for (n = 0; n < words * WORD_BITS; n++) {
			bool want = n >= first && n < first + count ? set : bit(before, n);

			if (bit(map, n) != want)
				fail_msg("%s [%lu, +%lu): bit %lu", set ? "set" : "clear", first, count, n);
		}
	}
	/* Nothing to do is done nowhere: not even a word is looked at. */
	bitmap_set((uint64_t *)(arena + ARENA_PAGES * PAGE_BYTES), 0, 0);
	bitmap_clear((uint64_t *)(arena + ARENA_PAGES * PAGE_BYTES), 0, 0);
}

static void test_scan_best(void **state)
{
	const struct bitmap_scan *best = bitmap_scan_best();
	unsigned int i;

	(void)state;
	for (i = 0; !bitmap_scans[i].supported(); i++)
		;
	assert_ptr_equal(best, &bitmap_scans[i]);
	assert_ptr_equal(bitmap_scan_best(), best);
	assert_string_equal(bitmap_scans[bitmap_scans_count - 1].name, "scalar");
	assert_true(bitmap_scans[bitmap_scans_count - 1].supported());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scan_lengths),
		cmocka_unit_test(test_scan_every_bit),
		cmocka_unit_test(test_set_and_clear),
		cmocka_unit_test(test_scan_best),
	};

	return cmocka_run_group_tests(tests, map_arena, NULL);
}
