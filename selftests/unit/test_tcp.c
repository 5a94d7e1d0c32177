// SPDX-License-Identifier: GPL-2.0-only
/* TCP's own: addresses, connections that are made or are not in time, and what the kernel tells of one. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/sock.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define MS		1000000ull
#define BIG		(4u << 20)

static void test_addresses(void **state)
{
	static char no_name[80 + 4];
	const struct { const char *addr; int loopback; } cases[] = {
		{ "127.0.0.1:1", 1 }, { "127.9.8.7:65535", 1 }, { "[::1]:7", 1 }, { "[::ffff:127.0.0.1]:7", 1 },
		{ "localhost:4444", 1 }, { "0.0.0.0:4444", 0 }, { "10.0.0.1:0", 0 }, { "[::]:1", 0 }, { "[2001:db8::1]:1", 0 },
		{ "[::ffff:10.0.0.1]:1", 0 }, { no_name, 0 }, { "128.0.0.1:1", 0 },
		{ "", -EINVAL }, { ":", -EINVAL }, { ":1", -EINVAL }, { "127.0.0.1", -EINVAL }, { "127.0.0.1:", -EINVAL },
		{ "127.0.0.1:65536", -EINVAL }, { "127.0.0.1:99999999999", -EINVAL }, { "127.0.0.1:-1", -EINVAL },
		{ "127.0.0.1:+1", -EINVAL }, { "127.0.0.1: 1", -EINVAL }, { "127.0.0.1:http", -EINVAL }, { "127.0.0.1:1x", -EINVAL },
		{ "::1:80", -EINVAL }, { "[::1]", -EINVAL }, { "[]:1", -EINVAL }, { "[::1:1", -EINVAL }, { "::1]:1", -EINVAL },
		{ "[localhost]:1", -EINVAL }, { "[127.0.0.1]:1", -EINVAL }, { "[::1]x:1", -EINVAL }, { "a b:1", -EINVAL },
	};

	(void)state;
	memset(no_name, 'x', 80);	/* longer than a label may be: no look-up */
	strcpy(no_name + 80, ":1");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int r = sock_is_loopback(cases[i].addr);

		if (r != cases[i].loopback)
			print_message("%s: %d\n", cases[i].addr, r);
		assert_int_equal(r, cases[i].loopback);
	}
	assert_int_equal(sock_tcp_connect(no_name, deadline_ms(100)), -ENONET);
	assert_int_equal(sock_tcp_connect("127.0.0.1", deadline_ms(100)), -EINVAL);
	assert_int_equal(sock_tcp_listen(no_name), -ENONET);
	assert_int_equal(sock_tcp_listen("nonsense"), -EINVAL);
}

/* Where a listener ended up, as an address. */
static void where(int fd, char *addr, size_t len)
{
	struct sockaddr_storage ss;
	socklen_t n = sizeof(ss);

	assert_int_equal(getsockname(fd, (struct sockaddr *)&ss, &n), 0);
	if (ss.ss_family == AF_INET6)
		snprintf(addr, len, "[::1]:%d", ntohs(((struct sockaddr_in6 *)&ss)->sin6_port));
	else
		snprintf(addr, len, "127.0.0.1:%d", ntohs(((struct sockaddr_in *)&ss)->sin_port));
}

static int option(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	getsockopt(fd, level, name, &value, &len);
	return value;
}

