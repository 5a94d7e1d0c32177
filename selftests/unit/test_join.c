// SPDX-License-Identifier: GPL-2.0-only
/* Which connections may join while streams are expected, and that no other connection delays them. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/dial.h"
#include "net/join.h"
#include "net/sock.h"

struct site {
	struct join join;
	int lfd, other[2];
	char addr[32];
};

static int setup(void **state)
{
	struct site *s = calloc(1, sizeof(*s));
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	s->lfd = sock_tcp_listen("127.0.0.1:0");
	assert_true(s->lfd >= 0);
	assert_int_equal(getsockname(s->lfd, (struct sockaddr *)&in, &len), 0);
	snprintf(s->addr, sizeof(s->addr), "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s->other), 0);
	assert_int_equal(join_init(&s->join, s->lfd), 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct site *s = *state;

	join_close(&s->join);
	close(s->lfd);
	close(s->other[0]);
	close(s->other[1]);
	free(s);
	return 0;
}

static int join_connect(struct site *s, const void *bytes, size_t len)
{
	int fd = sock_tcp_connect(s->addr, deadline_ms(2000));

	assert_true(fd >= 0);
	if (len)
		assert_int_equal(sock_send(fd, bytes, len, deadline_ms(2000)), 0);
	return fd;
}

static size_t join_frame(const struct site *s, unsigned int stream, uint8_t frame[WIRE_HEADER + WIRE_SECRET])
{
	struct wire_header h = { .type = WIRE_JOIN, .arg = stream, .length = WIRE_SECRET };

	wire_put_header(frame, &h);
	memcpy(frame + WIRE_HEADER, s->join.secret, WIRE_SECRET);
	return WIRE_HEADER + WIRE_SECRET;
}

static int step(struct site *s)
{
	return join_step(&s->join, s->other[0], 20);
}

/* Some steps; the answer of the last one. */
static int steps(struct site *s, unsigned int n)
{
	int r = 0;

	while (n-- && !(r = step(s)))
		;
	return r;
}

static bool closed(int fd)
{
	char c;

	return !sock_wait(fd, POLLIN, deadline_ms(500)) && sock_recv_some(fd, &c, 1) <= 0;
}

static void streams_join_in_any_order(void **state)
{
	uint8_t frame[WIRE_HEADER + WIRE_SECRET];
	static const unsigned int order[] = { 2, 0, 1 };
	struct site *s = *state;
	struct tls *tls[3];
	int fds[3], in[3];
	char c;

	s->join.want = 3;
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(steps(s, 2), 0);
		fds[order[i]] = join_connect(s, frame, join_frame(s, order[i], frame));
	}
	/* The first frame may come right behind the JOIN: it is not join_step()'s. */
	assert_int_equal(sock_send(fds[1], "x", 1, deadline_ms(100)), 0);
	assert_int_equal(steps(s, 10), 1);
	join_take(&s->join, in, tls);
	assert_null(tls[0]);
	join_close(&s->join);
	for (unsigned int i = 0; i < 3; i++) {
		char byte = (char)('a' + i);

		if (i == 1)
			assert_int_equal(sock_recv(in[i], &c, 1, deadline_ms(500)), 0);
		assert_int_equal(sock_send(fds[i], &byte, 1, deadline_ms(100)), 0);
		assert_int_equal(sock_recv(in[i], &c, 1, deadline_ms(500)), 0);
		assert_int_equal(c, byte);
		close(fds[i]);
		close(in[i]);
	}
}

/* A JOIN that is right but for one thing. */
static void strangers_are_rejected(void **state)
{
	uint8_t frame[WIRE_HEADER + WIRE_SECRET];
	struct site *s = *state;
	int fd, first;

	s->join.want = 2;
	first = join_connect(s, frame, join_frame(s, 0, frame));
	assert_int_equal(steps(s, 3), 0);
	for (unsigned int i = 0; i < WIRE_SECRET; i++) {
		join_frame(s, 1, frame);
		frame[WIRE_HEADER + i] ^= 1 << i % 8;
		fd = join_connect(s, frame, sizeof(frame));
		assert_int_equal(steps(s, 3), 0);
		assert_true(closed(fd));
		close(fd);
	}
	for (unsigned int wrong = 0; wrong < 4; wrong++) {
		struct wire_header h = { .type = WIRE_PING, .length = 8 };

		join_frame(s, wrong == 0 ? 0 : 2, frame);	/* taken; one too many */
		if (wrong == 2)
			wire_put_header(frame, &h);
		if (wrong == 3)
			memset(frame, 'G', sizeof(frame));
		fd = join_connect(s, frame, sizeof(frame));
		assert_int_equal(steps(s, 3), 0);
		assert_true(closed(fd));
		close(fd);
	}
	/* One that goes away before it has sent all. */
	close(join_connect(s, frame, 7));
	assert_int_equal(steps(s, 3), 0);
	assert_int_equal(s->join.nr_candidates, 0);
	fd = join_connect(s, frame, join_frame(s, 1, frame));
	assert_int_equal(steps(s, 3), 1);
	close(fd);
	close(first);
}

