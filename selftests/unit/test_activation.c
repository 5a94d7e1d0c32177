// SPDX-License-Identifier: GPL-2.0-only
/* A socket that was passed by systemd's protocol: whose it is, what is taken, and what is refused. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/activation.h"
#include "net/sock.h"
#include "net/unix.h"

/* Descriptor 3 becomes fd's twin, blocking and inherited as systemd hands it over; fd is closed. */
static void pass(int fd)
{
	assert_true(fd >= 0);
	if (fd != 3) {
		assert_int_equal(dup2(fd, 3), 3);
		close(fd);
	}
	fcntl(3, F_SETFD, 0);
	fcntl(3, F_SETFL, O_RDWR);
}

static void say(long pid, const char *fds)
{
	char text[24];

	snprintf(text, sizeof(text), "%ld", pid);
	setenv("LISTEN_PID", text, 1);
	setenv("LISTEN_FDS", fds, 1);
	setenv("LISTEN_FDNAMES", "godwit", 1);
}

static int teardown(void **state)
{
	(void)state;
	close(3);
	return 0;
}

/* Of a UNIX socket the name is its path. */
static void a_path_is_taken(void **state)
{
	char path[64], want[80], name[ADDRESS_MAX];
	struct err e = { 0 };
	int fd, peer;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/godwit-activation-%d", getpid());
	snprintf(want, sizeof(want), "unix:%s", path);
	pass(sock_unix_listen(path, 1));
	say(getpid(), "1");
	assert_int_equal(activation_socket(&fd, name, &e), 0);
	assert_string_equal(name, want);
	assert_int_equal(address_is_local(name), 1);
	peer = address_connect(name, deadline_ms(2000));
	assert_true(peer >= 0);
	close(peer);
	unlink(path);
}

static void the_listener_is_taken(void **state)
{
	static const struct { const char *listen, *prefix; } cases[] = {
		{ "127.0.0.1:0", "127.0.0.1:" }, { "0.0.0.0:0", "0.0.0.0:" }, { "[::1]:0", "[::1]:" }, { "[::]:0", "[::]:" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char name[ADDRESS_MAX];
		struct err e = { 0 };
		int fd, peer, in;

		pass(sock_tcp_listen(cases[i].listen));
		say(getpid(), "1");
		assert_int_equal(activation_socket(&fd, name, &e), 0);
		assert_int_equal(fd, 3);
		assert_memory_equal(name, cases[i].prefix, strlen(cases[i].prefix));
		assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
		assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
		/* The name leads there, and says if other hosts can connect. */
		assert_int_equal(sock_is_loopback(name), !strstr(cases[i].listen, "0.0.0.0") && !strstr(cases[i].listen, "[::]"));
		peer = sock_tcp_connect(name, deadline_ms(2000));
		assert_true(peer >= 0);
		assert_int_equal(sock_wait(fd, POLLIN, deadline_ms(2000)), 0);
		in = sock_accept(fd);
		assert_true(in >= 0);
		close(in);
		close(peer);
		/* Once, and children are not told of it. */
		assert_null(getenv("LISTEN_FDS"));
		assert_null(getenv("LISTEN_PID"));
		assert_null(getenv("LISTEN_FDNAMES"));
		assert_int_equal(activation_socket(&fd, name, &e), 0);
		assert_int_equal(fd, -1);
		assert_string_equal(name, "");
	}
}

/* Another process's variables, or none, or nonsense: then descriptor 3 may be any file. */
static void nothing_was_passed(void **state)
{
	static const struct { long pid_off; const char *fds; } cases[] = {
		{ 1, "1" }, { -1, "1" }, { 0, "0" }, { 0, "" }, { 0, "many" },
	};
	char name[ADDRESS_MAX];
	struct err e = { 0 };
	int fd;

	(void)state;
	pass(sock_tcp_listen("127.0.0.1:0"));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		say(getpid() + cases[i].pid_off, cases[i].fds);
		assert_int_equal(activation_socket(&fd, name, &e), 0);
		assert_int_equal(fd, -1);
		assert_string_equal(name, "");
	}
	assert_int_equal(activation_socket(&fd, name, &e), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(fcntl(3, F_GETFD), 0);
}

static void refused(const char *fds, const char *reason)
{
	char name[ADDRESS_MAX];
	struct err e = { 0 };
	int fd;

	say(getpid(), fds);
	assert_int_equal(activation_socket(&fd, name, &e), -EINVAL);
	assert_int_equal(fd, -1);
	assert_int_equal(e.exit, GW_USAGE);
	assert_non_null(strstr(e.text, reason));
}

static void what_is_no_listener_is_refused(void **state)
{
	char name[ADDRESS_MAX];
	struct err e = { 0 };
	int fd, peer;

	(void)state;
	pass(sock_tcp_listen("127.0.0.1:0"));
	refused("2", "one ListenStream=");
	/* A connection (Accept=yes), a datagram socket, a local one, a file, nothing. */
	say(getpid(), "1");
	assert_int_equal(activation_socket(&fd, name, &e), 0);
	peer = sock_tcp_connect(name, deadline_ms(2000));
	assert_int_equal(sock_wait(fd, POLLIN, deadline_ms(2000)), 0);
	pass(sock_accept(fd));
	refused("1", "Accept=no");
	close(peer);
	pass(socket(AF_INET, SOCK_DGRAM, 0));
	refused("1", "Accept=no");
	pass(socket(AF_UNIX, SOCK_STREAM, 0));
	assert_int_equal(bind(3, &(struct sockaddr){ .sa_family = AF_UNIX }, sizeof(sa_family_t)), 0);
	assert_int_equal(listen(3, 1), 0);
	refused("1", "ListenStream=ADDR:PORT");
	pass(open("/dev/null", O_RDWR));
	refused("1", "Accept=no");
	close(3);
	refused("1", "Accept=no");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(the_listener_is_taken, teardown),
		cmocka_unit_test_teardown(a_path_is_taken, teardown),
		cmocka_unit_test_teardown(nothing_was_passed, teardown),
		cmocka_unit_test_teardown(what_is_no_listener_is_refused, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
