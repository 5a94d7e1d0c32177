// SPDX-License-Identifier: GPL-2.0-only
/* A migration on paper, against what can be worked out by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "estimate/estimate.h"
#include "page/page.h"
#include "plan/converge.h"
#include "round/round.h"
#include "wire/wire.h"

#define S	1000000000ull
#define MIB	(1ull << 20)
#define PAGE	(PAGE_BYTES + WIRE_EXTENT)

/* The part of the downtime that is not RAM, and with these links most of it. */
static uint64_t fixed(uint64_t rate, uint64_t rtt_ns)
{
	struct blackout b = { .rate = rate, .rtt_ns = rtt_ns, .ram_pages = 1u << 20 };

	return converge_fixed(&b);
}

static struct estimate play(const struct curve *c, uint64_t allocated, uint64_t zero, uint64_t rate)
{
	struct estimate_in in = {
		.curve = c, .content = { allocated, zero, .n = 0 }, .rate = rate, .limit_ns = fixed(rate, 0) + 280000000, .max_rounds = 10,
	};
	struct estimate out;

	estimate(&in, &out);
	return out;
}

/* 100 pages a second, for ever new ones. */
static const struct curve steady = { .n = 2, .points = { { S / 2, 50 }, { S, 100 } }, .total_pages = 1u << 20 };
/* The same at first, but 150 pages are all that it writes. */
static const struct curve small_set = {
	.n = 3, .points = { { S, 100 }, { 2 * S, 150 }, { 4 * S, 150 } }, .total_pages = 1u << 20,
};
static const struct curve idle = { .n = 1, .points = { { S, 0 } }, .total_pages = 1u << 20 };

static void curve_between_and_behind_its_points(void **state)
{
	(void)state;
	assert_float_equal(curve_pages(&steady, 0), 0, 1e-6);
	assert_float_equal(curve_pages(&steady, S / 4), 25, 1e-6);
	assert_float_equal(curve_pages(&steady, S * 3 / 4), 75, 1e-6);
	assert_float_equal(curve_pages(&steady, 100 * S), 10000, 1e-3);
	assert_float_equal(curve_pages(&steady, 1000000 * S), 1048576, 1e-6);
	assert_float_equal(curve_pages(&small_set, 3 * S / 2), 125, 1e-6);
	assert_float_equal(curve_pages(&small_set, 1000 * S), 150, 1e-6);
	assert_float_equal(curve_pages(&idle, 1000 * S), 0, 1e-6);
}

static void an_idle_guest_goes_once(void **state)
{
	struct estimate out = play(&idle, 1000, 200, 800 * PAGE);

	(void)state;
	assert_true(out.converges);
	assert_int_equal(out.rounds, 2);
	assert_int_equal(out.bytes, 800 * PAGE);
	assert_int_equal(out.pending_pages, 0);
	assert_int_equal(out.downtime_ns, fixed(800 * PAGE, 0));
	assert_int_equal(out.total_ns, S + out.downtime_ns);
}

/*
 * 200 pages a second go through, 100 are written: each round is half of the one before. 1600 pages: 8 s, 800 pending; 4 s,
 * 400; 2 s, 200; 1 s, 100; 0.5 s, 50: 250 ms, within the limit. Two rounds more: 12 are less than a quarter of the rest.
 */
static void rounds_halve(void **state)
{
	struct estimate out = play(&steady, 1600, 0, 200 * PAGE);

	(void)state;
	assert_true(out.converges);
	assert_int_equal(out.rounds, 5 + 2 + 1);
	assert_in_range(out.bytes, (1600 + 800 + 400 + 200 + 100 + 50 + 25 + 12) * PAGE - 2 * PAGE,
			(1600 + 800 + 400 + 200 + 100 + 50 + 25 + 12) * PAGE);
	assert_in_range(out.total_ns - fixed(200 * PAGE, 0), 15900 * S / 1000, 15950 * S / 1000);
}

static void a_small_set_is_sent_again_and_again(void **state)
{
	struct estimate out = play(&small_set, 1600, 0, 100 * PAGE);

	(void)state;
	assert_false(out.converges);
	assert_int_equal(out.rounds, 10);
	assert_in_range(out.pending_pages, 90, 150);
	out = play(&small_set, 1600, 0, 1000 * PAGE);
	assert_true(out.converges);
}

