// SPDX-License-Identifier: GPL-2.0-only
/* Where a receiver is: a UNIX socket does what a TCP address does, for its owner only, and leaves nothing behind. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/address.h"
#include "net/sock.h"

#define TCP	"127.0.0.1:24391"	/* below those that connections get */
#define MANY	100	/* more than wait at a listener */

static char unix_addr[64];
static const char *const addresses[] = { TCP, unix_addr };

static int setup(void **state)
{
	static char dir[] = "/tmp/godwit-address-XXXXXX";

	(void)state;
	if (!*unix_addr && !mkdtemp(dir))
		return -1;
	snprintf(unix_addr, sizeof(unix_addr), "unix:%s/sock", dir);
	return 0;
}

static int teardown(void **state)
{
	char *end = strrchr(unix_addr, '/');

	(void)state;
	*end = '\0';
	return rmdir(address_path(unix_addr));
}

static void addresses_are_told_apart(void **state)
{
	const struct { const char *addr; int local; } cases[] = {
		{ "unix:/x", 1 }, { "unix:/a b:1", 1 }, { "unix:", -EINVAL }, { "unix:x", -EINVAL }, { "unix:./x", -EINVAL },
		{ "unix:4433", 0 },
		{ "127.0.0.1:1", 1 }, { "10.0.0.1:1", 0 }, { "unix", -EINVAL }, { "/x", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(address_is_local(cases[i].addr), cases[i].local);
	assert_string_equal(address_path("unix:/x"), "/x");
	assert_null(address_path("127.0.0.1:1"));
	assert_int_equal(address_connect("unix:x", deadline_ms(100)), -EINVAL);
	assert_int_equal(address_connect("unix:/nowhere", deadline_ms(100)), -ENOENT);
}

static int accepted(int lfd)
{
	int fd = -EAGAIN;

	for (uint64_t end = deadline_ms(20000); fd == -EAGAIN && now_ns() < end; nap_ms(1))
		fd = sock_accept(lfd);
	assert_true(fd >= 0);
	return fd;
}

static void passes_a_byte(int a, int b)
{
	char byte = 0;

	assert_int_equal(sock_tcp_connected(a, deadline_ms(2000)), 0);
	assert_int_equal(sock_send(a, "x", 1, deadline_ms(2000)), 0);
	assert_int_equal(sock_recv(b, &byte, 1, deadline_ms(2000)), 0);
	assert_int_equal(byte, 'x');
}

static void connections_come_about(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const char *addr = addresses[i];
		int lfd = address_listen(addr), a, b, c, d;
		char again[ADDRESS_MAX];

		assert_true(lfd >= 0);
		a = address_connect(addr, deadline_ms(2000));
		b = accepted(lfd);
		passes_a_byte(a, b);
		assert_int_equal(address_of_peer(addr, a, again), 0);
		assert_string_equal(again, addr);
		c = address_connect_again(addr, a);
		d = accepted(lfd);
		passes_a_byte(c, d);
		close(a);
		close(b);
		close(c);
		close(d);
		assert_int_equal(address_listen(addr), -EADDRINUSE);
		address_close(addr, lfd, true);
	}
	assert_int_equal(access(address_path(unix_addr), F_OK), -1);
}

static void refused_and_heard_again(void **state)
{
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const char *addr = addresses[i];
		int lfd = address_listen(addr), fd;

		assert_true(lfd >= 0);
		for (int turn = 0; turn < 3; turn++) {
			assert_int_equal(address_refuse(addr, lfd), 0);
			fd = address_connect(addr, deadline_ms(1000));
			assert_int_equal(fd, i ? -ENOENT : -ECONNREFUSED);
			assert_int_equal(address_listen_again(addr, lfd), 0);
			fd = address_connect(addr, deadline_ms(1000));
			assert_true(fd >= 0);
			close(accepted(lfd));
			close(fd);
		}
		address_close(addr, lfd, true);
	}
}

