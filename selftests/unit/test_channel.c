// SPDX-License-Identifier: GPL-2.0-only
/* Frames over a socket pair, by each engine: all the bytes, or the right error in time, whatever the other end does. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"

/* A frame of n pages, with a gap between their buffers after each third. */
static size_t fill_frame(struct ram_frame *f, unsigned int n, unsigned int seed)
{
	f->extents[f->nr++] = (struct wire_extent) { .kind = WIRE_DATA, .pages = n, .first = seed };
	for (unsigned int i = 0; i < n; i++) {
		uint8_t *at = f->buf + (size_t)(i + i / 3) * PAGE_BYTES;

		memset(at, (int)(seed + i), PAGE_BYTES);
		f->iov[f->nr_iov++] = (struct iovec) { at, PAGE_BYTES };
		f->bytes += PAGE_BYTES;
	}
	return WIRE_HEADER + WIRE_EXTENT + n * PAGE_BYTES;
}

/* What fill_frame() describes, as it must be on the wire. */
static void check_frame(const uint8_t *p, unsigned int n, unsigned int seed)
{
	struct wire_header h;
	struct wire_extent x;

	assert_int_equal(wire_get_header(p, &h), 0);
	assert_int_equal(h.type, WIRE_RAM);
	assert_int_equal(h.length, WIRE_EXTENT + n * PAGE_BYTES);
	assert_int_equal(wire_get_extent(p + WIRE_HEADER, &x), 0);
	assert_int_equal(x.first, seed);
	for (size_t i = 0; i < n * PAGE_BYTES; i++)
		if (p[WIRE_HEADER + WIRE_EXTENT + i] != (uint8_t)(seed + i / PAGE_BYTES))
			fail_msg("frame %u, byte %zu", seed, i);
}

struct reader {
	int fd;
	size_t len, most;
	uint8_t *buf;
	unsigned int nap_ms;
};

static void *read_slowly(void *arg)
{
	struct reader *r = arg;
	ssize_t n;

	while (r->len < r->most && (n = read(r->fd, r->buf + r->len, r->most - r->len < 5000 ? r->most - r->len : 5000)) > 0) {
		r->len += (size_t)n;
		if (r->nap_ms && r->len % 11 == 0)
			nap(r->nap_ms);
	}
	return NULL;
}

/* Many frames, more than wait at once, one after the other and whole. */
static void frames_arrive_in_order(void **state)
{
	const unsigned int frames = 20, pages = 30;
	const size_t one = WIRE_HEADER + WIRE_EXTENT + pages * PAGE_BYTES;
	struct link *l = *state;
	struct reader r = { .fd = l->peer, .most = frames * one, .buf = malloc(frames * one), .nap_ms = 1 };
	struct ram_frame *f;
	pthread_t thread;

	pthread_create(&thread, NULL, read_slowly, &r);
	for (unsigned int i = 0; i < frames; i++) {
		assert_int_equal(channel_frame(l->ch, &f, &l->e), 0);
		assert_int_equal(fill_frame(f, pages, i * 3), one);
		assert_int_equal(channel_push(l->ch, f, &l->e), 0);
	}
	assert_int_equal(channel_flush(l->ch, &l->e), 0);
	assert_int_equal(channel_sent(l->ch), frames * one);
	pthread_join(thread, NULL);
	assert_int_equal(r.len, frames * one);
	for (unsigned int i = 0; i < frames; i++)
		check_frame(r.buf + i * one, pages, i * 3);
	free(r.buf);
}

/* What was pushed goes out while its owner waits for something else. */
static void sending_goes_on_in_a_pause(void **state)
{
	struct link *l = *state;
	struct reader r = { .fd = l->peer, .buf = malloc(1 << 20) };
	struct ram_frame *f;
	pthread_t thread;

	assert_int_equal(channel_frame(l->ch, &f, &l->e), 0);
	r.most = fill_frame(f, 40, 1);
	assert_int_equal(channel_push(l->ch, f, &l->e), 0);
	pthread_create(&thread, NULL, read_slowly, &r);
	assert_int_equal(channel_pause(l->ch, deadline_ms(300), &l->e), 0);
	assert_int_equal(channel_sent(l->ch), r.most);
	pthread_join(thread, NULL);
	check_frame(r.buf, 40, 1);
	free(r.buf);
}

