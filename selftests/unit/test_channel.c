// SPDX-License-Identifier: GPL-2.0-only
/* Frames over a socket pair, by each engine: all the bytes, or the right error in time, whatever the other end does. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/channel.h"
#include "io/sock.h"

#define MS		1000000ull
#define TIMEOUT_MS	400u

/* The engine under test; each test runs once for each. */
static const struct engine_ops *engine;

struct link {
	struct channel *ch;
	int peer;
	struct err e;
};

static int connect_link(void **state, int sndbuf)
{
	struct link *l = calloc(1, sizeof(*l));
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (sndbuf)
		setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &l->ch, &l->e), 0);
	l->peer = pair[1];
	*state = l;
	return 0;
}

static int setup(void **state)
{
	return connect_link(state, 0);
}

/* So little that a frame takes many sends, each of them short. */
static int setup_narrow(void **state)
{
	return connect_link(state, 4096);
}

static int teardown(void **state)
{
	struct link *l = *state;

	channel_free(l->ch);
	if (l->peer >= 0)
		close(l->peer);
	free(l);
	return 0;
}

static void nap(unsigned int ms)
{
	struct timespec ts = { .tv_nsec = (long)(ms * MS) };

	nanosleep(&ts, NULL);
}

/* A frame of n pages, with a gap between their buffers after each third. */
static size_t fill_frame(struct ram_frame *f, unsigned int n, unsigned int seed)
{
	f->extents[f->nr++] = (struct wire_extent) { .kind = WIRE_DATA, .pages = n, .first = seed };
	for (unsigned int i = 0; i < n; i++) {
		uint8_t *at = f->buf + (size_t)(i + i / 3) * WIRE_PAGE;

		memset(at, (int)(seed + i), WIRE_PAGE);
		f->iov[f->nr_iov++] = (struct iovec) { at, WIRE_PAGE };
		f->bytes += WIRE_PAGE;
	}
	return WIRE_HEADER + WIRE_EXTENT + n * WIRE_PAGE;
}

/* What fill_frame() describes, as it must be on the wire. */
static void check_frame(const uint8_t *p, unsigned int n, unsigned int seed)
{
	struct wire_header h;
	struct wire_extent x;

	assert_int_equal(wire_get_header(p, &h), 0);
	assert_int_equal(h.type, WIRE_RAM);
	assert_int_equal(h.length, WIRE_EXTENT + n * WIRE_PAGE);
	assert_int_equal(wire_get_extent(p + WIRE_HEADER, &x), 0);
	assert_int_equal(x.first, seed);
	for (size_t i = 0; i < n * WIRE_PAGE; i++)
		if (p[WIRE_HEADER + WIRE_EXTENT + i] != (uint8_t)(seed + i / WIRE_PAGE))
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
	const size_t one = WIRE_HEADER + WIRE_EXTENT + pages * WIRE_PAGE;
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
}

static void *raise_flag(void *flag)
{
	nap(50);
	atomic_store((atomic_bool *)flag, true);
	return NULL;
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

static void say_abort(int fd, const char *text)
{
	struct wire_header h = { .type = WIRE_ABORT, .arg = GW_VERIFY, .length = (uint32_t)strlen(text) };
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
	assert_int_equal(write(fd, text, h.length), h.length);
}

static void *say_the_rest_late(void *fd)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 };
	uint8_t bytes[WIRE_HEADER + 8] = { 0 };

	wire_put_header(bytes, &ping);
	assert_int_equal(write(*(int *)fd, bytes, 9), 9);
	nap(100);
	assert_int_equal(write(*(int *)fd, bytes + 9, sizeof(bytes) - 9), sizeof(bytes) - 9);
	say_abort(*(int *)fd, "no \x1b[2J room");
	return NULL;
}

/* Behind other frames, with a delay in the middle of one, and while an interrupt is up. */
static void last_words_are_heard(void **state)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 }, ack = { .type = WIRE_ACK, .arg = 3 };
	struct link *l = *state;
	atomic_bool flag = true;
	uint8_t bytes[2 * WIRE_HEADER + 8] = { 0 };
	pthread_t thread;

	channel_interrupt(l->ch, &flag);
	wire_put_header(bytes, &ack);
	wire_put_header(bytes + WIRE_HEADER, &ping);
	assert_int_equal(write(l->peer, bytes, sizeof(bytes)), sizeof(bytes));
	pthread_create(&thread, NULL, say_the_rest_late, &l->peer);
	channel_last_words(l->ch, 1000, &l->e);
	pthread_join(thread, NULL);
	assert_int_equal(l->e.exit, GW_VERIFY);
	assert_non_null(strstr(l->e.text, "no ?[2J room"));
}

