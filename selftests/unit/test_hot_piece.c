// SPDX-License-Identifier: GPL-2.0-only
/*
 * A guest that writes in one place only: a stripe belongs to the stream that has sent it until that round is acknowledged. Do
 * all streams have work? By a clock of the test's own: each stream carries so much, as if its window were what limits it, and
 * an ACK comes a round trip after the last byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "ram_rig.h"

#define STREAMS	4u
#define ROUNDS	40u
#define UNACKED	4u	/* as the sender allows */
#define HOT	512u	/* pages: 2 MiB */
#define TRIP_NS	(80 * MS)
#define PAGE_NS	1310720ull	/* 25 Mbit/s a stream */

/**
 * struct clock - what the streams are at
 * @free: when each has sent what it has taken; @slower: how many times one of them is slower, the first
 * @acked: when the ACK of each round comes
 * @pages: that each has sent
 */
struct clock {
	uint64_t free[STREAMS], slower, acked[ROUNDS + 2], pages[STREAMS];
};

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t all_free(const struct clock *c)
{
	uint64_t at = 0;

	for (unsigned int i = 0; i < STREAMS; i++)
		at = later(at, c->free[i]);
	return at;
}

/* The first that is free, of those that have not found the round's end. */
static unsigned int next_stream(const struct clock *c, const bool *done)
{
	unsigned int next = STREAMS;

	for (unsigned int i = 0; i < STREAMS; i++)
		if (!done[i] && (next == STREAMS || c->free[i] < c->free[next]))
			next = i;
	return next;
}

static void hear(struct rig *rig, const struct clock *c, uint64_t now)
{
	while (atomic_load(&rig->stripes.acked) + 1 < rig->stripes.round && c->acked[atomic_load(&rig->stripes.acked) + 1] <= now)
		atomic_fetch_add(&rig->stripes.acked, 1);
}

static void one_round(struct rig *rig, struct clock *c, uint32_t number, uint64_t share)
{
	bool done[STREAMS] = { false };
	struct round_piece p;
	struct round rd;
	unsigned int i;

	rig->stripes.round = number;
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, &rig->stripes);
	round_divide(&rd, share, STREAMS);
	while ((i = next_stream(c, done)) < STREAMS) {
		int r;

		hear(rig, c, c->free[i]);
		r = round_take(&rd, i, UINT64_MAX, &p, &rig->e);
		assert_true(r >= 0);
		if (r == 1)
			for (unsigned int n = 0; n < p.nr; n++) {
				c->pages[i] += p.runs[n].count;
				c->free[i] += p.runs[n].count * PAGE_NS * (i ? 1 : c->slower);
			}
		else if (r == ROUND_WAITS || round_waits(&rd))
			c->free[i] += MS;
		else
			done[i] = true;
	}
	round_end(&rd);
	c->acked[number] = all_free(c) + TRIP_NS;
}

/* Nanoseconds a round. stride: between two pages that are written. */
static uint64_t play(uint64_t stride, uint64_t share, uint64_t slower)
{
	struct clock c = { .slower = slower };
	struct rig *rig = rig_new();
	uint64_t sum = 0, now, took;

	for (uint32_t number = 1; number <= ROUNDS; number++) {
		for (uint64_t page = 0; page < HOT; page++)
			rig_write(rig, page * stride, (int)number);
		/* The harvest comes when all have sent, and in time for no more than so many rounds on their way. */
		now = all_free(&c);
		if (number > UNACKED)
			now = later(now, c.acked[number - UNACKED]);
		for (unsigned int i = 0; i < STREAMS; i++)
			c.free[i] = now;
		one_round(rig, &c, number, share);
	}
	for (unsigned int i = 0; i < STREAMS; i++)
		sum += c.pages[i];
	assert_int_equal(sum, ROUNDS * HOT);
	took = all_free(&c) / ROUNDS;
	print_message("%u pages, every %u., in pieces of %s, one stream %u times slower: %u ms a round; streams sent %u, %u, %u, %u %%\n",
		      HOT, (unsigned int)stride, share == HOT ? "a share" : "4 MiB", (unsigned int)slower,
		      (unsigned int)(took / MS), (unsigned int)(c.pages[0] * 100 / sum), (unsigned int)(c.pages[1] * 100 / sum),
		      (unsigned int)(c.pages[2] * 100 / sum), (unsigned int)(c.pages[3] * 100 / sum));
	rig_free(rig);
	return took;
}

/* All streams together take 168 ms for 2 MiB. */
static void all_streams_send_of_one_piece(void **state)
{
	const uint64_t best = HOT * PAGE_NS / STREAMS;

	(void)state;
	assert_in_range(play(1, HOT, 1), best, best * 21 / 20);
	assert_in_range(play(PAGES / HOT, HOT, 1), best, best * 21 / 20);
	/* As it was: a piece of 4 MiB has all of it. */
	assert_true(play(1, UINT64_MAX, 1) > 3 * best);
}

/* A stream that is slow has a stripe or two of each round, whatever it has had before: others take the rest once they may. */
static void a_slow_stream_holds_a_round_up_for_some_stripes(void **state)
{
	const uint64_t stripe = STRIPE_PAGES * PAGE_NS;

	(void)state;
	assert_true(play(1, HOT, 4) <= HOT * PAGE_NS / STREAMS + 2 * 4 * stripe);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_streams_send_of_one_piece),
		cmocka_unit_test(a_slow_stream_holds_a_round_up_for_some_stripes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
