// SPDX-License-Identifier: GPL-2.0-only
/* Who is let in while streams are expected, and that nobody else is in the way. */
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

#include "io/door.h"
#include "io/sock.h"

struct street {
	struct door door;
	int lfd, other[2];
	char addr[32];
};

static int setup(void **state)
{
	struct street *s = calloc(1, sizeof(*s));
	struct sockaddr_in in;
	socklen_t len = sizeof(in);

	s->lfd = sock_tcp_listen("127.0.0.1:0");
	assert_true(s->lfd >= 0);
	assert_int_equal(getsockname(s->lfd, (struct sockaddr *)&in, &len), 0);
	snprintf(s->addr, sizeof(s->addr), "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s->other), 0);
	assert_int_equal(door_init(&s->door, s->lfd), 0);
	*state = s;
	return 0;
}

static int teardown(void **state)
{
	struct street *s = *state;

	door_close(&s->door);
	close(s->lfd);
	close(s->other[0]);
	close(s->other[1]);
	free(s);
	return 0;
}

static int visit(struct street *s, const void *say, size_t len)
{
	int fd = sock_tcp_connect(s->addr, deadline_ms(2000));

	assert_true(fd >= 0);
	if (len)
		assert_int_equal(sock_send(fd, say, len, deadline_ms(2000)), 0);
	return fd;
}

static size_t join(const struct street *s, unsigned int stream, uint8_t said[WIRE_HEADER + WIRE_SECRET])
{
	struct wire_header h = { .type = WIRE_JOIN, .arg = stream, .length = WIRE_SECRET };

	wire_put_header(said, &h);
	memcpy(said + WIRE_HEADER, s->door.secret, WIRE_SECRET);
	return WIRE_HEADER + WIRE_SECRET;
}

static int step(struct street *s)
{
	return door_step(&s->door, s->other[0], 20);
}

/* Some steps; the answer of the last one. */
static int steps(struct street *s, unsigned int n)
{
	int r = 0;

	while (n-- && !(r = step(s)))
		;
	return r;
}

static bool hung_up_on(int fd)
{
	char c;

	return !sock_wait(fd, POLLIN, deadline_ms(500)) && sock_recv_some(fd, &c, 1) <= 0;
}

static void streams_join_in_any_order(void **state)
{
	uint8_t said[WIRE_HEADER + WIRE_SECRET];
	static const unsigned int order[] = { 2, 0, 1 };
	struct street *s = *state;
	int fds[3], in[3];
	char c;

	s->door.want = 3;
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(steps(s, 2), 0);
		fds[order[i]] = visit(s, said, join(s, order[i], said));
	}
	/* The first frame may come right behind the JOIN: it is not the door's. */
	assert_int_equal(sock_send(fds[1], "x", 1, deadline_ms(100)), 0);
	assert_int_equal(steps(s, 10), 1);
	door_take(&s->door, in);
	door_close(&s->door);
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
static void strangers_are_hung_up_on(void **state)
{
	uint8_t said[WIRE_HEADER + WIRE_SECRET];
	struct street *s = *state;
	int fd, first;

	s->door.want = 2;
	first = visit(s, said, join(s, 0, said));
	assert_int_equal(steps(s, 3), 0);
	for (unsigned int i = 0; i < WIRE_SECRET; i++) {
		join(s, 1, said);
		said[WIRE_HEADER + i] ^= 1 << i % 8;
		fd = visit(s, said, sizeof(said));
		assert_int_equal(steps(s, 3), 0);
		assert_true(hung_up_on(fd));
		close(fd);
	}
	for (unsigned int wrong = 0; wrong < 4; wrong++) {
		struct wire_header h = { .type = WIRE_PING, .length = 8 };

		join(s, wrong == 0 ? 0 : 2, said);	/* taken; one too many */
		if (wrong == 2)
			wire_put_header(said, &h);
		if (wrong == 3)
			memset(said, 'G', sizeof(said));
		fd = visit(s, said, sizeof(said));
		assert_int_equal(steps(s, 3), 0);
		assert_true(hung_up_on(fd));
		close(fd);
	}
	/* One that goes away before it has said all. */
	close(visit(s, said, 7));
	assert_int_equal(steps(s, 3), 0);
	assert_int_equal(s->door.nr_guests, 0);
	fd = visit(s, said, join(s, 1, said));
	assert_int_equal(steps(s, 3), 1);
	close(fd);
	close(first);
}

/* More silent ones than may wait, and some that say half: streams still get in, even when they come late and in parts. */
static void silence_holds_nobody_up(void **state)
{
	uint8_t said[WIRE_HEADER + WIRE_SECRET];
	struct street *s = *state;
	int silent[50], late, fd;

	s->door.want = 2;
	for (unsigned int i = 0; i < 50; i++) {
		silent[i] = visit(s, "GTWT", i % 3 ? 0 : 4);
		assert_int_equal(step(s), 0);
	}
	assert_int_equal(steps(s, 60), 0);
	assert_in_range(s->door.nr_guests, 1, DOOR_GUESTS);
	/* Those that came first had to go. */
	assert_true(hung_up_on(silent[0]));
	join(s, 0, said);
	late = visit(s, said, 10);
	assert_int_equal(steps(s, 3), 0);
	fd = visit(s, said, join(s, 1, said));
	assert_int_equal(steps(s, 3), 0);
	join(s, 0, said);
	assert_int_equal(sock_send(late, said + 10, sizeof(said) - 10, deadline_ms(500)), 0);
	assert_int_equal(steps(s, 5), 1);
	close(late);
	close(fd);
	for (unsigned int i = 0; i < 50; i++)
		close(silent[i]);
}

/* The caller's own descriptor ends a step. */
static void another_descriptor_wakes(void **state)
{
	struct street *s = *state;
	uint64_t start = now_ns();

	s->door.want = 1;
	assert_int_equal(write(s->other[1], "x", 1), 1);
	assert_int_equal(door_step(&s->door, s->other[0], 2000), 0);
	assert_in_range(now_ns() - start, 0, 1000000000);
}

static void secrets_differ(void **state)
{
	struct street *s = *state;
	struct door other;

	assert_int_equal(door_init(&other, s->lfd), 0);
	assert_memory_not_equal(other.secret, s->door.secret, WIRE_SECRET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(streams_join_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(strangers_are_hung_up_on, setup, teardown),
		cmocka_unit_test_setup_teardown(silence_holds_nobody_up, setup, teardown),
		cmocka_unit_test_setup_teardown(another_descriptor_wakes, setup, teardown),
		cmocka_unit_test_setup_teardown(secrets_differ, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
