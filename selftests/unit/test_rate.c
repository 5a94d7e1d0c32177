// SPDX-License-Identifier: GPL-2.0-only
/* The estimate of a guest's dirty rate, against a dirty source that plays a guest whose every write is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "estimate/curve.h"
#include "estimate/rate.h"
#include "page/page.h"

#define PAGES	(64u * 1024)
#define PAGES2	(64u * 256 + 10)	/* the last chunk is none */

/**
 * struct guest - writes page p of block b in every interval when its bit is set here, harvested or not
 * @written: what it writes
 * @armed: pages that the log will see: bits of cleared pages
 * @cleared: pages that were cleared, one as often as it was; @first_cleared: before the first harvest; @calls: it took
 * @sweep: other pages in each interval: so many, behind the last ones, in block 0
 */
struct guest {
	struct dirty_source base;
	struct vm vm;
	uint64_t *written[2];
	uint64_t *armed[2];
	uint64_t cleared, first_cleared, calls;
	uint64_t sweep;
	bool started;
	unsigned int harvests;
};

static struct guest *of(struct dirty_source *s)
{
	return (struct guest *)s;
}

static int start(struct dirty_source *s, struct err *e)
{
	(void)e;
	of(s)->started = true;
	for (unsigned int b = 0; b < 2; b++)
		bitmap_set(s->map[b], 0, s->vm->blocks[b].pages);
	return 0;
}

static int clear(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count, struct err *e)
{
	(void)e;
	assert_true(of(s)->started);
	assert_int_equal(first % 64, 0);
	assert_true(first + count <= s->vm->blocks[block].pages);
	for (uint64_t w = first / 64; w < (first + count) / 64; w++) {
		uint64_t n = (uint64_t)__builtin_popcountll(s->map[block][w]);

		of(s)->armed[block][w] |= s->map[block][w];
		of(s)->cleared += n;
		of(s)->first_cleared += of(s)->harvests ? 0 : n;
	}
	of(s)->calls++;
	return 0;
}

/* Without CLEAR the bit of a page that was not armed is set for ever. */
static int harvest(struct dirty_source *s, struct err *e)
{
	(void)e;
	if (of(s)->sweep) {
		memset(of(s)->written[0], 0, PAGES / 8);
		bitmap_set(of(s)->written[0], of(s)->harvests * of(s)->sweep, of(s)->sweep);
	}
	of(s)->harvests++;
	for (unsigned int b = 0; b < 2; b++)
		for (uint64_t w = 0; w < s->vm->blocks[b].pages / 64; w++)
			s->map[b][w] |= of(s)->written[b][w] | ~of(s)->armed[b][w];
	return 0;
}

static const struct dirty_ops ops = { .name = "played", .start = start, .clear = clear, .harvest = harvest };

static int setup(void **state)
{
	struct guest *g = calloc(1, sizeof(*g));

	g->base.ops = &ops;
	g->base.vm = &g->vm;
	g->vm.nblocks = 2;
	g->vm.blocks[0].pages = PAGES;
	g->vm.blocks[1].pages = PAGES2;
	for (unsigned int b = 0; b < 2; b++) {
		size_t words = (g->vm.blocks[b].pages + 63) / 64;

		g->base.map[b] = calloc(words, 8);
		g->written[b] = calloc(words, 8);
		g->armed[b] = calloc(words, 8);
	}
	*state = g;
	return 0;
}

static int teardown(void **state)
{
	struct guest *g = *state;

	for (unsigned int b = 0; b < 2; b++) {
		free(g->base.map[b]);
		free(g->written[b]);
		free(g->armed[b]);
	}
	free(g);
	return 0;
}

static struct rate measure(struct guest *g, uint64_t sample_pages, unsigned int seconds)
{
	struct rate_options o = { .seconds = seconds, .interval_ms = 20, .sample_pages = sample_pages, .seed = 42 };
	struct err e = { 0 };
	struct rate r;

	assert_int_equal(rate_measure(&g->vm, &g->base, &o, &r, &e), 0);
	assert_int_equal(r.intervals, g->harvests - 1);
	assert_int_equal(r.total_pages, PAGES + PAGES2);
	return r;
}

/* Pages an interval, from pages per second. */
static double per_interval(const struct rate *r, double rate)
{
	return rate * (double)r->elapsed_ns / 1e9 / (double)r->intervals;
}

