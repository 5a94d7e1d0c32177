// SPDX-License-Identifier: GPL-2.0-only
/* Pages that are sent again as what has changed of them, over streams with the receiver's at the other end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <cmocka.h>

#include "delta_rig.h"

static void every_round_arrives_by(const char *compress, unsigned int streams)
{
	struct rig *rig = delta_rig(compress, ROOM);
	uint32_t seed = streams;
	struct round_count sum = { .data_pages = 0 };

	rig->delta_always = !strcmp(compress, "off");
	begin(rig, streams, &seed);
	for (unsigned int round = 0; round < 6; round++) {
		change_some(rig, 700, &seed);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		round_count_add(&sum, &rig->count);
	}
	change_some(rig, 700, &seed);
	the_rest(rig);
	assert_in_range(rig->count.delta_pages, 100, 700);
	assert_in_range(rig->count.unchanged_pages, 10, 200);
	assert_in_range(sum.delta_pages, 1000, sum.data_pages - 1);
	assert_in_range(sum.delta_bytes, sum.delta_pages * WIRE_PART, sum.delta_pages * 4 * WIRE_PART);
	assert_in_range(sum.page_bytes, 1, sum.delta_bytes + (sum.data_pages - sum.delta_pages) * PAGE_BYTES + sum.delta_pages);
	assert_true(sum.unchanged_pages > 100 && sum.zero_pages && sum.same_pages);
	rig_free(rig);
}

/* Each codec, each way to read and to write. */
static void every_round_arrives(void **state)
{
	static const char *const how[] = { "lz4", "zstd", "zlib", "off" };

	(void)state;
	for (unsigned int maps = 0; maps < 2 * MAPS_THERE; maps++) {
		map_here = maps & 1;
		map_there = maps & 2;
		for (unsigned int i = 0; i < 4; i++)
			every_round_arrives_by(how[i], i + maps % 2 * 3 + 1);
	}
	map_here = map_there = false;
}

struct changer {
	struct rig *rig;
	atomic_bool stop;
	pthread_t thread;
};

static void *changer_main(void *arg)
{
	static const char *const ways[] = { "lz4", "off", "zstd:3", "auto", "zlib" };
	struct changer *c = arg;

	for (unsigned int i = 0; !atomic_load(&c->stop); i++) {
		choose(c->rig, ways[i % 5]);
		nap(1);
	}
	return NULL;
}

/* godwit set --compress: pages get hashes in some frames, and are compared in all. */
static void the_codec_changes_among_parts(void **state)
{
	struct rig *rig = delta_rig("lz4", ROOM);
	struct changer c = { .rig = rig };
	struct round_count sum = { .data_pages = 0 };
	uint64_t packed = 0;
	uint32_t seed = 6;

	(void)state;
	begin(rig, 3, &seed);
	assert_int_equal(pthread_create(&c.thread, NULL, changer_main, &c), 0);
	for (unsigned int round = 0; round < 15; round++) {
		change_some(rig, 1000, &seed);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		round_count_add(&sum, &rig->count);
	}
	atomic_store(&c.stop, true);
	pthread_join(c.thread, NULL);
	for (unsigned int i = 0; i < CODECS; i++)
		packed += sum.packed_pages[i];
	assert_in_range(sum.delta_pages, 4000, sum.data_pages - 1);
	assert_in_range(packed, 1, sum.data_pages - 1);
	the_rest(rig);
	rig_free(rig);
}

