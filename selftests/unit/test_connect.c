// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the streams join: over a long link beside the clocks' PINGs, and whatever the receiver may say meanwhile is taken; on a link that
 * came back, and on a short one, once the clocks are known. The receiver is here, over loopback, whose round trip is said to be long.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/sock.h"
#include "peer/hello.h"
#include "send/sender_internal.h"

#define MS	1000000ull
#define STREAMS	3u

/* link: -Wl,--wrap for these */
uint64_t __wrap_sock_least_rtt_ns(int fd);
int __wrap_send_streams_start(const struct send_streams_options *o, const int *fds, unsigned int n, struct send_streams **out,
			      struct err *e);

static uint64_t rtt_ns;
static unsigned int started;
/* Views of both ends, as if they had been compared. */
static json_t *here, *there;
static unsigned int bandwidth;

uint64_t __wrap_sock_least_rtt_ns(int fd)
{
	(void)fd;
	return rtt_ns;
}

int __wrap_send_streams_start(const struct send_streams_options *o, const int *fds, unsigned int n, struct send_streams **out,
			      struct err *e)
{
	(void)o, (void)e;
	*out = NULL;
	for (started = 0; started < n; started++)
		close(fds[started]);
	return 0;
}

/* The sender, in a thread of its own, and the receiver's sockets. */
struct both {
	struct sender_options o;
	struct report report;
	struct sender s;
	pthread_t thread;
	bool again;		/* its link came back */
	int r;
	struct err e;
	char addr[32];
	int lfd, control, stream[STREAMS];
};

static void *sender_main(void *arg)
{
	struct both *b = arg;
	const struct hello_peer peer = { .addr = b->addr, .engine = b->o.engine, .timeout_ms = b->o.timeout_ms };
	const uint8_t secret[WIRE_SECRET] = { 0 };
	uint64_t features;

	if (!b->again)
		b->r = connect_peer(&b->s, &b->e);
	else if (!(b->r = hello(&peer, &b->s.ch, &features, &b->e)))
		b->r = connect_open_streams(&b->s, secret, STREAMS, &b->e);
	return NULL;
}

/* No wait of the test's is for ever. */
static int listener(char *addr, size_t size)
{
	const struct timeval most = { .tv_sec = 20 };
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	int fd = sock_tcp_listen("127.0.0.1:0");

	assert_true(fd >= 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	snprintf(addr, size, "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)), 0);
	return fd;
}

static int comes(int lfd)
{
	const struct timeval most = { .tv_sec = 20 };
	int fd = accept(lfd, NULL, NULL);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)), 0);
	return fd;
}

static struct wire_header hears(int fd, enum wire_type type)
{
	uint8_t head[WIRE_HEADER], body[256];
	struct wire_header h;

	assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL), sizeof(head));
	assert_int_equal(wire_get_header(head, &h), 0);
	assert_int_equal(h.type, type);
	assert_true(h.length <= sizeof(body));
	assert_int_equal(recv(fd, body, h.length, MSG_WAITALL), h.length);
	return h;
}

/* Each body is long enough, and begins with these. */
static void says(int fd, enum wire_type type, uint32_t arg, uint32_t length, uint64_t first, uint64_t second)
{
	const struct wire_header h = { .type = (uint16_t)type, .arg = arg, .length = length };
	uint8_t frame[WIRE_HEADER + 64] = { 0 };

	wire_put_header(frame, &h);
	wire_put_u64(frame + WIRE_HEADER, first);
	wire_put_u64(frame + WIRE_HEADER + 8, second);
	assert_int_equal(send(fd, frame, WIRE_HEADER + length, MSG_NOSIGNAL), WIRE_HEADER + length);
}

