// SPDX-License-Identifier: GPL-2.0-only
/* A round that leaves out what the guest writes again: such pages are not sent, and stay dirty, and no write is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define PAGES	20480u	/* more than are cleared at a time */

#include "dirty/rewritten.h"
#include "ram_rig.h"

static struct rewritten watched;

static int setup(void **state)
{
	struct rig *rig = rig_new();

	watched = (struct rewritten) { .vm = NULL };
	assert_int_equal(rewritten_init(&watched, &rig->src, &rig->e), 0);
	*state = rig;
	return 0;
}

static int setup_connected(void **state)
{
	setup(state);
	rig_connect(*state, &engine_poll, &engine_poll, 2, 0);
	return 0;
}

static int teardown(void **state)
{
	rewritten_free(&watched);
	return rig_teardown(state);
}

static void begin(struct rig *rig, struct round *rd)
{
	round_begin(rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, NULL);
	rd->rewritten = &watched;
}

static bool is_dirty(struct rig *rig, uint64_t page)
{
	return rig->source.map[0][page / 64] >> page % 64 & 1;
}

/* What is in the piece, as the source has it now. */
static uint64_t copy(struct rig *rig, const struct round_piece *p, uint8_t *taken)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < p->nr; pages += p->runs[i++].count)
		for (uint64_t at = p->runs[i].first; at < p->runs[i].first + p->runs[i].count; at++) {
			memcpy(rig->there + at * PAGE_BYTES, rig->ram + at * PAGE_BYTES, PAGE_BYTES);
			taken[at]++;
		}
	return pages;
}

/* By a vCPU and by others, in what the walk has found already, in what was sent, and in one part or two. */
static void written_again_is_left_out(void **state)
{
	struct rig *rig = *state;

	for (unsigned int parts = 1; parts <= 2; parts++) {
		uint8_t taken[PAGES] = { 0 };
		struct round_piece p;
		struct round rd;

		rig_write_run(rig, 0, 6000, 1);
		/* Runs of one page: the walk finds many ahead. */
		for (uint64_t at = 6000; at < 9000; at += 2)
			rig_write(rig, at, 1);
		begin(rig, &rd);
		assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 1);
		assert_in_range(copy(rig, &p, taken), 1, 64);
		for (uint64_t at = 4; at < 6000; at += 7)
			rig_dirty(rig, at, 2, at % 2);
		for (uint64_t at = 6002; at < 9000; at += 6)
			rig_dirty(rig, at, 2, at % 4);
		rig_dirty(rig, 15000, 2, true);		/* was clean */
		assert_int_equal(round_look(&rd, &rig->e), 0);
		if (parts == 2) {
			round_cut(&rd);
			assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 0);
			round_end(&rd);
			begin(rig, &rd);
		}
		while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0)
			copy(rig, &p, taken);
		round_end(&rd);
		for (uint64_t at = 0; at < PAGES; at++)
			assert_false(is_dirty(rig, at));
		/* Of what was found, the clean page was not to be sent, and some had been. */
		assert_int_equal(watched.left_out, 6000 / 7 + 3000 / 6 - 64 / 7);
		rewritten_release(&watched, &rig->source);
		assert_int_equal(watched.left_out, 0);
		for (uint64_t at = 0; at < PAGES; at++) {
			const bool again = at == 15000 ||
					   (at < 9000 && (at < 6000 ? at % 7 == 4 : (at - 6000) % 6 == 2));
			const bool first = at < 6000 || (at < 9000 && at % 2 == 0);

			assert_int_equal(is_dirty(rig, at), again);
			/* Each once; what was taken before the look, too. */
			assert_int_equal(taken[at], first && (!again || at < 64));
		}
		memset(rig->source.map[0], 0, PAGES / 8);
		for (uint64_t at = 0; at < PAGES; at++)
			rig->log[at] = rig->noted[at] = false;
	}
}

/* Of pages that the round has not cleared yet the log tells that they were written, and means the first time. */
static void not_yet_cleared_is_sent(void **state)
{
	struct rig *rig = *state;
	uint8_t taken[PAGES] = { 0 };
	struct round_piece p;
	struct round rd;

	rig_write_run(rig, 0, PAGES, 1);
	begin(rig, &rd);
	assert_int_equal(round_look(&rd, &rig->e), 0);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 1);
	copy(rig, &p, taken);
	assert_int_equal(round_look(&rd, &rig->e), 0);
	while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0)
		copy(rig, &p, taken);
	round_end(&rd);
	rewritten_release(&watched, &rig->source);
	for (uint64_t at = 0; at < PAGES; at++)
		assert_true(taken[at] == 1 && !is_dirty(rig, at));
	assert_int_equal(rig->harvests, 2);
}

/* Every page has to be sent: the first piece is. */
static uint64_t begin_with_all(struct rig *rig, struct round *rd, uint8_t *taken)
{
	struct round_piece p;

	rig_write_run(rig, 0, PAGES, 1);
	begin(rig, rd);
	assert_int_equal(round_take(rd, 0, UINT64_MAX, &p, &rig->e), 1);
	return copy(rig, &p, taken);
}

/* The round is over: each page was sent, and not written since, or is dirty. */
static void assert_sent_or_dirty(struct rig *rig, const uint8_t *taken)
{
	rewritten_release(&watched, &rig->source);
	for (uint64_t at = 0; at < PAGES; at++)
		assert_int_equal(taken[at] + is_dirty(rig, at), 1);
}