/* Memory of a process, as QEMU's own. */
static void into_a_process(void **state)
{
	struct rig *rig = delta_rig("zstd", ROOM);
	struct ram_block *b = &rig->dst.blocks[0];
	int fd = b->fd;
	uint32_t seed = 5;

	(void)state;
	ram_writer_close(&rig->place);
	b->fd = -1;
	b->hva = (uint64_t)(uintptr_t)rig->there;
	b->pid = getpid();
	b->pidfd = (int)syscall(SYS_pidfd_open, b->pid, 0);
	assert_int_equal(ram_process_open(b, &rig->e), 0);
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &rig->e), 0);
	begin(rig, 3, &seed);
	for (unsigned int round = 0; round < 3; round++) {
		change_some(rig, 700, &seed);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
	}
	assert_true(rig->count.delta_pages > 100);
	change_some(rig, 700, &seed);
	the_rest(rig);
	ram_block_close(b);
	close(b->pidfd);
	b->fd = fd;
	rig_free(rig);
}

#define FULL	((FRAME_BYTES - PAGE_BYTES) / WIRE_PART + 1)

/* A byte of each page: more pages in a frame than it could hold whole, and no more than it has room to describe. */
static void many_pages_fit_into_a_frame(void **state)
{
	struct rig *rig = delta_rig("off", ROOM);
	uint32_t seed = 9;
	uint64_t sent, frames;

	(void)state;
	rig->delta_always = true;
	begin(rig, 1, &seed);
	for (unsigned int odd = 0; odd < 2; odd++) {
		for (uint64_t page = 0; page < PAGES; page += 1 + odd) {
			rig->ram[page * PAGE_BYTES + 512 * (page % 8)]++;
			wrote(rig, page);
		}
		sent = send_streams_sent(rig->streams);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		sent = send_streams_sent(rig->streams) - sent;
		assert_int_equal(rig->count.delta_pages, PAGES / (1 + odd));
		assert_int_equal(rig->count.delta_bytes, rig->count.delta_pages * WIRE_PART);
		/* A frame is full when a whole page may not fit. There is an extent for each run, and the end of the round. */
		frames = (rig->count.delta_pages - 1) / FULL + 1;
		assert_int_equal(sent, rig->count.delta_pages * (WIRE_PART + 1) + frames * (WIRE_HEADER + WIRE_PACKED_HEAD) +
				 (odd ? rig->count.delta_pages : frames) * WIRE_EXTENT + WIRE_HEADER);
	}
	the_rest(rig);
	rig_free(rig);
}

/* Pages from the mapping and copies take turns in a frame: those with hashes, and those that get none; in runs of two. */
static void whole_pages_stand_between(void **state)
{
	uint32_t seed = 3;
	struct rig *rig;

	(void)state;
	for (unsigned int map = 0; map < 2; map++) {
		map_here = map;
		rig = delta_rig("off", ROOM);
		rig->delta_always = true;
		rig_connect(rig, engine, engine, 1, 0);
		for (uint64_t page = 1; page < PAGES; page += 3)
			fill(rig, page, &seed, true);
		rig_round(rig, ROUND_PRECOPY);
		send_streams_free(rig->streams);
		receive_streams_free(rig->receiving);
		rig->base = rig->rounds;
		rig->delta_always = false;
		rig_connect(rig, engine, engine, 1, 0);
		for (unsigned int round = 0; round < 3; round++) {
			for (uint64_t page = 0; page < PAGES; page++) {
				if (page % 3 == 2)
					continue;
				if (page % 3)
					rig->ram[page * PAGE_BYTES + next_random(&seed) % PAGE_BYTES]++;
				else
					fill(rig, page, &seed, true);
				wrote(rig, page);
			}
			rig_round(rig, ROUND_PRECOPY);
			rig_assert_equal(rig);
			assert_int_equal(rig->count.delta_pages, PAGES / 3);
		}
		the_rest(rig);
		rig_free(rig);
	}
	map_here = false;
}