static void tcp_once(const char *at)
{
	int listener = sock_tcp_listen(at), a, b, again[2];
	char addr[64], buf[4];

	if (listener < 0 && at[0] == '[') {
		print_message("no IPv6 here: %s\n", strerror(-listener));
		return;
	}
	assert_true(listener >= 0);
	assert_true(fcntl(listener, F_GETFL) & O_NONBLOCK);
	where(listener, addr, sizeof(addr));
	a = sock_tcp_connect(addr, deadline_ms(2000));
	assert_true(a >= 0);
	assert_true(fcntl(a, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(a, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(sock_wait(listener, POLLIN, deadline_ms(2000)), 0);
	b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	assert_int_equal(sock_send(a, "abcd", 4, deadline_ms(2000)), 0);
	assert_int_equal(sock_recv(b, buf, 4, deadline_ms(2000)), 0);
	assert_memory_equal(buf, "abcd", 4);

	assert_int_equal(sock_tune(a, 8000), 0);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_NODELAY), 1);
	assert_int_equal(option(a, SOL_SOCKET, SO_KEEPALIVE), 1);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_USER_TIMEOUT), 8000);
	assert_in_range(option(a, IPPROTO_TCP, TCP_KEEPIDLE) +
			option(a, IPPROTO_TCP, TCP_KEEPINTVL) * option(a, IPPROTO_TCP, TCP_KEEPCNT), 1, 8);
	assert_int_equal(sock_tune(a, 3600000), 0);
	/* Firewalls forget a connection without a sign of life. */
	assert_in_range(option(a, IPPROTO_TCP, TCP_KEEPIDLE), 1, 59);
	assert_in_range(option(a, IPPROTO_TCP, TCP_KEEPINTVL), 1, 59);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_USER_TIMEOUT), 3600000);
	assert_int_equal(sock_tune(a, 10), 0);
	sock_set_unsent(a, 12345);
	assert_int_equal(option(a, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 12345);

	/* Two more to the same address, under way at once. */
	for (unsigned int i = 0; i < 2; i++)
		assert_true((again[i] = sock_tcp_begin_again(a)) >= 0);
	for (unsigned int i = 0; i < 2; i++) {
		assert_int_equal(sock_tcp_connected(again[i], deadline_ms(2000)), 0);
		assert_int_equal(sock_send(again[i], "abcd", 4, deadline_ms(2000)), 0);
	}
	for (unsigned int i = 0; i < 2; i++) {
		int peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK);

		assert_int_equal(sock_recv(peer, buf, 4, deadline_ms(2000)), 0);
		close(peer);	/* before this end, as below */
		close(again[i]);
	}
	close(b);	/* first, so that TIME_WAIT is at this end */
	close(a);
	close(listener);
	assert_int_equal(sock_tcp_connect(addr, deadline_ms(2000)), -ECONNREFUSED);
	/* A receiver that is started again must have its address. */
	listener = sock_tcp_listen(addr);
	assert_true(listener >= 0);
	assert_int_equal(sock_tcp_listen(addr), -EADDRINUSE);
	close(listener);
}

/* A peer that takes its time to answer does not make the link longer, though it acknowledges late. */
static void test_round_trip(void **state)
{
	int listener = sock_tcp_listen("127.0.0.1:0"), a, b;
	char addr[64], buf[1];

	(void)state;
	where(listener, addr, sizeof(addr));
	a = sock_tcp_connect(addr, deadline_ms(2000));
	assert_int_equal(sock_wait(listener, POLLIN, deadline_ms(2000)), 0);
	b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	for (unsigned int i = 0; i < 24; i++) {
		assert_int_equal(sock_send(a, "?", 1, deadline_ms(2000)), 0);
		assert_int_equal(sock_recv(b, buf, 1, deadline_ms(2000)), 0);
		nap_ms(25);
		assert_int_equal(sock_send(b, "!", 1, deadline_ms(2000)), 0);
		assert_int_equal(sock_recv(a, buf, 1, deadline_ms(2000)), 0);
	}
	assert_in_range(sock_least_rtt_ns(a), 1, 5 * MS);
	assert_in_range(sock_rtt_ns(a), 5 * MS, 100 * MS);
	close(b);
	close(a);
	close(listener);
}

static void test_tcp(void **state)
{
	(void)state;
	tcp_once("127.0.0.1:0");
	tcp_once("[::1]:0");
}

/* Loopback drops the SYN when the listener's queue is full: a host that does not answer. */
static int deaf_listener(char *addr, size_t len, int *fill)
{
	int fd = sock_tcp_listen("127.0.0.1:0");

	assert_int_equal(listen(fd, 0), 0);
	where(fd, addr, len);
	*fill = sock_tcp_connect(addr, deadline_ms(2000));
	assert_true(*fill >= 0);
	return fd;
}

