// SPDX-License-Identifier: GPL-2.0-only
/* RAM that is packed on its way, with the receiver's streams at the other end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "each_engine.h"
#include "net/sock.h"
#include "ram_rig.h"
#include "send/send_streams_internal.h"

struct changer {
	_Atomic uint32_t *compress;
	atomic_bool stop;
};

/* The operator, who cannot decide. */
static void *change(void *arg)
{
	static const char *const ways[] = { "lz4", "off", "zstd:3", "zlib", "auto" };
	struct changer *c = arg;

	for (unsigned int i = 0; !atomic_load(&c->stop); i++) {
		struct codec_wish wish;
		struct err e = { 0 };

		assert_int_equal(codec_parse(ways[i % 5], &wish, &e), 0);
		atomic_store(c->compress, codec_wish_word(&wish));
		nap(1);
	}
	return NULL;
}

/* Another codec at any frame: the pages arrive as they were, and what streams show is what they have sent. */
static void the_codec_changes_in_the_middle(void **state)
{
	struct rig *rig = *state;
	struct changer c = { .compress = &rig->compress };
	struct round_count sum = { .data_pages = 0 }, shown;
	unsigned int rounds = 0;
	pthread_t thread;

	rig->features = WIRE_FILL | WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB | WIRE_LOADS;
	rig_connect(rig, engine, engine, 3, 0);
	assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
	do {
		for (unsigned int p = 0; p < PAGES; p++) {
			rig_write(rig, p, (int)(p + rounds) % 7);
			/* Every other page is not of one byte, and packs well. */
			if (p % 2)
				memcpy(rig->ram + p * PAGE_BYTES, &p, sizeof(p));
		}
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		round_count_add(&sum, &rig->count);
	} while (++rounds < 200 && (!sum.packed_pages[0] || !sum.packed_pages[1] || !sum.packed_pages[2] ||
				    sum.packed_pages[0] + sum.packed_pages[1] + sum.packed_pages[2] == sum.data_pages));
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	assert_in_range(rounds, 1, 199);
	assert_int_equal(sum.data_pages, (uint64_t)rounds * PAGES / 2);
	assert_int_equal(sum.zero_pages + sum.same_pages, (uint64_t)rounds * PAGES / 2);
	assert_true(sum.page_bytes < sum.data_pages * PAGE_BYTES);
	shown = send_streams_counts(rig->streams);
	assert_memory_equal(&shown, &sum, sizeof(sum));
}

/* nap_ms: what the call takes longer. pack: a codec that takes no time, and finds nothing to pack. */
static struct { unsigned int nap_ms; _Atomic unsigned int calls; bool fake; } pack, read_on;

size_t __real_codec_pack(struct codec_states *s, const struct codec_choice *c, const void *in, size_t len, void *out,
			  size_t room);
size_t __wrap_codec_pack(struct codec_states *s, const struct codec_choice *c, const void *in, size_t len, void *out,
			  size_t room);
size_t __wrap_codec_pack(struct codec_states *s, const struct codec_choice *c, const void *in, size_t len, void *out,
			  size_t room)
{
	pack.calls++;
	if (pack.nap_ms)
		nap(pack.nap_ms);
	return pack.fake ? 0 : __real_codec_pack(s, c, in, len, out, room);
}

/* After each run of pages that was read. */
int __real_channel_go_on(struct channel *ch, struct err *e);
int __wrap_channel_go_on(struct channel *ch, struct err *e);
int __wrap_channel_go_on(struct channel *ch, struct err *e)
{
	if (read_on.nap_ms)
		nap(read_on.nap_ms);
	return __real_channel_go_on(ch, e);
}

/**
 * struct slow_link - takes 16 MB/s, and holds nothing: what TCP says of it is what has gone over it
 * @passed: bytes; one, for the connection
 */
static struct slow_link {
	bool used;
	int fd;
	_Atomic uint64_t passed;
	pthread_t thread;
} slow;

static void *slow_link_main(void *arg)
{
	static char buf[16384];
	ssize_t n;

	(void)arg;
	while ((n = recv(slow.fd, buf, sizeof(buf), MSG_WAITALL)) > 0) {
		nap(1);
		atomic_fetch_add(&slow.passed, (uint64_t)n);
	}
	return NULL;
}

struct sock_progress __real_sock_progress(int fd);
struct sock_progress __wrap_sock_progress(int fd);
struct sock_progress __wrap_sock_progress(int fd)
{
	return slow.used ? (struct sock_progress) { .acked = atomic_load(&slow.passed) } : __real_sock_progress(fd);
}

#define TRIES	20u
#define AUTO	(WIRE_FILL | WIRE_LZ4 | WIRE_ZSTD | WIRE_LOADS)

/* One stream that chooses, and knows its receiver. */
static void connect_auto(struct rig *rig)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };

	rig->features = AUTO;
	rig->compress = codec_wish_word(&wish);
	rig_connect(rig, engine, engine, 1, 0);
	send_streams_load(rig->streams, 0);
}

/* Pages that pack well, and are not of one byte. */
static void write_text(struct rig *rig, unsigned int first, unsigned int n)
{
	for (unsigned int p = first; p < first + n; p++) {
		rig_write(rig, p, 'a' + (int)(p + rig->rounds) % 20);
		memcpy(rig->ram + p * PAGE_BYTES, &p, sizeof(p));
	}
}

