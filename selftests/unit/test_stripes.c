// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rounds that do not wait for each other. A model of the receiver places what each stream sends in the order of that
 * stream, and the streams in any order against each other: whatever it does, the newest bytes of each page must win.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ram_rig.h"

#define STREAMS	4u
#define ROUNDS	12u

/* One thing that a stream has sent: a page's content in this round, or the end of the round. */
struct sent {
	uint32_t round;
	uint64_t page;
	bool end, hole;
};

/**
 * struct link - what is under way on each stream
 * @placed: of each page, the round whose content the receiver has now
 * @done: of each stream, the rounds that it has delivered to the end
 * @base: the round that was the latest when the link was lost, @stands: the one that the receiver had then
 */
struct link {
	struct sent *fifo[STREAMS];
	size_t first[STREAMS], end[STREAMS];
	uint32_t placed[PAGES], newest[PAGES], done[STREAMS], base, stands;
	bool sent_now[PAGES];
};

#define FIFO	(PAGES * ROUNDS * 2)

static struct link *link_new(void)
{
	struct link *l = calloc(1, sizeof(*l));

	for (unsigned int i = 0; i < STREAMS; i++)
		l->fifo[i] = calloc(FIFO, sizeof(struct sent));
	return l;
}

static void link_free(struct link *l)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		free(l->fifo[i]);
	free(l);
}

static void link_push(struct link *l, unsigned int stream, struct sent s)
{
	assert_true(l->end[stream] < FIFO);
	l->fifo[stream][l->end[stream]++] = s;
}

/* The receiver takes the next thing of a stream. */
static void link_deliver(struct link *l, unsigned int stream)
{
	const struct sent *s;

	if (l->first[stream] == l->end[stream])
		return;
	s = &l->fifo[stream][l->first[stream]++];
	if (s->end)
		l->done[stream] = s->round;
	else
		l->placed[s->page] = s->round;
}

static uint32_t link_done(const struct link *l)
{
	uint32_t least = UINT32_MAX;

	for (unsigned int i = 0; i < STREAMS; i++)
		least = l->done[i] < least ? l->done[i] : least;
	return least;
}

/* ACKs what is in place on all streams, as late as it likes. */
static void link_ack(struct link *l, struct stripes *s)
{
	uint32_t least = link_done(l);

	if (least > atomic_load(&s->acked))
		atomic_store(&s->acked, least);
}

static void send_piece(struct link *l, unsigned int stream, uint32_t round, const struct round_piece *p)
{
	for (unsigned int i = 0; i < p->nr; i++)
		for (uint64_t page = p->runs[i].first; page < p->runs[i].first + p->runs[i].count; page++) {
			/* Within a round no page goes twice, but a hole that was read as zeros. */
			assert_true(!l->sent_now[page] || p->hole);
			l->sent_now[page] = true;
			l->newest[page] = round;
			link_push(l, stream, (struct sent) { .round = round, .page = page, .hole = p->hole });
		}
}

/* All that is under way is lost, and the receiver hears from the sender again. */
static void link_hear(struct link *l, uint32_t round)
{
	if (link_done(l) > l->base)
		l->stands = link_done(l);
	l->base = round;
	for (unsigned int i = 0; i < STREAMS; i++) {
		l->first[i] = l->end[i] = 0;
		l->done[i] = l->base;
	}
}

/* The answer to that may be lost as well, and then the sender tries again. */
static void link_lose(struct link *l, struct rig *rig, uint32_t *seed)
{
	do {
		link_hear(l, rig->rounds);
	} while (next_random(seed) % 2);
	stripes_lost(&rig->stripes, NULL, l->stands, rig->source.map);
	atomic_store(&rig->stripes.acked, l->base);
}

/**
 * struct habits - how the link behaves
 * @slow: this stream delivers one thing in so many; 0: as the others
 * @acks: are ACKs sent at all?
 * @loses: of so many times that it could be lost, the link is once; 0: never
 */
struct habits {
	unsigned int slow;
	bool acks;
	unsigned int loses;
};

static void deliver_some(struct link *l, struct stripes *s, const struct habits *h, unsigned int most, uint32_t *seed)
{
	for (unsigned int i = next_random(seed) % (most + 1); i; i--) {
		unsigned int stream = next_random(seed) % STREAMS;

		if (stream || !h->slow || !(next_random(seed) % h->slow))
			link_deliver(l, stream);
	}
	if (h->acks && !(next_random(seed) % 3))
		link_ack(l, s);
}

