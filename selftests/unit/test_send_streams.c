// SPDX-License-Identifier: GPL-2.0-only
/* Streams, with the receiver's at the other end: whatever the order, all arrives; whatever breaks, all ends soon, for one reason. */
#include <errno.h>
#include <fcntl.h>
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
#include "ram/thp.h"

/* The library's own asks the kernel for a tmpfs with huge pages: here both ends map their RAM, or neither does. */
static bool mapped;

void *thp_map(const struct ram_block *b, int prot)
{
	void *base = mapped ? mmap(NULL, b->pages * PAGE_BYTES, prot, MAP_SHARED, b->fd, 0) : NULL;

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

/* A third of the pages, with data or zeros. */
static void scribble(struct rig *rig, uint32_t *seed)
{
	for (unsigned int i = 0; i < PAGES / 3; i++)
		rig_write(rig, next_random(seed) % PAGES, next_random(seed) % 4 ? (int)(next_random(seed) % 255) + 1 : 0);
}

static void punch(struct rig *rig, uint32_t *seed)
{
	for (unsigned int i = 0; i < 100; i++)
		rig_punch(rig, next_random(seed) % PAGES, 1);
	/* Several huge pages, and parts of two. */
	rig_punch(rig, next_random(seed) % (PAGES / 4), PAGES / 2);
}

static void every_round_arrives_by(bool map)
{
	static const struct { unsigned int n; int sndbuf; } cases[] = { { 1, 0 }, { 2, 4096 }, { 4, 0 }, { 16, 4096 } };

	mapped = map;
	for (unsigned int c = 0; c < 4; c++) {
		struct rig *rig = rig_new();
		uint32_t seed = c;

		rig_connect(rig, engine, engine, cases[c].n, cases[c].sndbuf);
		for (unsigned int round = 0; round < 6; round++) {
			scribble(rig, &seed);
			/* Only the last round tells of holes. */
			if (round == 5)
				punch(rig, &seed);
			rig_round(rig, round < 5 ? ROUND_PRECOPY : ROUND_LAST);
			rig_assert_equal(rig);
		}
		assert_true(send_streams_sent(rig->streams) > rig->count.data_pages * PAGE_BYTES);
		receive_streams_stop(rig->receiving);
		assert_false(atomic_load(receive_streams_failed(rig->receiving)));
		rig_free(rig);
	}
}

static void every_round_arrives(void **state)
{
	(void)state;
	every_round_arrives_by(false);
}

static void every_round_arrives_through_mappings(void **state)
{
	(void)state;
	every_round_arrives_by(true);
	mapped = false;
}

/**
 * struct relay - bytes from one socket to another, late
 * @cut: after so many bytes the connection goes, in both directions; 0: never
 */
struct relay {
	int from, to;
	unsigned int nap_ms;
	size_t cut, passed;
	pthread_t thread;
};

static void *relay_main(void *arg)
{
	static _Thread_local char buf[20000];
	struct relay *r = arg;
	ssize_t n;

	while ((n = read(r->from, buf, r->cut && r->cut - r->passed < sizeof(buf) ? r->cut - r->passed : sizeof(buf))) > 0) {
		nap(r->nap_ms);
		if (sock_send(r->to, buf, (size_t)n, deadline_ms(5000)))
			break;
		r->passed += (size_t)n;
		if (r->cut && r->passed == r->cut)
			break;
	}
	shutdown(r->from, SHUT_RDWR);
	shutdown(r->to, SHUT_RDWR);
	return NULL;
}

static void connect_by_relays(struct rig *rig, struct relay *relays, unsigned int n)
{
	struct send_streams_options o = { .vm = &rig->src, .engine = engine, .pace = &rig->pace, .compress = &rig->compress, .timeout_ms = 5000 };
	struct receive_streams_options there = { .writer = &rig->place, .engine = engine, .timeout_ms = 5000 };
	int out[WIRE_STREAMS_MAX], in[WIRE_STREAMS_MAX], a[2], b[2];

	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, b), 0);
		out[i] = a[0];
		in[i] = b[1];
		relays[i].from = a[1];
		relays[i].to = b[0];
		assert_int_equal(pthread_create(&relays[i].thread, NULL, relay_main, &relays[i]), 0);
	}
	assert_int_equal(send_streams_start(&o, out, n, &rig->streams, &rig->e), 0);
	assert_int_equal(receive_streams_start(&there, in, n, &rig->receiving, &rig->e), 0);
}

static void end_relays(struct rig *rig, struct relay *relays, unsigned int n)
{
	send_streams_free(rig->streams);
	rig->streams = NULL;
	receive_streams_free(rig->receiving);
	rig->receiving = NULL;
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(relays[i].thread, NULL);
		close(relays[i].from);
		close(relays[i].to);
	}
}

/* What is sent first arrives last: a round is over when the slowest stream has delivered. */
static void a_slow_stream_is_waited_for(void **state)
{
	struct relay relays[3] = { { .nap_ms = 25 }, { .nap_ms = 0 }, { .nap_ms = 3 } };
	struct rig *rig = *state;
	uint32_t seed = 7;

	connect_by_relays(rig, relays, 3);
	for (unsigned int round = 0; round < 4; round++) {
		scribble(rig, &seed);
		rig_round(rig, round < 3 ? ROUND_PRECOPY : ROUND_LAST);
		rig_assert_equal(rig);
	}
	end_relays(rig, relays, 3);
}