/* A PING in two parts, cut at every byte, with a delay; then the same with the end of the connection. */
static void any_boundary(void **state)
{
	const struct wire_header ping = { .type = WIRE_PING, .arg = 7, .length = 8 };
	uint8_t bytes[WIRE_HEADER + 8], body[8];
	struct link *l = *state;
	struct wire_header h;

	wire_put_header(bytes, &ping);
	memcpy(bytes + WIRE_HEADER, "abcdefgh", 8);
	for (unsigned int cut = 1; cut < sizeof(bytes); cut++) {
		pid_t child = fork();

		if (!child) {
			(void)!write(l->peer, bytes, cut);
			nap(2);
			(void)!write(l->peer, bytes + cut, sizeof(bytes) - cut);
			_exit(0);
		}
		assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
		assert_int_equal(h.arg, 7);
		assert_int_equal(channel_body(l->ch, body, 8, &l->e), 0);
		assert_memory_equal(body, "abcdefgh", 8);
		waitpid(child, NULL, 0);
	}
	for (unsigned int cut = 0; cut < sizeof(bytes); cut++) {
		void *other;
		struct link *o;
		int r;

		connect_link(&other, 0);
		o = other;
		assert_int_equal(write(o->peer, bytes, cut), cut);
		close(o->peer);
		o->peer = -1;
		r = channel_recv(o->ch, &h, true, &o->e);
		assert_int_equal(r == 0, cut >= WIRE_HEADER);
		if (!r)
			assert_int_not_equal(channel_body(o->ch, body, 8, &o->e), 0);
		assert_int_equal(o->e.exit, GW_LINK_LOST);
		teardown(&other);
	}
}

static void a_silent_peer_is_left(void **state)
{
	struct link *l = *state;
	uint64_t start = now_ns();
	struct wire_header h;

	assert_int_equal(write(l->peer, "GTWT", 4), 4);
	assert_int_not_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_int_equal(l->e.exit, GW_TIMEOUT);
	assert_in_range(now_ns() - start, TIMEOUT_MS * MS, (TIMEOUT_MS + 10000) * MS);
}

#define TRICKLE_MS	(TIMEOUT_MS * 3 / 4)	/* a host that is busy for five times TIMEOUT_MS would hide the trickle */

/* A byte now and then, of a header or of a body, is no sign of life: the wait is no longer than for one that is silent. */
static void a_peer_that_trickles_is_left(void **state)
{
	const struct wire_header h = { .type = WIRE_PONG, .length = 8 };
	uint8_t bytes[WIRE_HEADER + 8] = { 0 }, body[8];

	(void)state;
	wire_put_header(bytes, &h);
	for (unsigned int at_once = 0; at_once <= WIRE_HEADER; at_once += WIRE_HEADER) {
		struct wire_header got;
		void *other;
		struct link *l;
		pid_t child;
		int r;

		connect_link(&other, 0);
		l = other;
		assert_int_equal(write(l->peer, bytes, at_once), at_once);
		child = fork();
		for (unsigned int i = at_once; !child && i < sizeof(bytes); i++) {
			nap(TRICKLE_MS);
			(void)!write(l->peer, bytes + i, 1);
		}
		if (!child)
			_exit(0);
		r = channel_recv(l->ch, &got, false, &l->e);
		assert_int_equal(r == 0, at_once != 0);
		if (!r)
			r = channel_body(l->ch, body, sizeof(body), &l->e);
		assert_int_not_equal(r, 0);
		assert_int_equal(l->e.exit, GW_TIMEOUT);
		assert_int_equal(kill(child, SIGKILL), 0);
		waitpid(child, NULL, 0);
		teardown(&other);
	}
}

