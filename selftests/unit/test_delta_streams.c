// SPDX-License-Identifier: GPL-2.0-only
/* Pages that are sent again as what has changed of them, over streams with the receiver's at the other end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <cmocka.h>

#include "each_engine.h"
#include "peer/hello.h"
#include "ram_rig.h"
#include "ram/thp.h"

#define ROOM	(64u << 20)

/*
 * Which ends map their RAM. TSan sees that two threads of the receiver write a page, in rounds of which the second came after
 * the ACK of the first, and not that a socket has put them in order: it gets no mapping there.
 */
static bool map_here, map_there;

#ifdef __SANITIZE_THREAD__
#define MAPS_THERE	1u
#else
#define MAPS_THERE	2u
#endif

void *thp_map(const struct ram_block *b, int prot)
{
	bool map = prot & PROT_WRITE ? map_there : map_here;
	void *base = map ? mmap(NULL, b->pages * PAGE_BYTES, prot, MAP_SHARED, b->fd, 0) : NULL;

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static void choose(struct rig *rig, const char *compress)
{
	struct codec_wish wish;
	struct err e = { 0 };

	assert_int_equal(codec_parse(compress, &wish, &e), 0);
	atomic_store(&rig->compress, codec_wish_word(&wish));
}

static struct rig *delta_rig(const char *compress, uint64_t memory)
{
	static const uint64_t pages = PAGES;
	struct rig *rig = rig_new();

	rig->features = HELLO_FEATURES;
	choose(rig, compress);
	rig->delta = delta_new(&pages, 1, memory);
	assert_non_null(rig->delta);
	return rig;
}

static void wrote(struct rig *rig, uint64_t page)
{
	rig->log[page] = true;
	bitmap_set(rig->source.map[0], page, 1);
}

static void fill(struct rig *rig, uint64_t page, uint32_t *seed, bool random)
{
	uint32_t *p = (uint32_t *)(rig->ram + page * PAGE_BYTES);

	for (unsigned int i = 0; i < PAGE_BYTES / 4; i++)
		p[i] = random ? next_random(seed) : (uint32_t)(page * 977 + i * i);
	wrote(rig, page);
}

/* What guests do to a page: some bytes, all of it, nothing, zeros, one byte. */
static void change(struct rig *rig, uint64_t page, uint32_t *seed)
{
	uint8_t *p = rig->ram + page * PAGE_BYTES;
	uint32_t what = next_random(seed) % 16;

	if (what < 9)
		for (uint32_t n = next_random(seed) % 4 + 1; n; n--)
			p[next_random(seed) % PAGE_BYTES] ^= (uint8_t)(1 + next_random(seed) % 255);
	else if (what < 11)
		fill(rig, page, seed, what == 9);
	else if (what == 11)
		memset(p, 0, PAGE_BYTES);
	else if (what == 12)
		memset(p, 0xcc, PAGE_BYTES);
	else if (what == 13)
		memset(p + 1000, 0, 2000);
	wrote(rig, page);
}

static void change_some(struct rig *rig, unsigned int n, uint32_t *seed)
{
	uint64_t base = next_random(seed) % (PAGES - 1024);

	for (unsigned int i = 0; i < n; i++)
		change(rig, base + next_random(seed) % 1024, seed);
}

static void begin(struct rig *rig, unsigned int streams, uint32_t *seed)
{
	rig_connect(rig, engine, engine, streams, 4096);
	for (uint64_t page = 0; page < PAGES; page++)
		fill(rig, page, seed, page % 3);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.delta_pages, 0);
}

static void the_rest(struct rig *rig)
{
	rig_round(rig, ROUND_LAST);
	rig_assert_equal(rig);
	receive_streams_stop(rig->receiving);
	assert_false(atomic_load(receive_streams_failed(rig->receiving)));
}

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
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, &rig->e), 0);
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

#define LATE	4u

/**
 * struct relay - a stream's bytes, each 16 KiB of them so late
 */
struct relay {
	int from, to;
	unsigned int nap_ns;
	pthread_t thread;
};

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	const struct timespec ts = { .tv_nsec = r->nap_ns };
	char buf[16384];
	ssize_t n, m, at;

	while ((n = read(r->from, buf, sizeof(buf))) > 0) {
		nanosleep(&ts, NULL);
		for (at = 0; at < n; at += m) {
			m = write(r->to, buf + at, (size_t)(n - at));
			if (m <= 0)
				return NULL;
		}
	}
	return NULL;
}

