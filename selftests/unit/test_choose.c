// SPDX-License-Identifier: GPL-2.0-only
/* What the choice of codecs goes by: the time that there is, the link, what a step takes, the receiver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codec/choose.h"
#include "wire/wire.h"

#define ALL		(WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB | WIRE_LOADS)
#define MS		1000000ull
#define PAGES		64u

/* A chooser that knows its receiver, and a link that takes 64 MB/s. */
static struct codec_chooser chooser_at(uint64_t now_ns)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	struct codec_seen seen = { .now_ns = now_ns, .waiting = 1, .acked = 1000, .loads = 1 };
	struct codec_chooser c;

	codec_chooser_init(&c, &wish, ALL);
	codec_choose(&c, &seen);
	seen.now_ns += 10 * MS;
	seen.acked += 640000;
	codec_choose(&c, &seen);
	assert_int_equal(c.rate, 64000000);
	return c;
}

/* What is chosen where so many ns are left until the link is idle; nothing new is learnt. */
static unsigned int with_time(const struct codec_chooser *of, uint64_t ns)
{
	/* As of a link a thousand times as fast: what the frame itself takes hardly counts, but it counts half at least. */
	const uint64_t bytes = ns * 64, own = PAGES * 4096 / 2;
	struct codec_seen seen = {
		.now_ns = of->since_ns + 1, .waiting = bytes > own ? bytes - own : 0, .acked = of->since_acked, .loads = of->loads,
		.pages = PAGES, .made_ns = of->page_ns[of->at] * PAGES, .bytes = own / 2,
	};
	struct codec_chooser c = *of;

	c.rate *= 1000;
	codec_choose(&c, &seen);
	return c.at;
}

/* The highest step that takes no more than half of the time that there is. */
static void test_time(void **state)
{
	struct codec_chooser c = chooser_at(1 * MS);

	(void)state;
	assert_int_equal(with_time(&c, 0), 0);
	for (unsigned int i = 1; i < CHOOSE_STEPS; i++) {
		uint64_t ns = 2 * PAGES * (500 + c.page_ns[i]);

		assert_int_equal(with_time(&c, ns - ns / 100), i - 1);
		assert_int_equal(with_time(&c, ns + ns / 100), i);
	}
	assert_int_equal(with_time(&c, 10000 * MS), 3);
	/* Without a LOAD, or a rate, there is no time. */
	c.loads = 0;
	assert_int_equal(with_time(&c, 10000 * MS), 0);
	c.loads = 1;
	c.rate = 0;
	assert_int_equal(with_time(&c, 10000 * MS), 0);
}

/* Before the first LOAD: a stream of 64 MB/s has a slow link, one of 640 perhaps a slow receiver. */
static void test_before_load(void **state)
{
	struct codec_seen seen = { .waiting = 64000000, .acked = 1, .pages = PAGES };
	struct codec_chooser c = chooser_at(1 * MS);

	(void)state;
	c.loads = 0;
	seen.now_ns = c.since_ns + 1;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 3);
	c.rate *= 10;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 0);
	/* The first one is heeded as any. */
	c.rate /= 10;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 3);
	seen.loads = 1;
	seen.load = 1000;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 2);
	/* A stream that waits for --bandwidth waits for no receiver. */
	c = chooser_at(1 * MS);
	c.loads = c.rate = 0;
	seen = (struct codec_seen) { .now_ns = c.since_ns + 1, .pages = PAGES, .paced_ns = 50 * MS };
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 3);
}

/* --bandwidth is a link, too. */
static void test_paced(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	struct codec_seen seen = { .now_ns = 1, .pages = PAGES, .loads = 1 };
	struct codec_chooser c;

	(void)state;
	codec_chooser_init(&c, &wish, ALL);
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 0);
	seen.paced_ns = 50 * MS;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 3);
	seen.paced_ns = 0;
	codec_choose(&c, &seen);
	assert_int_equal(c.at, 0);
}

static void look(struct codec_chooser *c, uint64_t after_ns, uint64_t waiting, uint64_t acked)
{
	const struct codec_seen seen = {
		.now_ns = c->since_ns + after_ns, .waiting = waiting, .acked = c->since_acked + acked, .loads = c->loads,
	};

	codec_choose(c, &seen);
}

/* Only while bytes wait does it show what the link takes. */
static void test_rate(void **state)
{
	struct codec_chooser c = chooser_at(1 * MS);

	(void)state;
	/* Too soon, and while nothing came back. */
	look(&c, 4 * MS, 1000, 1000000);
	look(&c, 9 * MS, 1000, 0);
	assert_int_equal(c.rate, 64000000);
	look(&c, 10 * MS, 1000, 1280000);
	assert_int_equal(c.rate, 80000000);
	/* An idle link: what follows is counted from where bytes wait again. */
	look(&c, 4 * MS, 0, 10);
	look(&c, 1000 * MS, 5, 2000);
	assert_int_equal(c.rate, 80000000);
	look(&c, 10 * MS, 5, 800000);
	assert_int_equal(c.rate, 80000000);
	/* But it can take what it took. */
	look(&c, 4 * MS, 0, 10);
	look(&c, 10 * MS, 0, 2240000);
	assert_int_equal(c.rate, 116000000);
	/* As long as none has waited all the time that is all one knows: too little to call it the rate. */
	c.rate = 0;
	look(&c, 1 * MS, 5, 1000);
	look(&c, 4 * MS, 0, 1000);
	look(&c, 10 * MS, 5, 1000);
	assert_int_equal(c.rate, 0);
	/* What was not looked at does not count. */
	codec_choose(&c, &(struct codec_seen) { .now_ns = c.since_ns + 10 * MS, .loads = 1 });
	assert_int_equal(c.since_ns, 0);
	c.rate = 80000000;
	codec_choose(&c, &(struct codec_seen) { .now_ns = 5000 * MS, .waiting = 5, .acked = 1000000000, .loads = 1 });
	assert_int_equal(c.rate, 80000000);
	/* Another connection counts from 0. */
	c.since_acked = 1u << 30;
	codec_choose(&c, &(struct codec_seen) { .now_ns = c.since_ns + 20 * MS, .waiting = 5, .acked = 7, .loads = 1 });
	assert_int_equal(c.rate, 80000000);
	assert_int_equal(c.since_acked, 7);
}