/* Up to STREAMS, behind which the sender's PINGs come. */
static void begin(struct both *b, uint64_t round_trip_ns, bool again)
{
	rtt_ns = round_trip_ns;
	started = 0;
	*b = (struct both) {
		.o = { .addr = b->addr, .engine = &engine_poll, .timeout_ms = 20000, .streams = STREAMS, .no_compare = true },
		.s = { .o = &b->o, .report = &b->report, .limits.postcopy = POSTCOPY_OFF, .mode = MODE_MIGRATE,
		       .devstate = &devstate_migrate, .owing = OWING_NONE },
		.again = again,
	};
	b->s.fit.here = here;
	b->s.fit.there = there;
	b->s.limits.bandwidth_mib = bandwidth;
	b->s.vm.nblocks = 1;
	b->s.vm.blocks[0] = (struct ram_block) { .name = "ram0", .pages = 512, .fd = -1 };
	b->report.streams = STREAMS;
	b->lfd = listener(b->addr, sizeof(b->addr));
	assert_int_equal(pthread_create(&b->thread, NULL, sender_main, b), 0);
	b->control = comes(b->lfd);
	hears(b->control, WIRE_HELLO);
	says(b->control, WIRE_HELLO, WIRE_VERSION, WIRE_HELLO_BODY, WIRE_ONE_WAY | WIRE_LOADS, WIRE_ONE_WAY);
	if (!again) {
		hears(b->control, WIRE_BLOCKS);
		says(b->control, WIRE_READY, STREAMS, WIRE_SECRET, 1, 2);
	}
	assert_int_equal(hears(b->control, WIRE_STREAMS).arg, STREAMS);
	for (unsigned int i = 0; i < STREAMS; i++)
		b->stream[i] = comes(b->lfd);
}

static void hears_pings(const struct both *b)
{
	for (uint32_t i = 1; i <= HELLO_AT_ONCE; i++)
		assert_int_equal(hears(b->control, WIRE_PING).arg, i);
}

static void hears_joins(const struct both *b)
{
	for (unsigned int i = 0; i < STREAMS; i++)
		hears(b->stream[i], WIRE_JOIN);
}

static void assert_none_joins(const struct both *b)
{
	uint8_t byte;

	nap_ms(100);
	for (unsigned int i = 0; i < STREAMS; i++) {
		assert_int_equal(recv(b->stream[i], &byte, 1, MSG_DONTWAIT), -1);
		assert_int_equal(errno, EAGAIN);
	}
}

static void pong(const struct both *b, uint32_t serial)
{
	says(b->control, WIRE_PONG, serial, 8, realtime_ns(), 0);
}

static void end(struct both *b, enum gw_exit exit)
{
	pthread_join(b->thread, NULL);
	assert_int_equal(b->e.exit, exit);
	assert_int_equal(b->r, exit ? -EPROTO : 0);
	assert_int_equal(started, exit ? 0 : STREAMS);
	if (!exit)
		assert_in_range(b->s.rtt_ns, 1, 20000 * MS);
	channel_free(b->s.ch);
	for (unsigned int i = 0; i < STREAMS; i++)
		close(b->stream[i]);
	close(b->control);
	close(b->lfd);
}

/* PONG's serials; else a type, and 0: the end. */
struct script {
	uint32_t says[8];
	enum gw_exit exit;
};

static void over_a_long_link(void **state)
{
	static const uint32_t pongs = HELLO_AT_ONCE;
	static const struct script scripts[] = {
		{ { 1, 2, WIRE_STREAMS }, GW_OK },
		{ { 2, WIRE_STREAMS, 1 }, GW_OK },
		{ { WIRE_STREAMS, WIRE_LOAD, 1, WIRE_LOAD, 2 }, GW_OK },
		{ { WIRE_LOAD }, GW_BAD_PEER },
		{ { WIRE_STREAMS, WIRE_LOAD, WIRE_LOAD, WIRE_LOAD }, GW_BAD_PEER },
		{ { WIRE_STREAMS, WIRE_STREAMS }, GW_BAD_PEER },
		{ { 1, 1 }, GW_BAD_PEER },
		{ { 1, 2, WIRE_LOAD }, GW_BAD_PEER },
	};
	struct both b;

	(void)state;
	for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
		begin(&b, 20 * MS, false);
		/* None of them is answered before all have come. */
		hears_pings(&b);
		hears_joins(&b);
		for (const uint32_t *p = scripts[i].says; *p; p++) {
			if (*p <= pongs)
				pong(&b, *p);
			else
				says(b.control, *p, *p == WIRE_STREAMS ? STREAMS : 1, 0, 0, 0);
		}
		end(&b, scripts[i].exit);
	}
}