/* Nor do bytes that come faster than a wait looks at the time. */
static void a_peer_that_trickles_fast_is_left(void **state)
{
	const struct wire_header h = { .type = WIRE_BLOCKS, .arg = 8, .length = 512 };
	uint8_t bytes[WIRE_HEADER + 512] = { 0 }, body[512];
	struct wire_header got;
	struct link *l = *state;
	pid_t child;

	wire_put_header(bytes, &h);
	assert_int_equal(write(l->peer, bytes, WIRE_HEADER), WIRE_HEADER);
	child = fork();
	for (unsigned int i = WIRE_HEADER; !child && i < sizeof(bytes); i++) {
		nap(TIMEOUT_MS / 20);
		(void)!write(l->peer, bytes + i, 1);
	}
	if (!child)
		_exit(0);
	assert_int_equal(channel_recv(l->ch, &got, false, &l->e), 0);
	assert_int_not_equal(channel_body(l->ch, body, sizeof(body), &l->e), 0);
	assert_int_equal(l->e.exit, GW_TIMEOUT);
	assert_int_equal(kill(child, SIGKILL), 0);
	waitpid(child, NULL, 0);
}

static void a_peer_that_takes_nothing_is_left(void **state)
{
	struct link *l = *state;
	uint64_t start = now_ns();
	struct ram_frame *f;
	int r = 0;

	for (unsigned int i = 0; i < 10 && !r; i++) {
		r = channel_frame(l->ch, &f, &l->e);
		if (r)
			break;
		fill_frame(f, 40, i);
		r = channel_push(l->ch, f, &l->e);
	}
	assert_int_not_equal(r, 0);
	assert_int_equal(l->e.exit, GW_TIMEOUT);
	assert_in_range(now_ns() - start, TIMEOUT_MS * MS, (TIMEOUT_MS + 10000) * MS);
}

static void a_peer_that_hangs_up_is_noticed(void **state)
{
	struct link *l = *state;
	struct ram_frame *f;
	char some[9000];
	const struct wire_header pong = { .type = WIRE_PONG, .length = 8 };
	struct err again = { 0 };
	int r = 0;

	assert_int_equal(channel_frame(l->ch, &f, &l->e), 0);
	fill_frame(f, 40, 1);
	assert_int_equal(channel_push(l->ch, f, &l->e), 0);
	assert_true(read(l->peer, some, sizeof(some)) > 0);
	close(l->peer);
	l->peer = -1;
	r = channel_flush(l->ch, &l->e);
	assert_int_not_equal(r, 0);
	assert_int_equal(l->e.exit, GW_LINK_LOST);
	/* Whoever goes on regardless, as a receiver behind the commit point, does not wait for room first. */
	assert_int_not_equal(channel_send(l->ch, &pong, "abcdefgh", &again), 0);
	assert_int_equal(again.exit, GW_LINK_LOST);
}

static size_t put_frame(uint8_t *p, unsigned int type, uint32_t arg, const char *body)
{
	const struct wire_header h = { .type = (uint16_t)type, .arg = arg, .length = (uint32_t)strlen(body) };

	wire_put_header(p, &h);
	memcpy(p + WIRE_HEADER, body, h.length);
	return WIRE_HEADER + h.length;
}

/* What a refused header says is told, and nothing of ours. */
static void a_frame_that_makes_no_sense(void **state)
{
	const struct wire_header odd[] = { { .type = 777 }, { .type = WIRE_PONG, .length = 3 }, { .type = WIRE_ACK, .flags = 0x8000 } };
	struct link *l = *state;
	char word[32];

	for (unsigned int i = 0; i < 3; i++) {
		struct wire_header h = { .type = 4242 };
		uint8_t bytes[WIRE_HEADER];

		l->e = (struct err) { 0 };
		wire_put_header(bytes, &odd[i]);
		assert_int_equal(write(l->peer, bytes, sizeof(bytes)), sizeof(bytes));
		assert_int_equal(channel_recv(l->ch, &h, false, &l->e), -EPROTO);
		assert_int_equal(l->e.exit, GW_BAD_PEER);
		snprintf(word, sizeof(word), "(type %u)", odd[i].type);
		assert_non_null(strstr(l->e.text, word));
	}
}