/* More silent connections than may wait, some with half a JOIN: streams still join, even late and in parts. */
static void silent_connections_delay_no_stream(void **state)
{
	uint8_t frame[WIRE_HEADER + WIRE_SECRET];
	struct site *s = *state;
	int silent[50], late, fd;

	s->join.want = 2;
	for (unsigned int i = 0; i < 50; i++) {
		silent[i] = join_connect(s, "GTWT", i % 3 ? 0 : 4);
		assert_int_equal(step(s), 0);
	}
	assert_int_equal(steps(s, 60), 0);
	assert_in_range(s->join.nr_candidates, 1, JOIN_CANDIDATES);
	/* The oldest were closed. */
	assert_true(closed(silent[0]));
	join_frame(s, 0, frame);
	late = join_connect(s, frame, 10);
	assert_int_equal(steps(s, 3), 0);
	fd = join_connect(s, frame, join_frame(s, 1, frame));
	assert_int_equal(steps(s, 3), 0);
	join_frame(s, 0, frame);
	assert_int_equal(sock_send(late, frame + 10, sizeof(frame) - 10, deadline_ms(500)), 0);
	assert_int_equal(steps(s, 5), 1);
	close(late);
	close(fd);
	for (unsigned int i = 0; i < 50; i++)
		close(silent[i]);
}

/* The caller's own descriptor ends a step. */
static void another_descriptor_wakes(void **state)
{
	struct site *s = *state;
	uint64_t start = now_ns();

	s->join.want = 1;
	assert_int_equal(write(s->other[1], "x", 1), 1);
	assert_int_equal(join_step(&s->join, s->other[0], 60000), 0);
	assert_in_range(now_ns() - start, 0, 20000000000);
}

static void secrets_differ(void **state)
{
	struct site *s = *state;
	struct join other;

	assert_int_equal(join_init(&other, s->lfd), 0);
	assert_memory_not_equal(other.secret, s->join.secret, WIRE_SECRET);
}

/*
 * A sender that has begun more connections than are wanted, before it was told the secret and before any of them was
 * accepted: those that are too many end, and keep no stream out.
 */
static void begun_early(void **state)
{
	struct site *s = *state;
	struct dial d = { .n = WIRE_STREAMS_MAX, .addr = s->addr, .patience_ms = 2000 };
	int control = join_connect(s, NULL, 0), fds[WIRE_STREAMS_MAX], theirs[WIRE_STREAMS_MAX], first, r = 0;
	struct tls *tls[WIRE_STREAMS_MAX];
	struct err e = { 0 };

	close(accept(s->lfd, NULL, NULL));
	dial_init(&d);
	assert_int_equal(dial_begin(&d, control, &e), 0);
	first = d.fds[0];
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++)
		assert_true(d.fds[i] >= 0);
	s->join.want = d.n = 3;
	memcpy(d.secret, s->join.secret, WIRE_SECRET);
	/* One was lost in between, and begins anew. */
	close(d.fds[1]);
	d.fds[1] = -1;
	assert_int_equal(dial_begin(&d, control, &e), 0);
	assert_int_equal(d.fds[0], first);
	assert_true(d.fds[1] >= 0);
	assert_int_equal(d.fds[3], -1);
	assert_int_equal(dial_join(&d, &e), 0);
	for (unsigned int i = 0; !r && i < 100; i++)
		r = join_step(&s->join, s->other[0], 20);
	assert_int_equal(r, 1);
	join_take(&s->join, fds, tls);
	dial_take(&d, theirs, tls);
	assert_int_equal(theirs[0], first);
	dial_close(&d);	/* nothing of it is there any more */
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(sock_send(theirs[i], "x", 1, deadline_ms(1000)), 0);
		assert_int_equal(sock_wait(fds[i], POLLIN, deadline_ms(1000)), 0);
		close(theirs[i]);
		close(fds[i]);
	}
	close(control);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(streams_join_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers_are_rejected, setup, teardown),
		cmocka_unit_test_setup_teardown(silent_connections_delay_no_stream, setup, teardown),
		cmocka_unit_test_setup_teardown(another_descriptor_wakes, setup, teardown),
		cmocka_unit_test_setup_teardown(secrets_differ, setup, teardown),
		cmocka_unit_test_setup_teardown(begun_early, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