static void test_connect_ends_in_time(void **state)
{
	char addr[64];
	int fill, fd = deaf_listener(addr, sizeof(addr), &fill), status, ready[2];
	uint64_t start = now_ns();
	pid_t child;
	char byte;

	(void)state;
	assert_int_equal(sock_tcp_connect(addr, deadline_ms(300)), -ETIMEDOUT);
	assert_in_range(now_ns() - start, 300 * MS, 10000 * MS);

	/* In a child, because a stop is for ever. */
	assert_int_equal(pipe(ready), 0);
	start = now_ns();
	child = fork();
	if (child == 0) {
		stop_install();
		if (write(ready[1], "", 1) != 1)
			_exit(9);
		_exit(sock_tcp_connect(addr, deadline_ms(20000)) == -EINTR ? 7 : 8);
	}
	/* Not before it can hear it; then in the middle of connecting, most of the time. */
	assert_int_equal(read(ready[0], &byte, 1), 1);
	nap_ms(100);
	kill(child, SIGTERM);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	assert_in_range(now_ns() - start, 0, 15000 * MS);
	close(ready[0]);
	close(ready[1]);
	close(fill);
	close(fd);
}

/* What has arrived, and what cannot leave: the peer does not read, and its window closes. */
static void test_progress(void **state)
{
	static uint8_t bytes[BIG];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), peer, local[2];
	socklen_t len = sizeof(at);
	struct sock_progress p;
	ssize_t sent = 10000, more;

	(void)state;
	assert_int_equal(bind(l, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(l, 1), 0);
	assert_int_equal(getsockname(l, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, len), 0);
	peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	assert_true(peer >= 0);
	assert_int_equal(send(fd, bytes, (size_t)sent, 0), sent);
	for (unsigned int i = 0; sock_progress(fd).acked < 10000 && i < 5000; i++)
		nap_ms(1);
	p = sock_progress(fd);
	/* TCP counts its first packet as a byte. */
	assert_in_range(p.acked, 10000, 10001);
	assert_int_equal(p.waiting, 0);
	while ((more = send(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0 || (nap_ms(20), more = send(fd, bytes, 1, MSG_DONTWAIT)) > 0)
		sent += more;
	for (unsigned int i = 0; i < 200; i++)
		nap_ms(1);
	p = sock_progress(fd);
	assert_true(p.acked > 10000 && p.acked < (uint64_t)sent);
	assert_in_range(p.acked + p.waiting, (uint64_t)sent, (uint64_t)sent + 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, local), 0);
	p = sock_progress(local[0]);
	assert_int_equal(p.acked + p.waiting, 0);
	close(local[0]);
	close(local[1]);
	close(peer);
	close(fd);
	close(l);
}

/* What comes to it is lost, each with this chance of 2^32; 0: nothing more is. */
static void lose(int fd, uint32_t chance)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_RANDOM)),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, chance, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	};
	struct sock_fprog all = { .len = ARRAY_SIZE(code), .filter = code };

	if (chance)
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)), 0);
	else
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &chance, sizeof(chance)), 0);
}

static void pass_on(int from, int to, unsigned int kib)
{
	static char bytes[64 << 10];

	for (unsigned int sent = 0, got = 0; got < kib << 10;) {
		ssize_t n = sent < kib << 10 ? send(from, bytes, sizeof(bytes), MSG_DONTWAIT) : 0;

		sent += n > 0 ? (unsigned int)n : 0;
		n = recv(to, bytes, sizeof(bytes), MSG_DONTWAIT);
		got += n > 0 ? (unsigned int)n : 0;
		if (n < 0)
			assert_int_equal(sock_wait(to, POLLIN, deadline_ms(20000)), 0);
	}
}