/* 8 s of a round leave 800 pages, which take 4 s more; the guest waits for none of them before it runs. */
static void postcopy_waits_for_no_page(void **state)
{
	struct estimate out = play(&steady, 1600, 0, 200 * PAGE);

	(void)state;
	assert_in_range(out.postcopy.owed_pages, 798, 800);
	assert_int_equal(out.postcopy.downtime_ns, fixed(200 * PAGE, 0));
	assert_in_range(out.postcopy.after_ns, 3990 * S / 1000, 4 * S);
	assert_int_equal(out.postcopy.total_ns, 8 * S + out.postcopy.downtime_ns + out.postcopy.after_ns);
	out = play(&idle, 1000, 200, 800 * PAGE);
	assert_int_equal(out.postcopy.owed_pages + out.postcopy.after_ns, 0);
}

/* Pages that are cleared late in a round are written to for less long. */
static void what_is_sent_late_is_dirty_less(void **state)
{
	uint64_t pages = 4 * CLEAR_PAGES, rate = pages / 4 * PAGE;
	struct estimate_in in = {
		.curve = &steady, .content = { pages, .n = 0 }, .rate = rate, .limit_ns = UINT64_MAX, .max_rounds = 1,
	};
	struct estimate out;

	(void)state;
	estimate(&in, &out);
	/* 4 s in 4 parts: each quarter is exposed for 4, 3, 2, 1 s. */
	assert_in_range(out.pending_pages, 248, 250);
}

static void the_way_costs_time(void **state)
{
	struct estimate_in in = {
		.curve = &idle, .content = { .n = 0 }, .rate = MIB, .rtt_ns = S / 10, .limit_ns = S, .max_rounds = 3,
	};
	struct estimate out;

	(void)state;
	estimate(&in, &out);
	assert_int_equal(out.downtime_ns, fixed(MIB, S / 10));
	assert_int_equal(out.downtime_ns, fixed(MIB, 0) + S / 20);
	assert_int_equal(out.total_ns, out.downtime_ns + S / 10);
}

/* A device state that is saved spares QEMU the walk through all RAM. */
static void test_saved_device_state(void **state)
{
	struct estimate_in in = {
		.curve = &steady, .content = { 1000, .n = 0 }, .rate = 100 * MIB, .limit_ns = S, .max_rounds = 10,
	};
	struct estimate walked, saved;

	(void)state;
	estimate(&in, &walked);
	in.save_mode = true;
	estimate(&in, &saved);
	assert_int_equal(walked.downtime_ns - saved.downtime_ns, steady.total_pages * PAGE_BYTES / (1u << 30) * 75000);
}

static struct estimate play_streams(const struct curve *c, uint64_t rate, unsigned int streams, unsigned int threads)
{
	/* As auto has them: a page in bytes, and in the time of one CPU. */
	const struct estimate_in in = {
		.curve = c, .rate = rate, .limit_ns = fixed(rate, 0) + 280000000, .max_rounds = 10,
		.streams = streams, .pack_threads = threads,
		.content = {
			.allocated_pages = 2000, .zero_pages = 300, .same_pages = 100, .n = 4,
			.packed = {
				{ { NULL, 0 }, PAGE_BYTES, 0 }, { { &codec_lz4, 1 }, 1984, S / 4000 },
				{ { &codec_zstd, 1 }, 1184, S / 2000 }, { { &codec_zstd, 3 }, 1084, S / 500 },
			},
		},
	};
	struct estimate out;

	estimate(&in, &out);
	return out;
}

static struct estimate play_packed(const struct curve *c, uint64_t rate, unsigned int threads)
{
	return play_streams(c, rate, 16, threads);
}