/* Those that came before are told as well, and a path that somebody has removed is no obstacle. */
static void who_waits_is_refused(void **state)
{
	int lfd = address_listen(unix_addr), fd;
	char byte;

	(void)state;
	assert_true(lfd >= 0);
	fd = address_connect(unix_addr, deadline_ms(1000));
	assert_true(fd >= 0);
	assert_int_equal(address_refuse(unix_addr, lfd), 0);
	assert_int_equal(sock_recv(fd, &byte, 1, deadline_ms(1000)), -ECONNRESET);
	close(fd);
	assert_int_equal(address_refuse(unix_addr, lfd), 0);
	assert_int_equal(address_listen_again(unix_addr, lfd), 0);
	address_close(unix_addr, lfd, true);
}

/* Another receiver has taken the path meanwhile: it keeps it. */
static void who_refuses_takes_nothing_back(void **state)
{
	int lfd = address_listen(unix_addr), other;

	(void)state;
	assert_true(lfd >= 0);
	assert_int_equal(address_refuse(unix_addr, lfd), 0);
	other = address_listen(unix_addr);
	assert_true(other >= 0);
	assert_int_equal(address_listen_again(unix_addr, lfd), -EADDRINUSE);
	address_close(unix_addr, lfd, false);
	assert_int_equal(access(address_path(unix_addr), F_OK), 0);
	address_close(unix_addr, other, true);
}

/* The port stays ours while it refuses, also before who may share one, and with a connection that goes on. */
static void nobody_takes_the_port_meanwhile(void **state)
{
	const char *addr = addresses[0];
	int lfd = address_listen(addr), fd, goes_on;

	(void)state;
	assert_true(lfd >= 0);
	fd = address_connect(addr, deadline_ms(1000));
	assert_true(fd >= 0);
	goes_on = accepted(lfd);
	for (int turn = 0; turn < 2; turn++) {
		assert_int_equal(address_refuse(addr, lfd), 0);
		assert_int_equal(address_listen(addr), -EADDRINUSE);
		assert_int_equal(address_listen_again(addr, lfd), 0);
	}
	close(goes_on);
	close(fd);
	address_close(addr, lfd, true);
	/* Nor does what TCP keeps of that connection for a minute hold up the next receiver. */
	lfd = address_listen(addr);
	assert_true(lfd >= 0);
	address_close(addr, lfd, true);
}

static void only_the_owner_connects(void **state)
{
	int lfd = address_listen(unix_addr);
	struct stat st;

	(void)state;
	assert_true(lfd >= 0);
	assert_int_equal(stat(address_path(unix_addr), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	address_close(unix_addr, lfd, true);
}

static void what_a_killed_one_left_is_replaced(void **state)
{
	int lfd = address_listen(unix_addr);

	(void)state;
	assert_true(lfd >= 0);
	close(lfd);
	lfd = address_listen(unix_addr);
	assert_true(lfd >= 0);
	address_close(unix_addr, lfd, true);
}

static void *take_all(void *arg)
{
	nap_ms(50);
	for (int i = 0; i < MANY; i++)
		close(accepted(*(int *)arg));
	return NULL;
}

/* A UNIX socket says at once that too many wait; TCP would ask again. */
static void more_than_may_wait(void **state)
{
	int lfd = address_listen(unix_addr), fds[MANY];
	pthread_t taker;

	(void)state;
	assert_true(lfd >= 0);
	assert_int_equal(pthread_create(&taker, NULL, take_all, &lfd), 0);
	for (int i = 0; i < MANY; i++) {
		fds[i] = address_connect(unix_addr, deadline_ms(5000));
		assert_true(fds[i] >= 0);
	}
	pthread_join(taker, NULL);
	for (int i = 0; i < MANY; i++)
		close(fds[i]);
	address_close(unix_addr, lfd, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_told_apart),
		cmocka_unit_test(connections_come_about),
		cmocka_unit_test(refused_and_heard_again),
		cmocka_unit_test(who_waits_is_refused),
		cmocka_unit_test(who_refuses_takes_nothing_back),
		cmocka_unit_test(nobody_takes_the_port_meanwhile),
		cmocka_unit_test(only_the_owner_connects),
		cmocka_unit_test(what_a_killed_one_left_is_replaced),
		cmocka_unit_test(more_than_may_wait),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