static void one_stream_dies_in_the_middle(void **state)
{
	struct relay relays[4] = { { .nap_ms = 1 }, { .nap_ms = 1 }, { .nap_ms = 1, .cut = 1500000 }, { .nap_ms = 1 } };
	struct rig *rig = *state;
	struct err e = { 0 };
	uint64_t start;

	connect_by_relays(rig, relays, 4);
	for (unsigned int p = 0; p < PAGES; p++)
		rig_write(rig, p, (int)p % 255 + 1);
	start = now_ns();
	assert_int_not_equal(rig_send(rig, ROUND_PRECOPY), 0);
	assert_int_equal(rig->e.exit, GW_LINK_LOST);
	assert_int_not_equal(receive_streams_wait_round(rig->receiving, 1, false, NULL, &e), 0);
	assert_int_equal(e.exit, GW_LINK_LOST);
	assert_true(atomic_load(receive_streams_failed(rig->receiving)));
	assert_in_range(now_ns() - start, 0, 10000 * MS);
	end_relays(rig, relays, 4);
}

/* Three streams wait for a full socket, one has an error of its own: that is what the user must read. */
static void the_first_error_is_told(void **state)
{
	struct rig *rig = *state;
	uint64_t start = now_ns();
	int peers[4];

	rig_connect_to_nobody(rig, engine, 4, 0, peers);
	rig_write_run(rig, 0, 3200, 1);
	/* The fourth piece can only be read in part. */
	assert_return_code(ftruncate(rig->src.blocks[0].fd, (off_t)3100 * PAGE_BYTES + 100), 0);
	assert_int_not_equal(rig_send(rig, ROUND_PRECOPY), 0);
	assert_int_equal(rig->e.exit, GW_INTERNAL);
	assert_non_null(strstr(rig->e.text, "cannot read RAM \"ram0\""));
	assert_in_range(now_ns() - start, 0, 10000 * MS);
	close_all(peers, 4);
	assert_return_code(ftruncate(rig->src.blocks[0].fd, (off_t)PAGES * PAGE_BYTES), 0);
}

/* The main thread's look at the world goes on, and what it sees ends all streams, though none of them moves. */
static void idle_is_called_and_obeyed(void **state)
{
	struct canceller c = { 0 };
	struct rig *rig = *state;
	uint64_t start = now_ns();
	struct round rd;
	int peers[2];

	rig->idle = give_up;
	rig->idle_arg = &c;
	rig_connect_to_nobody(rig, engine, 2, 0, peers);
	for (unsigned int p = 0; p < PAGES; p++)
		rig_write(rig, p, 1);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, NULL);
	send_streams_begin(rig->streams, &rd, 1);
	assert_int_not_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	round_end(&rd);
	assert_int_equal(rig->e.exit, GW_CANCELLED);
	assert_int_equal(c.calls, 3);
	/* Not in a loop. */
	assert_in_range(now_ns() - start, 200 * MS, 10000 * MS);
	close_all(peers, 2);
}

/* What the third call took, of a round that never ends. */
static uint64_t third_call_ns(const char *how, uint64_t features, bool load)
{
	struct rig *rig = rig_new();
	struct canceller c = { 0 };
	struct codec_wish wish;
	struct round rd;
	uint64_t start;
	int peers[2];

	assert_int_equal(codec_parse(how, &wish, &rig->e), 0);
	rig->compress = codec_wish_word(&wish);
	rig->features = features;
	rig->idle = give_up;
	rig->idle_arg = &c;
	rig_connect_to_nobody(rig, engine, 2, 0, peers);
	if (load)
		send_streams_load(rig->streams, 500);
	for (unsigned int p = 0; p < PAGES; p++)
		rig_write(rig, p, 1);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, NULL);
	start = now_ns();
	send_streams_begin(rig->streams, &rd, 1);
	assert_int_not_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	start = now_ns() - start;
	round_end(&rd);
	close_all(peers, 2);
	rig_free(rig);
	return start;
}

/* Where auto cannot begin before the first LOAD the caller looks for that more often; else ten times a second. */
static void the_first_load_is_waited_for(void **state)
{
	uint64_t ns = UINT64_MAX;

	(void)state;
	/* Late comes whatever a busy host does beside; early does not. */
	for (unsigned int i = 0; i < 20 && ns > 199 * MS; i++)
		ns = third_call_ns("auto", WIRE_LOADS, false);
	assert_in_range(ns, 40 * MS, 199 * MS);
	assert_in_range(third_call_ns("auto", WIRE_LOADS, true), 200 * MS, 10000 * MS);
	assert_in_range(third_call_ns("auto", 0, false), 200 * MS, 10000 * MS);
	assert_in_range(third_call_ns("off", WIRE_LOADS, false), 200 * MS, 10000 * MS);
}

/* 8 MiB in pre-copy take half a second at 16 MiB/s; in the last round they do not. */
static void the_limit_is_kept_and_lifted(void **state)
{
	struct rig *rig = *state;
	uint64_t start = now_ns();

	rig_connect(rig, engine, engine, 4, 0);
	pace_set(&rig->pace, 16 << 20);
	for (unsigned int p = 0; p < 2048; p++)
		rig_write(rig, p, 1);
	rig_round(rig, ROUND_PRECOPY);
	assert_in_range(now_ns() - start, 470 * MS, 10000 * MS);
	pace_set(&rig->pace, 256 << 10);
	for (unsigned int p = 0; p < 2048; p++)
		rig_write(rig, p, 2);
	start = now_ns();
	rig_round(rig, ROUND_LAST);
	assert_in_range(now_ns() - start, 0, 10000 * MS);
	rig_assert_equal(rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_round_arrives),
	cmocka_unit_test(every_round_arrives_through_mappings),
	cmocka_unit_test_setup_teardown(a_slow_stream_is_waited_for, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(one_stream_dies_in_the_middle, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_first_error_is_told, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(idle_is_called_and_obeyed, rig_setup, rig_teardown),
	cmocka_unit_test(the_first_load_is_waited_for),
	cmocka_unit_test_setup_teardown(the_limit_is_kept_and_lifted, rig_setup, rig_teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