/* A send fails; why, the peer has said behind other frames, and behind the rest of one that was being read. */
static void a_reason_behind_other_frames(void **state)
{
	struct link *l = *state;
	uint8_t bytes[512], some[9000];
	struct ram_frame *f;
	struct wire_header h;
	size_t len = put_frame(bytes, WIRE_PONG, 1, "12345678");

	len += put_frame(bytes + len, WIRE_PONG, 2, "abcdefgh");
	len += put_frame(bytes + len, WIRE_ACK, 3, "");
	len += put_frame(bytes + len, WIRE_ABORT, GW_VERIFY, "page 7 differs");
	assert_int_equal(channel_frame(l->ch, &f, &l->e), 0);
	fill_frame(f, 40, 1);
	assert_int_equal(channel_push(l->ch, f, &l->e), 0);
	assert_true(read(l->peer, some, sizeof(some)) > 0);
	assert_int_equal(write(l->peer, bytes, len), len);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_int_equal(channel_body(l->ch, some, 3, &l->e), 0);
	close(l->peer);
	l->peer = -1;
	assert_int_not_equal(channel_flush(l->ch, &l->e), 0);
	assert_int_equal(l->e.exit, GW_VERIFY);
	assert_non_null(strstr(l->e.text, "page 7 differs"));
	assert_true(channel_aborted(l->ch));
}

/* It goes to a terminal, which obeys nothing of it. */
static void a_reason_is_no_command(void **state)
{
	struct link *l = *state;
	struct wire_header h;
	uint8_t bytes[128];
	size_t len = put_frame(bytes, WIRE_ABORT, GW_VERIFY, "a\x1b[2Jb\xc2\x9b" "2Jc\x9b" "2J\xc3\xa9");

	assert_int_equal(write(l->peer, bytes, len), len);
	assert_int_not_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_non_null(strstr(l->e.text, ": a [2Jb 2Jc?2J\xc3\xa9"));
}

/* The peer has closed, and what it had said before is there after sends that failed. */
static void what_was_said_before_is_kept(void **state)
{
	const struct wire_header pong = { .type = WIRE_PONG, .length = 8 };
	struct link *l = *state;
	uint8_t bytes[512], some[9];
	size_t len = put_frame(bytes, WIRE_PONG, 1, "12345678");
	struct wire_header h;

	len += put_frame(bytes + len, WIRE_ABORT, GW_VERIFY, "page 7 differs");
	assert_int_equal(write(l->peer, bytes, len), len);
	close(l->peer);
	l->peer = -1;
	channel_keep_unread(l->ch);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_not_equal(channel_send(l->ch, &pong, "abcdefgh", &(struct err) { 0 }), 0);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_int_equal(h.arg, 1);
	assert_int_equal(channel_body(l->ch, some, 8, &l->e), 0);
	assert_memory_equal(some, "12345678", 8);
	assert_int_not_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_int_equal(l->e.exit, GW_VERIFY);
}

/* No error of its own, soon, and the buffer of the receive is the caller's again. */
static void an_interrupt_ends_a_wait(void **state)
{
	struct link *l = *state;
	atomic_bool flag = false;
	uint64_t start = now_ns();
	uint8_t body[64] = { 0 };
	pthread_t thread;

	channel_interrupt(l->ch, &flag);
	pthread_create(&thread, NULL, raise_flag, &flag);
	assert_int_equal(channel_body(l->ch, body, sizeof(body), &l->e), -ECANCELED);
	assert_int_equal(l->e.exit, GW_OK);
	assert_in_range(now_ns() - start, 50 * MS, 10000 * MS);
	pthread_join(thread, NULL);
	assert_int_equal(write(l->peer, "01234567890123456789", 20), 20);
	channel_pause(l->ch, deadline_ms(30), &l->e);
	assert_int_equal(body[0], 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(frames_arrive_in_order, setup, teardown),
	cmocka_unit_test_setup_teardown(frames_arrive_in_order, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(sending_goes_on_in_a_pause, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(any_boundary, setup, teardown),
	cmocka_unit_test_setup_teardown(a_silent_peer_is_left, setup, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_trickles_is_left, setup, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_trickles_fast_is_left, setup, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_takes_nothing_is_left, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_hangs_up_is_noticed, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(a_reason_behind_other_frames, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(what_was_said_before_is_kept, setup, teardown),
	cmocka_unit_test_setup_teardown(a_reason_is_no_command, setup, teardown),
	cmocka_unit_test_setup_teardown(a_frame_that_makes_no_sense, setup, teardown),
	cmocka_unit_test_setup_teardown(an_interrupt_ends_a_wait, setup, teardown),
};


int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