static void *raise_later(void *flag)
{
	nap(150);
	atomic_store((atomic_bool *)flag, true);
	return NULL;
}

/* A frame that was being received when the wait was given up: its rest is no header. */
static void last_words_follow_half_a_body(void **state)
{
	const struct wire_header device = { .type = WIRE_DEVICE, .length = 64 };
	struct link *l = *state;
	atomic_bool flag = false;
	pthread_t thread;
	uint8_t bytes[WIRE_HEADER + 64] = { 0 }, body[64];
	struct wire_header h;

	wire_put_header(bytes, &device);
	assert_int_equal(write(l->peer, bytes, WIRE_HEADER + 24), WIRE_HEADER + 24);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	channel_interrupt(l->ch, &flag);
	pthread_create(&thread, NULL, raise_later, &flag);
	assert_int_equal(channel_body(l->ch, body, sizeof(body), &l->e), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(write(l->peer, bytes + WIRE_HEADER + 24, 40), 40);
	say_abort(l->peer, "no room");
	channel_last_words(l->ch, 1000, &l->e);
	assert_int_equal(l->e.exit, GW_VERIFY);
}

static void no_last_words_behind_half_a_header(void **state)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 };
	struct link *l = *state;
	atomic_bool flag = false;
	uint8_t bytes[WIRE_HEADER + 8] = { 0 };
	struct wire_header h;
	pthread_t thread;

	wire_put_header(bytes, &ping);
	assert_int_equal(write(l->peer, bytes, 9), 9);
	channel_interrupt(l->ch, &flag);
	pthread_create(&thread, NULL, raise_later, &flag);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(write(l->peer, bytes + 9, sizeof(bytes) - 9), sizeof(bytes) - 9);
	channel_last_words(l->ch, 100, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
}

static void *flood(void *fd)
{
	const struct wire_header ack = { .type = WIRE_ACK };
	uint8_t bytes[WIRE_HEADER];

	wire_put_header(bytes, &ack);
	while (send(*(int *)fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes))
		;
	return NULL;
}

/* A peer that never ends is not listened to for ever. */
static void last_words_are_short(void **state)
{
	struct link *l = *state;
	pthread_t thread;

	pthread_create(&thread, NULL, flood, &l->peer);
	channel_last_words(l->ch, 200, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
	shutdown(l->peer, SHUT_RDWR);
	pthread_join(thread, NULL);
}

static void nothing_is_said(void **state)
{
	struct link *l = *state;
	uint64_t start = now_ns();

	channel_last_words(l->ch, 100, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
	assert_in_range(now_ns() - start, 100 * MS, 10000 * MS);
}

/* A broken send looks for the reason first. */
static void an_abort_explains_a_broken_send(void **state)
{
	const struct wire_header ack = { .type = WIRE_ACK };
	struct link *l = *state;

	say_abort(l->peer, "full");
	shutdown(l->peer, SHUT_RD);
	assert_int_not_equal(channel_send(l->ch, &ack, NULL, &l->e), 0);
	assert_int_equal(l->e.exit, GW_VERIFY);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(frames_arrive_in_order, setup, teardown),
	cmocka_unit_test_setup_teardown(frames_arrive_in_order, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(sending_goes_on_in_a_pause, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(any_boundary, setup, teardown),
	cmocka_unit_test_setup_teardown(a_silent_peer_is_left, setup, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_takes_nothing_is_left, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(a_peer_that_hangs_up_is_noticed, setup_narrow, teardown),
	cmocka_unit_test_setup_teardown(an_interrupt_ends_a_wait, setup, teardown),
	cmocka_unit_test_setup_teardown(last_words_are_heard, setup, teardown),
	cmocka_unit_test_setup_teardown(last_words_are_short, setup, teardown),
	cmocka_unit_test_setup_teardown(last_words_follow_half_a_body, setup, teardown),
	cmocka_unit_test_setup_teardown(no_last_words_behind_half_a_header, setup, teardown),
	cmocka_unit_test_setup_teardown(nothing_is_said, setup, teardown),
	cmocka_unit_test_setup_teardown(an_abort_explains_a_broken_send, setup, teardown),
};

int main(void)
{
	int failed = 0;

	for (unsigned int i = 0; i < engines_count; i++) {
		engine = engines[i];
		print_message("engine %s%s\n", engine->name, engine->supported() ? ": not to be had here" : "");
		if (engine->supported())
			continue;
		failed += cmocka_run_group_tests(tests, NULL, NULL);
	}
	return failed;
}