/* Of 2 MiB of which the guest has written a part the rest is sent last; where it writes a few pages, in order. */
static void where_it_writes_comes_last(void **state)
{
	enum { PIECE = 512, FIRST = 2, END = 6, FEW = 8 };	/* pieces */
	struct rig *rig = *state;
	uint8_t taken[PAGES] = { 0 };
	uint64_t late = 0, before;
	struct round_piece p;
	struct round rd;

	before = begin_with_all(rig, &rd, taken);
	for (uint64_t at = FIRST * PIECE; at < END * PIECE; at += 64)
		rig_dirty(rig, at, 2, at % 128);
	for (uint64_t at = FEW * PIECE; at < (FEW + 1) * PIECE; at += 80)
		rig_dirty(rig, at, 2, true);
	assert_int_equal(round_look(&rd, &rig->e), 0);
	/* Written again while it is postponed. */
	rig_dirty(rig, FIRST * PIECE + 1, 3, false);
	assert_int_equal(round_look(&rd, &rig->e), 0);
	while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0) {
		const uint64_t first = p.runs[0].first;

		if (first >= FIRST * PIECE && first < END * PIECE) {
			/* What is written meanwhile is left out, and the rest goes on. */
			if (!late++) {
				assert_int_equal(before, PAGES - (END - FIRST) * PIECE - 7);
				rig_dirty(rig, END * PIECE - 1, 3, true);
				assert_int_equal(round_look(&rd, &rig->e), 0);
			}
		} else {
			assert_int_equal(late, 0);
		}
		before += copy(rig, &p, taken);
	}
	round_end(&rd);
	assert_int_equal(watched.left_out, (END - FIRST) * PIECE / 64 + 7 + 2);
	assert_sent_or_dirty(rig, taken);
}

/* The round is cut while pages are postponed: they are dirty. */
static void a_cut_loses_nothing_postponed(void **state)
{
	struct rig *rig = *state;
	uint8_t taken[PAGES] = { 0 };
	struct round_piece p;
	struct round rd;

	begin_with_all(rig, &rd, taken);
	for (uint64_t at = 1024; at < 2048; at += 16)
		rig_dirty(rig, at, 2, true);
	assert_int_equal(round_look(&rd, &rig->e), 0);
	assert_false(is_dirty(rig, 1025));
	round_cut(&rd);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 0);
	round_end(&rd);
	assert_sent_or_dirty(rig, taken);
}

static uint32_t seed;

static void write_some(struct rig *rig)
{
	for (uint32_t n = next_random(&seed) % 16; n; n--) {
		uint32_t page = next_random(&seed) % PAGES;

		rig_dirty(rig, n % 2 ? page % 20 * 200 : page, (int)(next_random(&seed) % 255) + 1, next_random(&seed) % 3);
	}
}

/* At any moment: writes, looks that succeed or end in the middle, cuts. */
static void no_write_is_lost(void **state)
{
	struct rig *rig = *state;

	seed = 7;
	rig->on_clear = write_some;
	bitmap_set(rig->source.map[0], 0, PAGES);
	for (unsigned int round = 0; round < 240; round++) {
		const bool last = round % 8 == 7;
		uint8_t taken[PAGES] = { 0 };

		for (unsigned int part = 0; part < 3; part++) {
			struct round rd;
			struct round_piece p;

			round_begin(&rd, &rig->src, &rig->source, last ? ROUND_LAST : ROUND_PRECOPY, NULL, NULL);
			if (!last)
				rd.rewritten = &watched;
			while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0) {
				if (!p.hole)
					copy(rig, &p, taken);
				if (last)
					continue;
				write_some(rig);
				rig->harvest_fails = next_random(&seed) % 4 == 0;
				if (next_random(&seed) % 2)
					assert_int_equal(round_look(&rd, &rig->e), rig->harvest_fails ? -EAGAIN : 0);
				if (part < 2 && next_random(&seed) % 32 == 0)
					round_cut(&rd);
			}
			round_end(&rd);
		}
		rewritten_release(&watched, &rig->source);
		if (last)
			rig_assert_equal(rig);
		write_some(rig);
		rig_harvest(rig);
	}
	assert_true(rig->harvests > 100);
}

/* While two streams take: what arrives, and what is dirty afterwards, is all that was written. */
static void streams_take_beside_it(void **state)
{
	struct rig *rig = *state;

	for (unsigned int round = 0; round < 10; round++) {
		struct round rd;

		rig_write_run(rig, 0, PAGES, (int)round + 1);
		rig->stripes.round = ++rig->rounds;
		round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, &rig->stripes);
		rd.rewritten = &watched;
		send_streams_begin(rig->streams, &rd, rig->rounds);
		for (uint64_t at = 0; !send_streams_round_is_over(rig->streams); at = (at + 977) % PAGES) {
			rig_dirty(rig, at, (int)(at % 255) + 1, at % 2);
			assert_int_equal(round_look(&rd, &rig->e), 0);
		}
		assert_int_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
		round_end(&rd);
		assert_int_equal(receive_streams_wait_round(rig->receiving, rig->rounds, false, NULL, &rig->e), 0);
		atomic_store(&rig->stripes.acked, rig->rounds);
		rewritten_release(&watched, &rig->source);
		rig_harvest(rig);
	}
	rig_round(rig, ROUND_LAST);
	rig_assert_equal(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(written_again_is_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(not_yet_cleared_is_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(where_it_writes_comes_last, setup, teardown),
		cmocka_unit_test_setup_teardown(a_cut_loses_nothing_postponed, setup, teardown),
		cmocka_unit_test_setup_teardown(no_write_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(streams_take_beside_it, setup_connected, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
