// SPDX-License-Identifier: GPL-2.0-only
/* Rounds: what arrives is what was written and is allocated, and every page was cleared in the log before it was read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <cmocka.h>

#define PAGES	20480u	/* more than are cleared at a time */

#include "base/clock.h"
#include "net/channel.h"
#include "net/sock.h"
#include "ram_rig.h"

static uint64_t weight(const uint64_t *map)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < PAGES / 64; i++)
		n += (uint64_t)__builtin_popcountll(map[i]);
	return n;
}

static void only_what_was_written_goes_again(void **state)
{
	struct rig *rig = *state;

	for (uint64_t p = 0; p < 500; p++)
		rig_write(rig, p * 2, (int)p % 250 + 1);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->cleared, 500);
	for (uint64_t p = 100; p < 130; p += 3)
		rig_write(rig, p, 77);
	rig->cleared = 0;
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.data_pages, 10);
	assert_int_equal(rig->cleared, 10);
	assert_int_equal(weight(rig->source.map[0]), 0);
	rig_assert_equal(rig);
}

static void a_page_that_becomes_zero_is_zero_there(void **state)
{
	struct rig *rig = *state;

	rig_write(rig, 20, 5);
	rig_write(rig, 21, 6);
	rig_round(rig, ROUND_PRECOPY);
	rig_write(rig, 20, 0);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.zero_pages, 1);
	rig_assert_equal(rig);
}

/* Alternating pages fill a frame's table of extents before its bytes. */
static void many_extents_take_many_frames(void **state)
{
	struct rig *rig = *state;

	for (uint64_t p = 0; p < PAGES; p++)
		if (p % 4 != 3)
			rig_write(rig, p, p % 4 == 1 ? 0 : (p % 97 < 8 ? (int)(p % 97) + 1 : 0));
	rig_round(rig, ROUND_PRECOPY);
	rig_assert_equal(rig);
}

/* A stream without room, which takes nothing, hears whether anything is left for one with room, and changes nothing. */
static int take_beside_a_full_one(struct rig *rig, struct round *rd, struct round_piece *p)
{
	int left = round_take(rd, 1, 0, p, &rig->e), r = round_take(rd, 0, UINT64_MAX, p, &rig->e);

	assert_int_equal(left, r ? ROUND_WAITS : 0);
	return r;
}

/* Each page is in one piece, a piece is not larger than it may be, and what is left is what was not taken. */
static void pieces_are_a_partition(void **state)
{
	static const enum round_kind kinds[] = { ROUND_PRECOPY, ROUND_LATE, ROUND_LAST, ROUND_LAST, ROUND_LAST };
	static const unsigned int most[] = { 1024, 64, 64, 64, 3 };
	struct rig *rig = *state;

	/* Two of the last rounds tell of holes, and one of these is spread. */
	for (unsigned int k = 0; k < 5; k++) {
		uint8_t taken[PAGES] = { 0 };
		unsigned int written = 0, holes = 0, pieces = 0;
		struct round_piece p;
		struct round rd;
		int r;

		for (uint64_t i = 5; i < 19000; i++)
			if (i < 17000 || i % 2 == 0)
				rig_write(rig, i, 1);
		bitmap_set(rig->source.map[0], 19500, 10);	/* written, by the log; not allocated */
		rig->source.unmapped = k >= 3;
		round_begin(&rd, &rig->src, &rig->source, kinds[k], NULL, NULL);
		if (k == 4)
			rd.spread = true;
		for (; (r = take_beside_a_full_one(rig, &rd, &p)) > 0; pieces++) {
			uint64_t pages = 0;

			for (unsigned int i = 0; i < p.nr; pages += p.runs[i++].count)
				for (uint64_t at = p.runs[i].first; at < p.runs[i].first + p.runs[i].count; at++) {
					assert_int_equal(taken[at]++, 0);
					assert_true(kinds[k] == ROUND_LAST || !rig->log[at]);
					assert_false(rig->source.map[0][at / 64] >> at % 64 & 1 && !p.hole);
				}
			*(p.hole ? &holes : &written) += pages;
			assert_true(p.hole || pages <= most[k]);
		}
		round_end(&rd);
		assert_int_equal(r, 0);
		assert_int_equal(written, 16995 + 1000);
		assert_int_equal(holes, k < 2 ? 0 : k == 2 ? 10 : PAGES - written);
		assert_in_range(pieces, written / most[k], written / most[k] * 11 / 10 + 20);
		assert_int_equal(weight(rig->source.map[0]), 10);
	}
}