static void others_than_wanted(void **state)
{
	struct both b;

	(void)state;
	begin(&b, 20 * MS, false);
	hears_pings(&b);
	hears_joins(&b);
	says(b.control, WIRE_STREAMS, STREAMS - 1, 0, 0, 0);
	end(&b, GW_BAD_PEER);
}

static void a_link_that_came_back(void **state)
{
	struct both b;

	(void)state;
	begin(&b, 20 * MS, true);
	hears_pings(&b);
	assert_none_joins(&b);
	pong(&b, 1);
	pong(&b, 2);
	hears_joins(&b);
	says(b.control, WIRE_STREAMS, STREAMS, 0, 0, 0);
	end(&b, GW_OK);
}

static void over_a_short_link(void **state)
{
	struct both b;

	(void)state;
	begin(&b, 1 * MS, false);
	/* One after the other, from 0 on. */
	for (uint32_t i = 0; i < HELLO_AT_ONCE; i++) {
		assert_int_equal(hears(b.control, WIRE_PING).arg, i);
		assert_none_joins(&b);
		pong(&b, i);
	}
	hears_joins(&b);
	says(b.control, WIRE_STREAMS, STREAMS, 0, 0, 0);
	end(&b, GW_OK);
}

/* What a sender over this link says, with that buffer at the destination. */
static void hears_of_buffers(uint64_t round_trip_ns, int receive, char *text, size_t size)
{
	const int file = memfd_create("said", MFD_CLOEXEC), before = dup(STDERR_FILENO);
	struct both b;
	ssize_t n;

	here = json_pack("{s:{s:i}}", "host", "tcp-wmem", 64 << 20);
	there = json_pack("{s:{s:i}}", "host", "tcp-rmem", receive);
	assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
	begin(&b, round_trip_ns, false);
	if (round_trip_ns < 5 * MS) {
		for (uint32_t i = 0; i < HELLO_AT_ONCE; i++) {
			hears(b.control, WIRE_PING);
			nap_ms(100);
			pong(&b, i);
		}
		hears_joins(&b);
	} else {
		hears_pings(&b);
		hears_joins(&b);
		pong(&b, 1);
		pong(&b, 2);
	}
	says(b.control, WIRE_STREAMS, STREAMS, 0, 0, 0);
	end(&b, GW_OK);
	assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
	json_decref(here);
	json_decref(there);
	here = there = NULL;
	n = pread(file, text, size - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	close(before);
	close(file);
}

/* The operator hears which host, which sysctl and which value, and only where it is the limit. */
static void the_destination_has_small_buffers(void **state)
{
	static const struct { uint64_t rtt_ns; int receive; unsigned int bandwidth; const char *says; } cases[] = {
		{ 80 * MS, 1 << 20, 0, "warning: host: the hosts' buffers let 3 connections carry no more than 18.8 MiB/s over a round trip of 80 ms: for 1000 Mbit/s set the third value of net.ipv4.tcp_rmem on the destination's host to 6666668 or more" },
		{ 80 * MS, 1 << 20, 10, NULL }, { 80 * MS, 7 << 20, 0, NULL }, { MS, 1 << 20, 0, NULL },
		{ 80 * MS, 1 << 20, 100, "for 839 Mbit/s" },
	};
	char text[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bandwidth = cases[i].bandwidth;
		hears_of_buffers(cases[i].rtt_ns, cases[i].receive, text, sizeof(text));
		bandwidth = 0;
		if (cases[i].says ? !strstr(text, cases[i].says) : *text)
			fail_msg("%s", text);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(over_a_long_link),
		cmocka_unit_test(others_than_wanted),
		cmocka_unit_test(a_link_that_came_back),
		cmocka_unit_test(over_a_short_link),
		cmocka_unit_test(the_destination_has_small_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
