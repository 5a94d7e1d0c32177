// SPDX-License-Identifier: GPL-2.0-only
/* Streams, with the receiver's at the other end: whatever the order, all arrives; whatever breaks, all ends soon, for one reason. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
#include "send/send_streams_internal.h"

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
	struct send_streams_options o = { .vm = &rig->src, .engine = engine, .pace = &rig->pace, .timeout_ms = 5000 };
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
	assert_in_range(now_ns() - start, 200 * MS, 10000 * MS);
	close_all(peers, 2);
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

static void drain(const int *peers, unsigned int n)
{
	static char buf[1 << 16];

	for (unsigned int i = 0; i < n; i++)
		while (recv(peers[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
			;
}

static int drain_all(void *arg, struct err *e)
{
	(void)e;
	drain(arg, WIRE_STREAMS_MAX);
	return 0;
}

/*
 * The windows of all streams but the last are full: of a last round that is spread none of them takes more than one piece, and
 * the last one sends all the rest.
 */
static void a_full_window_keeps_little(void **state)
{
	const unsigned int n = WIRE_STREAMS_MAX, rest = 60, pages = (n - 1) * 3 + rest;
	int peers[WIRE_STREAMS_MAX];
	struct rig *rig = *state;
	struct round rd;

	rig->idle = drain_all;
	rig->idle_arg = peers;
	rig_connect_to_nobody(rig, engine, n, 1, peers);
	rig_write_run(rig, 0, pages, 1);
	rig->stripes.round = 1;
	round_begin(&rd, &rig->src, &rig->source, ROUND_LAST, NULL, &rig->stripes);
	rd.spread = true;
	send_streams_begin(rig->streams, &rd, 1);
	for (unsigned int i = 0; i < 1000 && send_streams_sent(rig->streams) < rest * PAGE_BYTES; i++) {
		drain(&peers[n - 1], 1);
		nap(5);
	}
	assert_true(send_streams_sent(rig->streams) >= rest * PAGE_BYTES);
	assert_int_equal(round_taken(&rd), pages);
	assert_int_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	assert_int_equal(rig->count.data_pages, pages);
	round_end(&rd);
	close_all(peers, n);
}

/* As a long link has them, one packet a KiB or two, and little room at either end. Nothing is read but by drain(). */
static void tcp_pair(int *out, int *peer)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int small = 4096, mss = 1448, lfd = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);

	setsockopt(lfd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	setsockopt(lfd, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss));
	assert_return_code(bind(lfd, (struct sockaddr *)&at, len), 0);
	assert_return_code(listen(lfd, 1), 0);
	assert_return_code(getsockname(lfd, (struct sockaddr *)&at, &len), 0);
	*out = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(*out, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss));
	assert_return_code(connect(*out, (struct sockaddr *)&at, len), 0);
	*peer = accept(lfd, NULL, NULL);
	assert_return_code(*peer, 0);
	assert_int_equal(sock_tune(*out, 5000), 0);
	close(lfd);
}

/* Fills the connection: its peer's window is shut. */
static void tcp_fill(int fd)
{
	static const char buf[1 << 12];

	for (unsigned int refused = 0; refused < 3; nap(5))
		for (refused++; send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0;)
			refused = 0;
}

/* A round that is spread over TCP connections. */
struct far {
	struct rig *rig;
	int peers[WIRE_STREAMS_MAX];
	struct round rd;
	unsigned int pages;
};

/* open: the stream whose window is not shut; WIRE_STREAMS_MAX: none */
static struct far *far_begin(struct rig *rig, unsigned int open, unsigned int pages, uint64_t features)
{
	static struct far far;
	struct send_streams_options o = {
		.vm = &rig->src, .engine = engine, .pace = &rig->pace, .timeout_ms = 5000, .idle = drain_all, .arg = far.peers, .features = features,
	};
	int out[WIRE_STREAMS_MAX];

	far = (struct far) { .rig = rig, .pages = pages };
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++) {
		tcp_pair(&out[i], &far.peers[i]);
		if (i != open)
			tcp_fill(out[i]);
	}
	assert_int_equal(send_streams_start(&o, out, WIRE_STREAMS_MAX, &rig->streams, &rig->e), 0);
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++)
		rig->streams->s[i].packing.chooser.at = rig->streams->s[i].packing.chooser.n - 1;
	rig_write_run(rig, 0, pages, 1);
	rig->stripes.round = 1;
	round_begin(&far.rd, &rig->src, &rig->source, ROUND_LAST, NULL, &rig->stripes);
	far.rd.spread = true;
	send_streams_begin(rig->streams, &far.rd, 1);
	return &far;
}

