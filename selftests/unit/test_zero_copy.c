// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zero-copy sends over TCP: no buffer is used again while the kernel reads from it, and where they cannot be had, or are
 * copied after all, plain ones do the work.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"

#define FRAMES	150u
#define PAGES	40u
#define ONE	(WIRE_HEADER + WIRE_EXTENT + PAGES * PAGE_BYTES)

/* Both ends of a connection over loopback; little of it fits into the receiver's buffer. */
static void tcp_pair(int pair[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 64 << 10, large = 4 << 20;

	assert_int_equal(setsockopt(door, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(bind(door, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(door, 1), 0);
	assert_int_equal(getsockname(door, (struct sockaddr *)&at, &len), 0);
	pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &large, sizeof(large)), 0);
	assert_int_equal(connect(pair[0], (struct sockaddr *)&at, len), 0);
	pair[1] = accept(door, NULL, NULL);
	assert_true(pair[1] >= 0);
	close(door);
}

static int connect_tcp(void **state)
{
	struct link *l = calloc(1, sizeof(*l));
	int pair[2];

	tcp_pair(pair);
	assert_int_equal(channel_new(pair[0], &engine_uring, 10000, &l->ch, &l->e), 0);
	l->peer = pair[1];
	*state = l;
	return 0;
}

static int connect_local(void **state)
{
	engine = &engine_uring;
	return connect_link(state, 0);
}

static uint8_t pattern(unsigned int frame, size_t at)
{
	return (uint8_t)(frame * 7 + at / PAGE_BYTES * 3 + at % 251);
}

static void push(struct link *l, unsigned int frame)
{
	struct ram_frame *f;

	assert_int_equal(channel_frame(l->ch, &f, &l->e), 0);
	for (size_t i = 0; i < PAGES * PAGE_BYTES; i++)
		f->buf[i] = pattern(frame, i);
	f->extents[f->nr++] = (struct wire_extent) { .kind = WIRE_DATA, .pages = PAGES, .first = frame };
	f->iov[f->nr_iov++] = (struct iovec) { f->buf, PAGES * PAGE_BYTES };
	f->bytes = PAGES * PAGE_BYTES;
	assert_int_equal(channel_push(l->ch, f, &l->e), 0);
}

/* So many bytes of the connection, or up to its end. */
struct taker {
	int fd;
	size_t most, len;
	unsigned int nap_ms;
	uint8_t *buf;
};

static void *take_slowly(void *arg)
{
	struct taker *t = arg;
	ssize_t n;

	while (t->len < t->most) {
		n = read(t->fd, t->buf + t->len, t->most - t->len < (256u << 10) ? t->most - t->len : 256u << 10);
		if (n <= 0)
			break;
		t->len += (size_t)n;
		nap(t->nap_ms);
	}
	return NULL;
}

static void check(const struct taker *t)
{
	for (size_t at = 0; at < t->len; at++) {
		const size_t in = at % ONE;

		if (in >= WIRE_HEADER + WIRE_EXTENT && t->buf[at] != pattern((unsigned int)(at / ONE), in - WIRE_HEADER - WIRE_EXTENT))
			fail_msg("frame %zu, byte %zu", at / ONE, in);
	}
}

/* All frames, to a peer that takes its time. */
static void send_all(struct link *l, unsigned int nap_ms)
{
	struct taker t = { .fd = l->peer, .most = FRAMES * ONE, .nap_ms = nap_ms, .buf = malloc(FRAMES * ONE) };
	pthread_t thread;

	pthread_create(&thread, NULL, take_slowly, &t);
	for (unsigned int i = 0; i < FRAMES; i++)
		push(l, i);
	assert_int_equal(channel_flush(l->ch, &l->e), 0);
	pthread_join(thread, NULL);
	assert_int_equal(t.len, FRAMES * ONE);
	check(&t);
	free(t.buf);
}

/* What is held comes back when the peer has all: counts are complete then. */
static uint64_t sends_in_the_end(struct link *l)
{
	uint64_t before;

	do {
		before = channel_zero_copies(l->ch).sends;
		channel_pause(l->ch, deadline_ms(50), &l->e);
	} while (channel_zero_copies(l->ch).sends != before);
	return before;
}

static void a_buffer_waits_for_its_reader(void **state)
{
	struct link *l = *state;

	channel_zero_copy(l->ch, ENGINE_ZC_ON);
	send_all(l, 1);
	if (!sends_in_the_end(l))
		skip();	/* before Linux 6.1 */
	assert_true(channel_zero_copies(l->ch).sends >= FRAMES);
}

/* On loopback the kernel has to copy: that is noticed, and not done for ever. */
static void copies_are_not_worth_it(void **state)
{
	struct link *l = *state;
	struct zero_copy_count zc;

	channel_zero_copy(l->ch, ENGINE_ZC_AUTO);
	send_all(l, 0);
	if (!sends_in_the_end(l))
		skip();	/* before Linux 6.1 */
	zc = channel_zero_copies(l->ch);
	assert_true(zc.copied > zc.sends / 2);
	assert_true(zc.sends < FRAMES / 2);
}

/* A socket pair has no such sends. */
static void plain_where_it_is_refused(void **state)
{
	struct link *l = *state;

	channel_zero_copy(l->ch, ENGINE_ZC_ON);
	send_all(l, 0);
	assert_int_equal(channel_zero_copies(l->ch).sends, 0);
}

/* An unprivileged sender whose limit of locked memory is used up. */
static void plain_without_memory_to_lock(void **state)
{
	const struct rlimit none = { 0, 0 };
	int status;
	pid_t child;

	(void)state;
	child = fork();
	if (!child) {
		void *fresh;

		if (setrlimit(RLIMIT_MEMLOCK, &none) || (!getuid() && setresuid(65534, 65534, 65534)))
			_exit(2);
		if (engine_uring.supported())
			_exit(0);	/* a ring is locked memory, too, before Linux 5.12 */
		connect_tcp(&fresh);
		channel_zero_copy(((struct link *)fresh)->ch, ENGINE_ZC_ON);
		send_all(fresh, 0);
		_exit(channel_zero_copies(((struct link *)fresh)->ch).sends ? 3 : 0);
	}
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The channel goes while most of it waits in TCP: what still arrives is what was sent. */
static void closed_with_buffers_held(void **state)
{
	struct taker t = { .most = FRAMES * ONE, .buf = malloc(FRAMES * ONE) };
	struct link *l = *state;
	uint8_t *again;

	channel_zero_copy(l->ch, ENGINE_ZC_ON);
	for (unsigned int i = 0; i < 8; i++)
		push(l, i);
	t.fd = l->peer;
	channel_free(l->ch);
	/* Where freed memory would be used again, it is. */
	again = malloc(8 * ONE);
	memset(again, 0xee, 8 * ONE);
	take_slowly(&t);
	assert_true(t.len > ONE);
	check(&t);
	free(again);
	free(t.buf);
	close(l->peer);
	free(l);
	*state = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_buffer_waits_for_its_reader, connect_tcp, teardown),
		cmocka_unit_test_setup_teardown(copies_are_not_worth_it, connect_tcp, teardown),
		cmocka_unit_test_setup_teardown(plain_where_it_is_refused, connect_local, teardown),
		cmocka_unit_test(plain_without_memory_to_lock),
		cmocka_unit_test_setup(closed_with_buffers_held, connect_tcp),
	};

	if (engine_uring.supported()) {
		print_message("engine uring: not available here\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