static uint64_t piece_pages(const struct round_piece *p)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < p->nr; i++)
		pages += p->runs[i].count;
	return pages;
}

/* All streams take pieces in a random order, as much as their windows have room for, while the receiver takes what it likes of what was sent. */
static void one_round(struct rig *rig, struct link *l, enum round_kind kind, const struct habits *h, uint32_t *seed)
{
	static const uint64_t rooms[] = { 0, 1, 5, UINT64_MAX };
	uint64_t dirty[PAGES / 64];
	bool ended[STREAMS] = { false };
	unsigned int left = STREAMS;
	struct round_piece p;
	struct round rd;
	bool lost = false;

	memcpy(dirty, rig->source.map[0], sizeof(dirty));

	memset(l->sent_now, 0, sizeof(l->sent_now));
	rig->stripes.round = ++rig->rounds;
	if (kind == ROUND_PRECOPY && rig->rounds > 1)
		hot_pages_hold(&rig->hot, &rig->source);
	round_begin(&rd, &rig->src, &rig->source, kind, kind == ROUND_PRECOPY ? &rig->hot : NULL, &rig->stripes);
	rd.spread = next_random(seed) % 2;
	while (left && !lost) {
		unsigned int stream = next_random(seed) % STREAMS;
		uint64_t most = rooms[next_random(seed) % 4];
		int r;

		if (ended[stream])
			continue;
		r = round_take(&rd, stream, most, &p, &rig->e);
		assert_true(r >= 0);
		if (r == ROUND_WAITS) {
			assert_int_equal(most, 0);
		} else if (r) {
			assert_true(!rd.spread || p.hole || piece_pages(&p) <= most);
			send_piece(l, stream, rig->rounds, &p);
		} else {
			link_push(l, stream, (struct sent) { .round = rig->rounds, .end = true });
			ended[stream] = true;
			left--;
		}
		deliver_some(l, &rig->stripes, h, 400, seed);
		lost = h->loses && kind == ROUND_PRECOPY && !(next_random(seed) % h->loses);
	}
	if (lost)
		round_drop(&rd);
	round_end(&rd);
	if (lost) {
		link_lose(l, rig, seed);
		return;
	}
	for (uint64_t page = 0; page < PAGES; page++)
		if (dirty[page / 64] >> page % 64 & 1 && !l->sent_now[page])
			fail_msg("page %llu was left in round %u", (unsigned long long)page, rig->rounds);
}

static void write_some(struct rig *rig, uint32_t *seed)
{
	uint64_t base = next_random(seed) % (PAGES - 512);

	for (unsigned int i = 0; i < 300; i++)
		rig_write(rig, base + next_random(seed) % 512, 1);
	for (unsigned int i = 0; i < 100; i++)
		rig_write(rig, next_random(seed) % PAGES, 1);
}

static void play(const struct habits *h, uint32_t seed)
{
	struct rig *rig = rig_new();
	struct link *l = link_new();

	for (uint64_t p = 0; p < PAGES; p++)
		rig_write(rig, p, 1);
	for (unsigned int round = 1; round <= ROUNDS; round++) {
		bool last = round == ROUNDS;

		if (last)
			rig_punch(rig, next_random(&seed) % (PAGES / 2), PAGES / 3);
		/* Late rounds come last, and several may wait for their ACK when the last one begins. */
		one_round(rig, l, last ? ROUND_LAST : round + 3 < ROUNDS ? ROUND_PRECOPY : ROUND_LATE, h, &seed);
		write_some(rig, &seed);
		if (round + 1 == ROUNDS)
			continue;
		deliver_some(l, &rig->stripes, h, 2000, &seed);
		/* Perhaps twice, with no round in between: what was lost first must not be forgotten. */
		for (unsigned int i = 0; i < 2 && h->loses && !last; i++)
			if (!(next_random(&seed) % 4))
				link_lose(l, rig, &seed);
	}
	for (unsigned int i = 0; i < STREAMS; i++)
		while (l->first[i] < l->end[i])
			link_deliver(l, i);
	for (uint64_t p = 0; p < PAGES; p++)
		if (l->placed[p] != l->newest[p])
			fail_msg("seed %u: page %llu is of round %u, not of %u", seed, (unsigned long long)p, l->placed[p],
				 l->newest[p]);
	link_free(l);
	rig_free(rig);
}

static void the_newest_bytes_win(void **state)
{
	static const struct habits habits[] = {
		{ 0, true, 0 }, { 30, true, 0 }, { 0, false, 0 }, { 1000000, true, 0 },
		{ 0, true, 40 }, { 30, true, 40 }, { 0, false, 100 }, { 1000000, true, 20 },
	};

	(void)state;
	for (unsigned int i = 0; i < 8; i++)
		for (uint32_t seed = 1; seed <= 40; seed++)
			play(&habits[i], seed);
}