static void connected(int listener, int *a, int *b)
{
	char addr[64];

	where(listener, addr, sizeof(addr));
	*a = sock_tcp_connect(addr, deadline_ms(2000));
	assert_int_equal(sock_wait(listener, POLLIN, deadline_ms(2000)), 0);
	*b = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	assert_true(*a >= 0 && *b >= 0);
}

/* What was sent again is as much as was lost: nothing, or about every tenth. */
static void test_what_is_lost(void **state)
{
	const int mss = 1400;
	int listener = sock_tcp_listen("127.0.0.1:0"), a, b;
	struct sock_sent before, now;
	unsigned int times = 0;

	(void)state;
	assert_int_equal(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof(mss)), 0);
	connected(listener, &a, &b);
	pass_on(a, b, 2048);
	before = sock_sent(a);
	assert_in_range(before.segment, 1000, 1400);
	assert_in_range(before.segments, (2048 << 10) / 1400, (2048 << 10) / 700);
	assert_int_equal(before.again, 0);
	/* As many segments are lost at once as come at once, so that all may be there by chance. */
	lose(b, UINT32_MAX / 10);
	do
		pass_on(a, b, 2048);
	while (!sock_sent(a).again && ++times < 50);
	lose(b, 0);
	now = sock_sent(a);
	assert_in_range(now.again, 1, now.segments / 2);
	assert_in_range(now.segments - now.again, (times + 1) * before.segments, (times + 4) * before.segments);
	close(a);
	close(b);
	close(listener);
}

/* What is sent again since its acknowledgement was away was there: the peer says that it has it twice. */
static void test_what_is_late_is_not_lost(void **state)
{
	int listener = sock_tcp_listen("127.0.0.1:0"), a, b;
	struct sock_sent now;
	uint64_t segments;
	char byte = 0;

	(void)state;
	connected(listener, &a, &b);
	lose(a, UINT32_MAX);
	assert_int_equal(sock_send(a, &byte, 1, deadline_ms(2000)), 0);
	assert_int_equal(sock_recv(b, &byte, 1, deadline_ms(2000)), 0);
	segments = sock_sent(a).segments;
	for (unsigned int i = 0; sock_sent(a).segments < segments + 2 && i < 1000; i++)
		nap_ms(10);
	assert_true(sock_sent(a).again >= 2);
	lose(a, 0);
	for (unsigned int i = 0; sock_queued(a) && i < 1000; i++)
		nap_ms(10);
	assert_int_equal(sock_queued(a), 0);
	now = sock_sent(a);
	assert_true(now.segments >= segments + 3);
	/* As far as it was heard: what it said before was away as well. */
	assert_in_range(now.again, 0, now.segments - segments - 1);
	close(a);
	close(b);
	close(listener);
}

/* A peer that does not read makes its window full, and that is told apart from a full buffer of this end. */
static void test_whose_window_is_full(void **state)
{
	const int small = 16 << 10;
	int listener = sock_tcp_listen("127.0.0.1:0"), a, b, local[2];
	struct sock_sent before, now;
	char bytes[4096] = "";

	(void)state;
	assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	connected(listener, &a, &b);
	while (send(a, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	before = sock_sent(a);
	nap_ms(200);
	now = sock_sent(a);
	assert_in_range(now.window_ns - before.window_ns, 100 * MS, now.busy_ns - before.busy_ns);
	assert_int_equal(now.buffer_ns, before.buffer_ns);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, local), 0);
	now = sock_sent(local[0]);
	assert_int_equal(now.segments + now.again + now.segment + now.busy_ns + now.window_ns, 0);
	close(local[0]);
	close(local[1]);
	close(a);
	close(b);
	close(listener);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_what_is_lost), cmocka_unit_test(test_what_is_late_is_not_lost), cmocka_unit_test(test_whose_window_is_full),
	cmocka_unit_test(test_progress),
	cmocka_unit_test(test_addresses),
	cmocka_unit_test(test_tcp), cmocka_unit_test(test_round_trip),
	cmocka_unit_test(test_connect_ends_in_time),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