/* What is slowest decides, the link or the CPUs that pack: 1600 pages with data each time. */
static void what_is_slowest_decides(void **state)
{
	struct estimate out;

	(void)state;
	/* 200 KB/s: zstd:3 makes 500 pages a second, and the link takes 182 of them. */
	out = play_packed(&idle, 200 * 1000, 1);
	assert_ptr_equal(out.choice.codec, &codec_zstd);
	assert_int_equal(out.choice.level, 3);
	assert_int_equal(out.bytes, 1600 * 1100);
	assert_in_range(out.total_ns - out.downtime_ns, 8800 * S / 1000 - 1000000, 8800 * S / 1000 + 1000000);
	/* 2 MB/s: 1818 of them, but only 500 are made; of zstd:1 it takes 1667. */
	out = play_packed(&idle, 2000 * 1000, 1);
	assert_int_equal(out.choice.level, 1);
	assert_ptr_equal(out.choice.codec, &codec_zstd);
	assert_int_equal(out.bytes, 1600 * 1200);
	assert_in_range(out.total_ns - out.downtime_ns, 959 * S / 1000, 961 * S / 1000);
	/* Four CPUs make 2000 of zstd:3. */
	out = play_packed(&idle, 2000 * 1000, 4);
	assert_int_equal(out.choice.level, 3);
	/* But no more of them than there are streams. */
	out = play_streams(&idle, 2000 * 1000, 1, 4);
	assert_int_equal(out.choice.level, 1);
	/* 1 GB/s: nothing is as fast as to pack nothing. */
	out = play_packed(&idle, 1000 * 1000 * 1000, 2);
	assert_null(out.choice.codec);
	assert_int_equal(out.bytes, 1600 * PAGE);
	/* The CPU is slowest: 4000 pages a second of lz4 on a link that takes 5000, and 2433 raw ones. */
	out = play_packed(&idle, 10000 * 1000, 1);
	assert_ptr_equal(out.choice.codec, &codec_lz4);
	assert_in_range(out.total_ns - out.downtime_ns, 399 * S / 1000, 401 * S / 1000);
}

/* With the guest stopped as well: what is left goes at the speed of the rounds, not at that of the link. */
static void the_downtime_knows_what_is_slowest(void **state)
{
	static const struct curve busy = { .n = 2, .points = { { S / 2, 1000 }, { S, 2000 } }, .total_pages = 1u << 20 };
	struct estimate out = play_packed(&busy, 10000 * 1000, 1);
	uint64_t ram_ns = out.downtime_ns - fixed(4000 * 2000, 0);

	(void)state;
	assert_ptr_equal(out.choice.codec, &codec_lz4);
	assert_true(out.converges && out.pending_pages > 50);
	assert_in_range(ram_ns, out.pending_pages * S / 4000 - 1000, out.pending_pages * S / 4000 + 1000);
}

/* A guest that is too fast for the link moves all the same, where its pages get small. */
static void packed_pages_converge(void **state)
{
	struct estimate raw = play(&steady, 2000, 0, 90 * PAGE), out = play_packed(&steady, 90 * PAGE, 1);

	(void)state;
	assert_false(raw.converges);
	assert_true(out.converges);
	assert_true(out.bytes < raw.bytes / 2);
}

static struct estimate play_reused(const struct curve *c, uint64_t reused, double hash_ns, unsigned int streams, uint64_t entries)
{
	/* Where a CPU is slower than the link the fixed part takes longer, too. */
	const struct estimate_in in = {
		.curve = c, .rate = 100 * PAGE, .limit_ns = fixed(100 * PAGE, 0) + 280000000 + (hash_ns > 0 ? 10 * S : 0),
		.max_rounds = 10, .streams = streams, .reuse_entries = entries,
		.content = { .allocated_pages = 1600, .zero_pages = 500, .same_pages = 100, .reused_pages = reused,
			     .reference_bytes = 4, .hash_ns = hash_ns },
	};
	struct estimate out;

	estimate(&in, &out);
	return out;
}

