// SPDX-License-Identifier: GPL-2.0-only
/* A round that is spread over the windows of its streams, as the last one is on a long link: a stream takes no more than leaves at once. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "each_engine.h"
#include "net/sock.h"
#include "ram_rig.h"
#include "send/send_streams_internal.h"

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
		.vm = &rig->src, .engine = engine, .pace = &rig->pace, .compress = &rig->compress, .timeout_ms = 5000,
		.idle = drain_all, .arg = far.peers, .features = features,
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