static void test_idle(void **state)
{
	struct rate r = measure(*state, PAGES + PAGES2, 1);
	struct guest *g = *state;

	assert_float_equal(r.dirty_pages_per_s, 0, 0);
	assert_float_equal(r.working_set_pages, 0, 0);
	/* A guest that writes nothing is armed once, and left alone. */
	assert_int_equal(g->cleared, (PAGES + PAGES2) / 64 * 64);
	assert_int_equal(g->cleared, g->first_cleared);
	/* One for each block. */
	assert_int_equal(g->calls, 2);
}

/* The whole as a sample has no error but the last ten pages. */
static void test_all(void **state)
{
	struct guest *g = *state;
	struct rate r;

	bitmap_set(g->written[0], 100, 1000);
	bitmap_set(g->written[1], 64, 500);
	r = measure(g, UINT64_MAX, 1);
	assert_int_equal(r.sample_pages, (PAGES + PAGES2) / 64 * 64);
	assert_float_equal(per_interval(&r, r.dirty_pages_per_s), 1500, 1);
	assert_float_equal(r.working_set_pages, 1500, 1);
	assert_true(g->cleared > g->first_cleared);
}

/* A sixteenth, of a guest that writes every fourth page everywhere: no sample can be wrong. */
static void test_even(void **state)
{
	struct guest *g = *state;
	struct rate r;

	for (unsigned int b = 0; b < 2; b++)
		memset(g->written[b], 0x11, g->vm.blocks[b].pages / 64 * 8);
	r = measure(g, PAGES / 16, 1);
	assert_int_equal(r.sample_pages, PAGES / 16);
	assert_int_equal(g->first_cleared, PAGES / 16);
	assert_float_equal(per_interval(&r, r.dirty_pages_per_s), (PAGES + PAGES2) / 4.0, 1);
	assert_float_equal(r.error_pages_per_s, 0, 1);
	assert_float_equal(r.working_set_pages, (PAGES + PAGES2) / 4.0, 1);
}

/* A working set of a fifth in one piece: the strata see it, and what the error says holds. */
static void test_clustered(void **state)
{
	struct guest *g = *state;
	double truth = PAGES / 5.0, found;
	struct rate r;

	bitmap_set(g->written[0], PAGES / 2, PAGES / 5);
	r = measure(g, PAGES / 16, 1);
	found = per_interval(&r, r.dirty_pages_per_s);
	assert_true(found > truth * 0.9 && found < truth * 1.1);
	assert_true(r.error_pages_per_s > 0);
	assert_float_equal(found, truth, per_interval(&r, r.error_pages_per_s));
}

static void expect_curve(struct guest *g, const double pages[CURVE_POINTS])
{
	struct err e = { 0 };
	struct curve c;

	assert_int_equal(curve_measure(&g->vm, &g->base, 1, UINT64_MAX, 42, &c, &e), 0);
	assert_int_equal(c.n, CURVE_POINTS);
	assert_int_equal(c.sample_pages, (PAGES + PAGES2) / 64 * 64);
	assert_int_equal(c.total_pages, PAGES + PAGES2);
	for (unsigned int i = 0; i < c.n; i++) {
		assert_float_equal(c.points[i].pages, pages[i], 1);
		assert_true(c.points[i].ns >= 31250000ull << i);
	}
	/* To begin with; four short windows with three looks, a long one with two. */
	assert_int_equal(g->harvests, 1 + 4 * 3 + 2);
}

/* The same pages again and again: their number does not grow. */
static void test_curve_is_flat(void **state)
{
	struct guest *g = *state;

	bitmap_set(g->written[0], 100, 1000);
	expect_curve(g, (double[]) { 1000, 1000, 1000, 1000, 1000 });
}

/* Ever new ones add up within a window, whose start forgets them. The long one has but two looks, and must not fall. */
static void test_curve_adds_up(void **state)
{
	struct guest *g = *state;

	g->sweep = 128;
	expect_curve(g, (double[]) { 128, 256, 384, 384, 384 });
}

static void test_sample_too_small(void **state)
{
	struct guest *g = *state;
	struct rate_options o = { .seconds = 1, .interval_ms = 20, .sample_pages = 63 };
	struct err e = { 0 };
	struct rate r;

	assert_true(rate_measure(&g->vm, &g->base, &o, &r, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_false(g->started);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all, setup, teardown),
		cmocka_unit_test_setup_teardown(test_even, setup, teardown),
		cmocka_unit_test_setup_teardown(test_clustered, setup, teardown),
		cmocka_unit_test_setup_teardown(test_curve_is_flat, setup, teardown),
		cmocka_unit_test_setup_teardown(test_curve_adds_up, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sample_too_small, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