/* What two harvests running have found comes after all else, and once. */
static void hot_pages_come_last(void **state)
{
	struct rig *rig = *state;
	unsigned int cold = 0, hot = 0;
	struct round_piece p;
	struct round rd;

	rig_write_run(rig, 0, 1000, 1);
	hot_pages_hold(&rig->hot, &rig->source);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.data_pages, 1000);
	rig_write_run(rig, 900, 1100, 2);
	hot_pages_hold(&rig->hot, &rig->source);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, &rig->hot, NULL);
	while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0) {
		for (unsigned int i = 0; i < p.nr; i++) {
			bool is_hot = p.runs[i].first < 1000;

			*(is_hot ? &hot : &cold) += p.runs[i].count;
			assert_true(is_hot ? cold == 1000 : !hot);
		}
	}
	round_end(&rd);
	assert_int_equal(hot, 100);
}

static uint32_t writer_seed;

static void write_some(struct rig *rig)
{
	for (uint32_t n = next_random(&writer_seed) % 16; n; n--) {
		uint32_t page = next_random(&writer_seed) % PAGES;

		/* A few pages all the time, the others now and then. */
		rig_dirty(rig, n % 2 ? page % 20 * 200 : page, (int)(next_random(&writer_seed) % 255) + 1,
			  next_random(&writer_seed) % 3);
	}
}

/* What a late round holds back is never sent in it, and is dirty afterwards, whether it was cut or not. */
static void hot_pages_are_left_by_a_late_round(void **state)
{
	struct rig *rig = *state;

	for (unsigned int cut = 0; cut < 2; cut++) {
		uint64_t pages = 0;
		struct round_piece p;
		struct round rd;

		for (unsigned int i = 0; i < 2; i++) {
			rig_write_run(rig, 100, 50, 1);
			if (i)
				rig_write_run(rig, 1000, 300, 1);
			hot_pages_hold(&rig->hot, &rig->source);
			if (!i)
				hot_pages_release(&rig->hot, &rig->source);
		}
		round_begin(&rd, &rig->src, &rig->source, ROUND_LATE, &rig->hot, NULL);
		while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0) {
			for (unsigned int i = 0; i < p.nr; i++)
				pages += p.runs[i].count;
			assert_true(p.runs[0].first >= 1000);
			if (cut)
				round_cut(&rd);
		}
		assert_int_equal(round_taken(&rd), pages);
		round_end(&rd);
		assert_int_equal(pages, cut ? 64 : 300);
		assert_int_equal(weight(rig->source.map[0]), 350 - pages);
		for (uint64_t at = 100; at < 150; at++)
			assert_true(rig->source.map[0][at / 64] >> at % 64 & 1);
		/* Nothing is hot for what follows. */
		memset(rig->source.map[0], 0, PAGES / 8);
		hot_pages_hold(&rig->hot, &rig->source);
	}
}

/* The guest writes whenever it can: before and after a clear, between the pages that are read. Some rounds are cut. */
static void no_write_is_lost(void **state)
{
	struct rig *rig = *state;

	writer_seed = 5;
	rig->on_clear = write_some;
	bitmap_set(rig->source.map[0], 0, PAGES);
	for (unsigned int round = 0; round < 120; round++) {
		bool last = round % 20 == 19;
		const enum round_kind kind = last ? ROUND_LAST : round % 20 > 14 ? ROUND_LATE : ROUND_PRECOPY;
		struct round rd;
		struct round_piece p;

		if (round && !last)
			hot_pages_hold(&rig->hot, &rig->source);
		round_begin(&rd, &rig->src, &rig->source, kind, last ? NULL : &rig->hot, NULL);
		while (round_take(&rd, 0, UINT64_MAX, &p, &rig->e) > 0) {
			for (unsigned int i = 0; i < p.nr && !p.hole; i++)
				for (uint64_t at = p.runs[i].first; at < p.runs[i].first + p.runs[i].count; at++) {
					memcpy(rig->there + at * PAGE_BYTES, rig->ram + at * PAGE_BYTES, PAGE_BYTES);
					if (!last && at % 50 == 0)
						write_some(rig);
				}
			if (next_random(&writer_seed) % 8 == 0)
				round_cut(&rd);
		}
		round_end(&rd);
		if (last)
			rig_assert_equal(rig);
		write_some(rig);
		rig_harvest(rig);
	}
	assert_true(rig->clears > 100);
}

/*
 * As large as the protocol allows: runs that lie across the end of the buffer, and a zero one. As on tmpfs,
 * and through a mapping, as on hugetlbfs.
 */