/* A step that takes longer than was thought is for where there is more time, until that is forgotten. */
static void test_cost(void **state)
{
	struct codec_chooser c = chooser_at(1 * MS);
	const uint64_t ns = 3 * PAGES * c.page_ns[2];
	struct codec_seen slow = { .pages = PAGES, .made_ns = PAGES * c.page_ns[2] * 4, .loads = 1 };
	unsigned int frames = 0;

	(void)state;
	assert_int_equal(with_time(&c, ns), 2);
	c.at = 2;
	slow.now_ns = c.since_ns + 1;
	codec_choose(&c, &slow);
	codec_choose(&c, &slow);
	assert_int_equal(with_time(&c, ns), 1);
	while (with_time(&c, ns) == 1 && frames++ < 10000) {
		const struct codec_seen other = {
			.now_ns = c.since_ns + 1, .waiting = 1, .pages = PAGES, .made_ns = PAGES * 8000, .loads = 1,
		};

		c.at = 1;
		codec_choose(&c, &other);
	}
	assert_in_range(frames, 50, 1000);
}

/* With all the time in the world: only the receiver counts. */
static unsigned int after_load(struct codec_chooser *c, uint64_t now_ns, unsigned int load)
{
	struct codec_seen seen = { .now_ns = now_ns, .paced_ns = 10000 * MS, .pages = PAGES, .loads = c->loads + 1, .load = load };

	seen.made_ns = PAGES * c->page_ns[c->at];
	codec_choose(c, &seen);
	/* And as many more frames as there are. */
	for (unsigned int i = 0; i < 100; i++) {
		seen.made_ns = PAGES * c->page_ns[c->at];
		codec_choose(c, &seen);
	}
	return c->at;
}

/* A receiver that is behind: one step less with each LOAD, and not again at once, but later. */
static void test_receiver(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	struct codec_chooser c;

	(void)state;
	codec_chooser_init(&c, &wish, ALL);
	/* The first LOAD says it already: nothing is tried. */
	assert_int_equal(after_load(&c, 1, 1000), 0);
	assert_int_equal(after_load(&c, 2, 950), 0);
	assert_int_equal(after_load(&c, 3, 899), 3);
	assert_int_equal(after_load(&c, 4, 900), 2);
	assert_int_equal(after_load(&c, 5, 1000), 1);
	assert_int_equal(after_load(&c, 6, 0), 1);
	/* The second refusal counts from then, and twice as long. */
	assert_int_equal(after_load(&c, 1900 * MS, 0), 1);
	assert_int_equal(after_load(&c, 2001 * MS, 0), 3);
	assert_int_equal(after_load(&c, 2002 * MS, 1000), 2);
	assert_int_equal(after_load(&c, 5900 * MS, 0), 2);
	/* Not while it says so, however long ago that began. */
	assert_int_equal(after_load(&c, 6100 * MS, 1000), 1);
	assert_int_equal(after_load(&c, 60000 * MS, 1000), 0);
	assert_int_equal(after_load(&c, 200000 * MS, 1000), 0);
	assert_int_equal(after_load(&c, 200001 * MS, 0), 3);
}

static void test_what_is_offered(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO }, off = { .kind = CODEC_OFF };
	const struct codec_wish fixed = { .kind = CODEC_FIXED, .choice = { &codec_zlib, 9 } };
	const struct codec_seen full = { .now_ns = 1, .paced_ns = 1000000000, .pages = 64, .loads = 1 };
	struct codec_chooser c;

	(void)state;
	codec_chooser_init(&c, &wish, 0);
	codec_choose(&c, &full);
	assert_null(codec_chosen(&c)->codec);
	assert_int_equal(c.n, 1);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_LOADS);
	assert_int_equal(c.n, 1);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_ZSTD);
	assert_int_equal(c.n, 2);
	assert_ptr_equal(c.steps[1].codec, &codec_lz4);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_LZ4);
	assert_int_equal(c.n, 3);
	assert_ptr_equal(c.steps[1].codec, &codec_zstd);
	codec_chooser_init(&c, &off, ALL);
	codec_choose(&c, &full);
	assert_null(codec_chosen(&c)->codec);
	codec_chooser_init(&c, &fixed, ALL);
	codec_choose(&c, &full);
	assert_ptr_equal(codec_chosen(&c)->codec, &codec_zlib);
	assert_int_equal(codec_chosen(&c)->level, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_time), cmocka_unit_test(test_before_load), cmocka_unit_test(test_paced), cmocka_unit_test(test_rate), cmocka_unit_test(test_cost),
		cmocka_unit_test(test_receiver), cmocka_unit_test(test_what_is_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