/* Of 1000 pages 900 go as 4 bytes each, in the time of 100 pages and of 3600 bytes. */
static void references_are_short(void **state)
{
	struct estimate out = play_reused(&idle, 900, 0, 2, 0);
	const double refer_s = 3600. / (100 * PAGE);

	(void)state;
	assert_int_equal(out.reused_bytes, 3600);
	assert_int_equal(out.bytes, 100 * PAGE + 3600);
	assert_float_equal((double)(out.total_ns - out.downtime_ns) / S, 1 + refer_s, 1e-6);
	/* The receiver says 16 bytes for each page of its file before. */
	out = play_reused(&idle, 900, 0, 2, 5000);
	assert_float_equal((double)(out.total_ns - out.downtime_ns) / S, 1 + refer_s + 80000. / (100 * PAGE), 1e-6);
	assert_float_equal((double)(out.postcopy.total_ns - out.postcopy.downtime_ns) / S, 1 + refer_s + 80000. / (100 * PAGE), 1e-6);
	out = play_reused(&idle, 0, 0, 2, 0);
	assert_int_equal(out.reused_bytes, 0);
	assert_int_equal(out.bytes, 1000 * PAGE);
}

/* A page takes 20 ms of a CPU to look up, and 10 on the link: with one CPU that is slower, with four it is not. */
static void to_look_up_costs_cpu(void **state)
{
	struct estimate out = play_reused(&idle, 900, 20e6, 1, 0);

	(void)state;
	assert_float_equal((double)(out.total_ns - out.downtime_ns) / S, 1000 * .02, 1e-6);
	out = play_reused(&idle, 900, 20e6, 4, 0);
	assert_float_equal((double)(out.total_ns - out.downtime_ns) / S, 900 * .005 + 100 * .01, 1e-6);
}

/*
 * 50 pages are written each second. Without the file the first round takes 10 s, with it one. What it has written then is new, and goes whole.
 */
static void what_the_guest_writes_is_not_reused(void **state)
{
	static const struct curve slow = { .n = 2, .points = { { S / 2, 25 }, { S, 50 } }, .total_pages = 1u << 20 };
	struct estimate with = play_reused(&slow, 900, 0, 2, 0), without = play_reused(&slow, 0, 0, 2, 0);

	(void)state;
	assert_true(with.converges && without.converges);
	assert_in_range(with.bytes, (100 + 50 + 25 + 12) * PAGE + 3600 - 2 * PAGE, (100 + 52 + 26 + 13) * PAGE + 3600);
	assert_true(with.bytes < without.bytes / 6);
	assert_true(with.postcopy.owed_pages < 55 && without.postcopy.owed_pages > 490);
}

/* Half of a per cent over 80 ms: what is stopped for takes up to a round trip longer, and nothing else does. */
static void what_is_lost_costs_time(void **state)
{
	struct estimate_in in = {
		.curve = &idle, .content = { 1000, 0, .n = 0 }, .rate = 12500000, .limit_ns = S, .max_rounds = 10, .streams = 16,
		.rtt_ns = 80000000, .loss.segment = 1448,
	};
	struct estimate without, with;

	(void)state;
	estimate(&in, &without);
	in.loss.share = 0.005;
	estimate(&in, &with);
	assert_int_equal(without.loss_ns, 0);
	assert_in_range(with.loss_ns, 40000000, 80000000);
	assert_int_equal(with.downtime_ns - with.loss_ns, without.downtime_ns);
	assert_int_equal(with.total_ns - with.loss_ns, without.total_ns);
	assert_int_equal(with.postcopy.downtime_ns - with.loss_ns, without.postcopy.downtime_ns);
	assert_int_equal(with.bytes, without.bytes);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_is_lost_costs_time),
	cmocka_unit_test(references_are_short),
	cmocka_unit_test(to_look_up_costs_cpu),
	cmocka_unit_test(what_the_guest_writes_is_not_reused),
	cmocka_unit_test(what_is_slowest_decides),
	cmocka_unit_test(the_downtime_knows_what_is_slowest),
	cmocka_unit_test(packed_pages_converge),
	cmocka_unit_test(test_saved_device_state),
	cmocka_unit_test(curve_between_and_behind_its_points),
	cmocka_unit_test(an_idle_guest_goes_once),
	cmocka_unit_test(rounds_halve),
	cmocka_unit_test(a_small_set_is_sent_again_and_again),
	cmocka_unit_test(postcopy_waits_for_no_page),
	cmocka_unit_test(what_is_sent_late_is_dirty_less),
	cmocka_unit_test(the_way_costs_time),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