static uint64_t packed(const struct round_count *c)
{
	return c->packed_pages[0] + c->packed_pages[1] + c->packed_pages[2];
}

/* --bandwidth leaves time: 13 ms for a frame. */
static void pace_leaves_time(struct rig *rig)
{
	pace_set(&rig->pace, 20000000);
	write_text(rig, 0, 16 * FRAME_PAGES);
	rig_round(rig, ROUND_PRECOPY);
	rig_assert_equal(rig);
}

/*
 * What a step costs is what packing takes, and not what is read before it. Where the host has more to do than to read, nothing waits for
 * the link, and nothing is packed: a few tries.
 */
static void a_step_costs_what_packing_takes(void **state)
{
	struct rig *rig = *state;
	const uint64_t *known;
	uint64_t before;

	connect_auto(rig);
	known = rig->streams->s[0].packing.chooser.page_ns;
	pack.fake = true;
	before = known[3];
	/* Every third page is of zeros: a nap between short runs. */
	pace_set(&rig->pace, 20000000);
	read_on.nap_ms = 1;
	for (unsigned int i = 0; i < TRIES && !pack.calls; i++) {
		write_text(rig, 0, 16 * FRAME_PAGES);
		for (unsigned int p = 0; p < 16 * FRAME_PAGES; p += 3)
			rig_write(rig, p, 0);
		rig_round(rig, ROUND_PRECOPY);
	}
	assert_true(pack.calls);
	assert_true(known[3] < before);
	before = known[3];
	read_on.nap_ms = 0;
	pack.nap_ms = 20;
	pack.calls = 0;
	for (unsigned int i = 0; i < TRIES && !pack.calls; i++)
		pace_leaves_time(rig);
	assert_true(pack.calls);
	assert_true(known[3] > before);
}

/* What waits in the channel tells how fast the link is; then rounds of a frame are packed as well, after an idle moment too. */
static void short_rounds_are_packed(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	struct rig *rig = *state;

	slow.used = true;
	rig->features = AUTO;
	rig->compress = codec_wish_word(&wish);
	rig_connect_to_nobody(rig, engine, 1, 4096, &slow.fd);
	assert_int_equal(pthread_create(&slow.thread, NULL, slow_link_main, NULL), 0);
	send_streams_load(rig->streams, 0);
	write_text(rig, 0, 20 * FRAME_PAGES);
	assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
	assert_in_range(packed(&rig->count), 4 * FRAME_PAGES, 20 * FRAME_PAGES);
	for (unsigned int i = 0; i < 20; i++) {
		if (i % 2)
			nap(20);
		write_text(rig, 0, i % 3 ? FRAME_PAGES : FRAME_PAGES / 4);
		assert_int_equal(rig_send(rig, i < 19 ? ROUND_PRECOPY : ROUND_LAST), 0);
		assert_int_equal(packed(&rig->count), rig->count.data_pages);
	}
	send_streams_free(rig->streams);
	rig->streams = NULL;
	pthread_join(slow.thread, NULL);
	close(slow.fd);
}

/* The operator's limit is a link, too: the socket would take more at once. */
static void bandwidth_leaves_time(void **state)
{
	struct rig *rig = *state;

	connect_auto(rig);
	pace_leaves_time(rig);
	assert_in_range(packed(&rig->count), FRAME_PAGES, 16 * FRAME_PAGES);
}

/* On a long link small frames leave one by one, and nothing waits: the codec stays all the same. */
static void a_spread_round_keeps_its_codec(void **state)
{
	struct rig *rig = *state;
	struct codec_chooser *chooser;
	struct round rd;

	connect_auto(rig);
	chooser = &rig->streams->s[0].packing.chooser;
	pace_leaves_time(rig);
	/* Between rounds the stream's thread does not use it. */
	chooser->at = 3;
	write_text(rig, 0, 4 * FRAME_PAGES);
	rig->stripes.round = ++rig->rounds;
	round_begin(&rd, &rig->src, &rig->source, ROUND_LAST, NULL, &rig->stripes);
	rd.spread = true;
	send_streams_begin(rig->streams, &rd, rig->rounds);
	assert_int_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	round_end(&rd);
	assert_int_equal(receive_streams_wait_round(rig->receiving, rig->rounds, true, NULL, &rig->e), 0);
	rig_assert_equal(rig);
	assert_int_equal(rig->count.data_pages, 4 * FRAME_PAGES);
	assert_int_equal(rig->count.packed_pages[codec_zstd.number - 1], 4 * FRAME_PAGES);
	assert_int_equal(chooser->at, 3);
}

static int setup(void **state)
{
	slow = (struct slow_link) { .passed = 1 };
	memset(&pack, 0, sizeof(pack));
	memset(&read_on, 0, sizeof(read_on));
	return rig_setup(state);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_step_costs_what_packing_takes, setup, rig_teardown),
	cmocka_unit_test_setup_teardown(short_rounds_are_packed, setup, rig_teardown),
	cmocka_unit_test_setup_teardown(bandwidth_leaves_time, setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_spread_round_keeps_its_codec, setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_codec_changes_in_the_middle, setup, rig_teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