/* Reads one connection until all pages have been sent, or for long enough. */
static void far_read(struct far *far, unsigned int stream)
{
	for (unsigned int i = 0; i < 2000 && send_streams_sent(far->rig->streams) < far->pages * PAGE_BYTES; i++) {
		drain(&far->peers[stream], 1);
		nap(1);
	}
}

static void far_end(struct far *far)
{
	assert_int_equal(send_streams_wait(far->rig->streams, &far->rig->count, &far->rig->e), 0);
	assert_int_equal(far->rig->count.data_pages, far->pages);
	assert_int_equal(round_taken(&far->rd), far->pages);
	round_end(&far->rd);
	close_all(far->peers, WIRE_STREAMS_MAX);
}

/* The one stream whose window is open sends every page, and the others, which asked first, keep none. */
static void a_full_tcp_window_takes_nothing(void **state)
{
	struct far *far = far_begin(*state, WIRE_STREAMS_MAX - 1, 60, 0);

	far_read(far, WIRE_STREAMS_MAX - 1);
	assert_true(send_streams_sent(far->rig->streams) >= 60 * PAGE_BYTES);
	far_end(far);
}

/* No stream has room: no page is given to any, and the one that gets an ACK first sends them all. */
static void the_first_ack_takes_all(void **state)
{
	struct far *far = far_begin(*state, WIRE_STREAMS_MAX, 60, 0);

	nap(50);
	assert_int_equal(send_streams_sent(far->rig->streams), 0);
	far_read(far, 5);
	assert_true(send_streams_sent(far->rig->streams) >= 60 * PAGE_BYTES);
	far_end(far);
}

/* Frames leave one by one, as the window lets them: that is no reason to pack the rest of them less. */
static void a_spread_round_keeps_its_codec(void **state)
{
	struct far *far = far_begin(*state, WIRE_STREAMS_MAX, 60, WIRE_LOADS | WIRE_LZ4 | WIRE_ZSTD);

	for (unsigned int i = 0; i < 2000 && round_taken(&far->rd) < far->pages; i++) {
		drain(&far->peers[5], 1);
		nap(1);
	}
	far_end(far);
	assert_int_equal(far->rig->count.packed_pages[1], 60);	/* by zstd, the last step */
}

/* A frame that is posted for any stream waits for room as a page does, also when the round is over. */
static void a_posted_frame_waits_for_room(void **state)
{
	const struct wire_header h = { .type = WIRE_DEVICE, .length = WIRE_PLACE + SPREAD_BYTES };
	static const uint8_t body[WIRE_PLACE + SPREAD_BYTES];
	struct far *far = far_begin(*state, WIRE_STREAMS_MAX, 0, 0);

	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(send_streams_post(far->rig->streams, &h, body, false, &far->rig->e), 0);
	nap(50);
	far->pages = 8 * h.length / PAGE_BYTES;
	far_read(far, 9);
	assert_true(send_streams_sent(far->rig->streams) >= 8 * h.length);
	far->pages = 0;
	far_end(far);
}

/* A connection that breaks while its stream waits for room ends the round at once. */
static void it_breaks_without_room(void **state)
{
	struct far *far = far_begin(*state, WIRE_STREAMS_MAX, 60, 0);
	uint64_t start = now_ns();
	struct rig *rig = *state;

	nap(20);
	close(far->peers[3]);	/* with data unread: a reset */
	far->peers[3] = dup(far->peers[4]);
	assert_int_not_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	assert_int_equal(rig->e.exit, GW_LINK_LOST);
	assert_in_range(now_ns() - start, 0, 2000 * MS);
	round_end(&far->rd);
	close_all(far->peers, WIRE_STREAMS_MAX);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(every_round_arrives),
	cmocka_unit_test(every_round_arrives_through_mappings),
	cmocka_unit_test_setup_teardown(a_slow_stream_is_waited_for, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(one_stream_dies_in_the_middle, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_first_error_is_told, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(idle_is_called_and_obeyed, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_limit_is_kept_and_lifted, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_full_window_keeps_little, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_full_tcp_window_takes_nothing, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(the_first_ack_takes_all, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_spread_round_keeps_its_codec, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_posted_frame_waits_for_room, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(it_breaks_without_room, rig_setup, rig_teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