static void connect_late(struct rig *rig, struct relay *relays)
{
	struct send_streams_options o = {
		.vm = &rig->src, .engine = engine, .pace = &rig->pace, .timeout_ms = 5000, .compress = &rig->compress,
		.features = rig->features, .delta = rig->delta,
	};
	struct receive_streams_options there = { .writer = &rig->place, .engine = engine, .timeout_ms = 5000 };
	int out[LATE], in[LATE], pair[2];

	rig->place.features = rig->features;
	for (unsigned int i = 0; i < LATE; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		out[i] = pair[0];
		relays[i] = (struct relay) { .from = pair[1], .nap_ns = i ? 0 : 1000000 };
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		in[i] = pair[1];
		relays[i].to = pair[0];
		assert_int_equal(pthread_create(&relays[i].thread, NULL, relay_main, &relays[i]), 0);
	}
	assert_int_equal(send_streams_start(&o, out, LATE, &rig->streams, &rig->e), 0);
	assert_int_equal(receive_streams_start(&there, in, LATE, &rig->receiving, &rig->e), 0);
}

#define LATE_ROUNDS	30u

/* ACKs each round when it has arrived: there may be several on their way. */
static void *ack_main(void *arg)
{
	struct rig *rig = arg;
	struct err e = { 0 };

	for (uint32_t round = 1; round <= LATE_ROUNDS; round++) {
		if (receive_streams_wait_round(rig->receiving, round, false, NULL, &e))
			return (void *)"a round did not arrive";
		atomic_store(&rig->stripes.acked, round);
	}
	return NULL;
}

/* One stream is late by rounds, and stripes go from stream to stream: the parts are always over what they are parts of. */
static void rounds_overtake_nothing(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= 3; seed++) {
		struct rig *rig = delta_rig("lz4", ROOM);
		struct relay relays[LATE];
		struct round_count sum = { .data_pages = 0 };
		uint32_t random = seed;
		pthread_t acks;
		void *wrong;

		connect_late(rig, relays);
		assert_int_equal(pthread_create(&acks, NULL, ack_main, rig), 0);
		for (uint64_t page = 0; page < PAGES / 4; page++)
			fill(rig, page, &random, page % 3);
		for (unsigned int round = 0; round < LATE_ROUNDS; round++) {
			assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
			round_count_add(&sum, &rig->count);
			for (unsigned int i = 0; i < 300; i++)
				change(rig, next_random(&random) % (PAGES / 4), &random);
		}
		pthread_join(acks, &wrong);
		assert_null(wrong);
		the_rest(rig);
		assert_true(sum.delta_pages > 1000);
		send_streams_free(rig->streams);
		rig->streams = NULL;
		for (unsigned int i = 0; i < LATE; i++) {
			pthread_join(relays[i].thread, NULL);
			close(relays[i].from);
			close(relays[i].to);
		}
		rig_free(rig);
	}
}

/* Takes the receiver away when so many bytes have been sent, at the latest after 100 ms. */
struct loss {
	struct rig *rig;
	uint64_t bytes;
	pthread_t thread;
};

static void *lose_main(void *arg)
{
	const struct timespec ts = { .tv_nsec = 10000 };
	struct loss *l = arg;

	for (unsigned int i = 0; i < 10000 && send_streams_sent(l->rig->streams) < l->bytes; i++)
		nanosleep(&ts, NULL);
	receive_streams_free(l->rig->receiving);
	return NULL;
}

/*
 * The link is lost with rounds under way, of which the receiver has got some, in part: from then on what was sent of them is
 * not what is there.
 */
static void a_lost_link_is_no_base(void **state)
{
	unsigned int failed = 0, deltas = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= 12; seed++) {
		struct rig *rig = delta_rig("lz4", ROOM);
		uint32_t random = seed, stands;
		struct loss l = { .rig = rig };

		map_there = seed % MAPS_THERE;
		begin(rig, 3, &random);
		for (unsigned int loss = 0; loss < 4; loss++) {
			change_some(rig, 600, &random);
			rig_round(rig, ROUND_PRECOPY);
			deltas += rig->count.delta_pages;
			stands = rig->rounds;
			/* Not acknowledged, whether it arrives or not. */
			change_some(rig, 600, &random);
			rig_send(rig, ROUND_PRECOPY);
			change_some(rig, 600, &random);
			for (uint64_t page = 0; page < PAGES / 2; page++)
				change(rig, page, &random);
			l.bytes = send_streams_sent(rig->streams) + next_random(&random) % (1u << 20);
			assert_int_equal(pthread_create(&l.thread, NULL, lose_main, &l), 0);
			rig->e = (struct err) { 0 };
			failed += rig_send(rig, ROUND_PRECOPY) != 0;
			pthread_join(l.thread, NULL);
			send_streams_free(rig->streams);
			stripes_lost(&rig->stripes, rig->delta, stands, rig->source.map);
			rig->base = rig->rounds;
			atomic_store(&rig->stripes.acked, rig->base);
			rig->e = (struct err) { 0 };
			rig_connect(rig, engine, engine, 3, 4096);
		}
		change_some(rig, 600, &random);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		the_rest(rig);
		rig_free(rig);
	}
	map_there = false;
	assert_in_range(failed, 30, 48);
	assert_true(deltas > 3000);
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
	cmocka_unit_test(a_busy_guest_arrives), cmocka_unit_test(rounds_overtake_nothing), cmocka_unit_test(a_lost_link_is_no_base),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