/* Where frames are not packed, nothing is noted; and a bound is one. */
static void a_fast_link_pays_nothing(void **state)
{
	static const struct { const char *compress; uint64_t memory; unsigned int pages; } cases[] = {
		{ "off", ROOM, 0 }, { "lz4", 0, 0 }, { "lz4", 4 * DELTA_STRIPE_BYTES, 4 * DELTA_STRIPE_PAGES },
	};

	(void)state;
	for (unsigned int c = 0; c < 3; c++) {
		struct rig *rig = delta_rig(cases[c].compress, cases[c].memory);
		unsigned int known = 0;
		uint32_t seed = 2;

		begin(rig, 2, &seed);
		for (uint64_t page = 0; page < PAGES; page++) {
			known += delta_takes(rig->delta, 0, page, false);
			rig->ram[page * PAGE_BYTES]++;
			wrote(rig, page);
		}
		assert_int_equal(known, cases[c].pages);
		rig_round(rig, ROUND_PRECOPY);
		assert_int_equal(rig->count.delta_pages, cases[c].pages);
		assert_int_equal(rig->count.unchanged_pages, 0);
		the_rest(rig);
		rig_free(rig);
	}
}

/**
 * struct writer - a vCPU that writes the same pages over and over, each time all of it, and remembers that
 */
struct writer {
	struct rig *rig;
	atomic_bool stop;
	pthread_t thread;
};

#define HOT	48u

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	uint32_t seed = 1;

	while (!atomic_load(&w->stop)) {
		uint64_t page = 64 * (next_random(&seed) % 4) + next_random(&seed) % HOT;

		/* One of two contents, so that an older one comes back: what was hashed and not sent would be missed. */
		memset(w->rig->ram + page * PAGE_BYTES, 1 + (int)(next_random(&seed) % 2), PAGE_BYTES - 64);
		w->rig->log[page] = true;
	}
	return NULL;
}

/* The guest writes while its pages are read, from the file or from a mapping. */
static void a_busy_guest_arrives(void **state)
{
	(void)state;
	for (unsigned int map = 0; map < 2; map++) {
		struct rig *rig;
		struct writer w;
		uint32_t seed = 1;

		map_here = map;
		for (unsigned int turn = 0; turn < 6; turn++) {
			rig = delta_rig("lz4", ROOM);
			w = (struct writer) { .rig = rig };
			begin(rig, 2, &seed);
			assert_int_equal(pthread_create(&w.thread, NULL, writer_main, &w), 0);
			for (unsigned int round = 0; round < 60; round++) {
				rig_harvest(rig);
				assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
			}
			atomic_store(&w.stop, true);
			pthread_join(w.thread, NULL);
			assert_int_equal(receive_streams_wait_round(rig->receiving, rig->rounds, false, NULL, &rig->e), 0);
			atomic_store(&rig->stripes.acked, rig->rounds);
			rig_harvest(rig);
			the_rest(rig);
			rig_free(rig);
		}
	}
	map_here = false;
}

/* No member is left out. */
static void counts_add_up(void **state)
{
	struct round_count sum = { .data_pages = 0 }, part;
	uint64_t members[ROUND_COUNTS];

	(void)state;
	for (unsigned int i = 0; i < ROUND_COUNTS; i++)
		members[i] = 100 + i;
	memcpy(&part, members, sizeof(part));
	round_count_add(&sum, &part);
	assert_memory_equal(&sum, &part, sizeof(sum));
	round_count_add(&sum, &part);
	round_count_subtract(&sum, &part);
	assert_memory_equal(&sum, &part, sizeof(sum));
	assert_int_equal(round_count_page(&(struct round_count) { .data_pages = 100, .unchanged_pages = 300, .page_bytes = 4000 }), 10);
	assert_true(round_count_page(&(struct round_count) { .unchanged_pages = 300 }) > 0);
	assert_int_equal(round_count_page(&(struct round_count) { .zero_pages = 300 }), 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(counts_add_up),
	cmocka_unit_test(every_round_arrives), cmocka_unit_test(the_codec_changes_among_parts),
	cmocka_unit_test(into_a_process), cmocka_unit_test(many_pages_fit_into_a_frame),
	cmocka_unit_test(whole_pages_stand_between), cmocka_unit_test(a_fast_link_pays_nothing),
	cmocka_unit_test(a_busy_guest_arrives),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