static void take_all(struct rig *rig, struct round *rd, unsigned int stream, uint64_t *pages)
{
	struct round_piece p;

	while (round_take(rd, stream, UINT64_MAX, &p, &rig->e) > 0)
		for (unsigned int i = 0; i < p.nr; i++)
			*pages += p.runs[i].count;
}

static void begin(struct rig *rig, struct round *rd, uint32_t number)
{
	rig->stripes.round = number;
	round_begin(rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, &rig->stripes);
}

/* One stream has sent all of it: the other gets nothing until that is acknowledged, and then what still waits. */
static void what_waits_is_stolen_once_it_may(void **state)
{
	struct rig *rig = *state;
	uint64_t first = 0, second = 0;
	struct round_piece p;
	struct round rd;

	rig_write_run(rig, 0, 2048, 1);
	begin(rig, &rd, 1);
	take_all(rig, &rd, 0, &first);
	round_end(&rd);
	assert_int_equal(first, 2048);
	rig_write_run(rig, 0, 2048, 2);
	begin(rig, &rd, 2);
	take_all(rig, &rd, 1, &second);
	assert_int_equal(second, 0);
	/* The first sends a piece of it, and with that it keeps the rest of that stripe. */
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 1);
	atomic_store(&rig->stripes.acked, 1);
	take_all(rig, &rd, 1, &second);
	assert_int_equal(second + p.runs[0].count, 2048);
	first = 0;
	take_all(rig, &rd, 0, &first);
	assert_int_equal(first, 0);
	round_end(&rd);
}

/* A round that is cut: what waits for a stream is dirty still, and goes with the next one. */
static void a_cut_round_loses_nothing(void **state)
{
	struct rig *rig = *state;
	uint64_t pages = 0, all = 0;
	struct round rd;

	rig_write_run(rig, 100, 1000, 1);
	begin(rig, &rd, 1);
	take_all(rig, &rd, 0, &pages);
	round_end(&rd);
	rig_write_run(rig, 100, 1000, 2);
	begin(rig, &rd, 2);
	take_all(rig, &rd, 1, &all);	/* all of it waits for stream 0 */
	round_cut(&rd);
	take_all(rig, &rd, 0, &all);
	assert_int_equal(all, 0);
	assert_int_equal(round_taken(&rd), 0);
	round_end(&rd);
	begin(rig, &rd, 3);
	take_all(rig, &rd, 0, &all);
	assert_int_equal(all, 1000);
	round_end(&rd);
}

/* Two streams share one stripe, page by page; but not while the first has something of it under way. */
static void the_last_round_binds_no_stripe(void **state)
{
	struct rig *rig = *state;

	for (uint32_t acked = 0; acked < 2; acked++) {
		uint64_t pages[2] = { 0, 0 }, sent = 0;
		struct round_piece p;
		struct round rd;

		atomic_store(&rig->stripes.acked, 0);
		rig_write_run(rig, 0, STRIPE_PAGES, 1);
		begin(rig, &rd, 1);
		take_all(rig, &rd, 0, &sent);
		round_end(&rd);
		assert_int_equal(sent, STRIPE_PAGES);
		atomic_store(&rig->stripes.acked, acked);
		rig_write_run(rig, 0, STRIPE_PAGES, 2);
		rig->stripes.round = 2;
		round_begin(&rd, &rig->src, &rig->source, ROUND_LAST, NULL, &rig->stripes);
		rd.spread = true;
		for (unsigned int i = 0, ended = 0; ended < 2; i++) {
			if (round_take(&rd, i % 2, UINT64_MAX, &p, &rig->e) > 0) {
				ended = 0;
				pages[i % 2] += p.runs[0].count;
			} else {
				ended++;
			}
		}
		round_end(&rd);
		assert_int_equal(pages[0] + pages[1], STRIPE_PAGES);
		/* To a piece. */
		assert_in_range(pages[0], acked ? STRIPE_PAGES / 2 - 3 : STRIPE_PAGES, acked ? STRIPE_PAGES / 2 + 3 : STRIPE_PAGES);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(the_newest_bytes_win),
	cmocka_unit_test_setup_teardown(what_waits_is_stolen_once_it_may, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_cut_round_loses_nothing, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_last_round_binds_no_stripe, rig_setup, rig_teardown),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