static void the_largest_frame_is_placed(struct rig *rig, bool mapped)
{
	static const uint32_t sizes[] = { 1, 100, 3, 15, 15, 15, 15, 15, 15, 15, 15, 15, 20 };
	const unsigned int nr = sizeof(sizes) / sizeof(sizes[0]), zero = 2;
	const struct wire_header h = { .type = WIRE_RAM, .arg = nr, .length = nr * WIRE_EXTENT + WIRE_RAM_MAX };
	uint8_t *body = malloc(h.length), *at = body + nr * WIRE_EXTENT;
	struct ram_writer_count count = { 0, 0, 0 };
	struct ram_scratch scratch;
	struct channel *in;
	int pair[2];
	pid_t child;

	/* As an earlier round. */
	memset(rig->there + zero * 200 * PAGE_BYTES, 7, PAGE_BYTES);
	bitmap_set(rig->place.placed[0], zero * 200, 1);
	for (unsigned int i = 0; i < nr; i++) {
		struct wire_extent x = { .kind = i == zero ? WIRE_ZERO : WIRE_DATA, .pages = sizes[i], .first = i * 200 };

		wire_put_extent(body + i * WIRE_EXTENT, &x);
		for (unsigned int p = 0; p < x.pages && i != zero; p++, at += PAGE_BYTES) {
			rig_write(rig, x.first + p, (int)(p * 7 + i) % 255 + 1);
			memcpy(at, rig->ram + (x.first + p) * PAGE_BYTES, PAGE_BYTES);
		}
	}
	if (mapped)
		rig->place.base[0] = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, rig->dst.blocks[0].fd, 0);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	child = fork();
	if (!child)
		_exit(sock_send(pair[1], body, h.length, deadline_ms(5000)) ? 1 : 0);
	assert_int_equal(channel_new(pair[0], &engine_poll, 5000, &in, &rig->e), 0);
	assert_int_equal(ram_scratch_open(&scratch, &rig->e), 0);
	assert_int_equal(ram_writer_frame(&rig->place, in, &h, &scratch, &count, &rig->e), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(count.data_pages, 256);
	assert_int_equal(count.zero_pages, 3);
	rig_assert_equal(rig);
	ram_scratch_close(&scratch);
	channel_free(in);
	close(pair[1]);
	free(body);
}

static void the_largest_frame_into_a_file(void **state)
{
	the_largest_frame_is_placed(*state, false);
}

static void the_largest_frame_into_a_mapping(void **state)
{
	the_largest_frame_is_placed(*state, true);
}

static void a_page_outside_is_refused(void **state)
{
	struct rig *rig = *state;
	struct wire_extent x = { .kind = WIRE_ZERO, .pages = 2, .first = PAGES - 1 };
	struct wire_header h = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT }, got;
	struct ram_writer_count count = { 0, 0, 0 };
	struct channel *out, *in;
	struct ram_scratch scratch;
	uint8_t body[WIRE_EXTENT];
	int pair[2];

	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], &engine_poll, 5000, &out, &rig->e), 0);
	assert_int_equal(channel_new(pair[1], &engine_poll, 5000, &in, &rig->e), 0);
	wire_put_extent(body, &x);
	assert_int_equal(channel_send(out, &h, body, &rig->e), 0);
	assert_int_equal(channel_recv(in, &got, false, &rig->e), 0);
	assert_int_equal(ram_scratch_open(&scratch, &rig->e), 0);
	assert_int_not_equal(ram_writer_frame(&rig->place, in, &got, &scratch, &count, &rig->e), 0);
	assert_int_equal(rig->e.exit, GW_BAD_PEER);
	ram_scratch_close(&scratch);
	channel_free(out);
	channel_free(in);
}

/* What no stream took stays written, the hot pages that were held back, too; a later round sends it. */
static void a_cut_round_loses_nothing(void **state)
{
	struct rig *rig = *state;
	struct round rd;
	struct round_piece p;

	for (uint64_t i = 0; i < 6000; i++)
		rig_write(rig, i, 1);
	hot_pages_hold(&rig->hot, &rig->source);	/* all are written twice in a row: hot */
	for (uint64_t i = 3000; i < 9000; i++)
		rig_write(rig, i, 2);
	hot_pages_hold(&rig->hot, &rig->source);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, &rig->hot, NULL);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 1);
	round_cut(&rd);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 0);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 0);
	round_end(&rd);
	assert_int_equal(weight(rig->source.map[0]), 9000 - 1024);
	rig_round(rig, ROUND_LAST);
	assert_int_equal(rig->count.data_pages, 9000 - 1024);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(only_what_was_written_goes_again, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(a_page_that_becomes_zero_is_zero_there, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(many_extents_take_many_frames, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(pieces_are_a_partition, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(hot_pages_come_last, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(a_cut_round_loses_nothing, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(hot_pages_are_left_by_a_late_round, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(no_write_is_lost, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(the_largest_frame_into_a_file, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(the_largest_frame_into_a_mapping, rig_setup_connected, rig_teardown),
		cmocka_unit_test_setup_teardown(a_page_outside_is_refused, rig_setup_connected, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
