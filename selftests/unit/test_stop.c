// SPDX-License-Identifier: GPL-2.0-only
/* Requests to stop, and when they come too late. Each case in its own process: a request is for ever. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/stop.h"
#include "control/line_socket.h"
#include "peer/hello.h"
#include "qmp/qmp.h"

static void in_child(int (*passes)(void))
{
	pid_t pid = fork();
	int status;

	assert_return_code(pid, errno);
	if (!pid)
		_exit(passes() ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static int first_reason(void)
{
	struct err e = { 0 };

	return !stop_requested() && stop_request(STOP_TIME) && stop_request(STOP_COMMAND) && stop_requested() &&
	       stop_err(&e) == -EINTR && e.exit == GW_TIME_LIMIT && strstr(e.text, "--timeout");
}

static int by_command(void)
{
	struct err e = { 0 };

	return stop_request(STOP_COMMAND) && stop_err(&e) == -EINTR && e.exit == GW_CANCELLED && strstr(e.text, "godwit cancel");
}

static int by_signal(void)
{
	struct err e = { 0 };

	stop_install();
	raise(SIGTERM);
	return stop_requested() && stop_err(&e) == -EINTR && e.exit == GW_CANCELLED && strstr(e.text, "signal");
}

static void the_first_reason_counts(void **state)
{
	(void)state;
	in_child(first_reason);
	in_child(by_command);
	in_child(by_signal);
}

/* A word to a terminal with "stty tostop" from the background: the signal stops whoever does not ignore it. */
static int goes_on_in_the_background(void)
{
	stop_install();
	raise(SIGTTOU);
	return !stop_requested();
}

static void a_terminal_stops_nothing(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	assert_return_code(pid, errno);
	if (!pid)
		_exit(goes_on_in_the_background() ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	if (WIFSTOPPED(status))
		kill(pid, SIGKILL);
	assert_int_equal(status, 0);
}

static int asked_before(void)
{
	return stop_request(STOP_COMMAND) && !stop_commit() && stop_requested();
}

static int asked_after(void)
{
	stop_install();
	if (!stop_commit() || stop_request(STOP_COMMAND))
		return 0;
	raise(SIGINT);
	return !stop_requested();
}

/* A request that was accepted has stopped the migration; one after the commit point is refused. */
static void no_request_is_lost(void **state)
{
	(void)state;
	in_child(asked_before);
	in_child(asked_after);
}

static void hook(void *arg)
{
	++*(unsigned int *)arg;
	stop_request(STOP_COMMAND);
}

static void *other_thread(void *arg)
{
	(void)arg;
	return stop_requested() ? arg : NULL;
}

static int hook_in_its_own_thread(void)
{
	unsigned int calls = 0;
	pthread_t thread;
	void *seen;

	stop_set_hook(hook, &calls);
	if (pthread_create(&thread, NULL, other_thread, &calls) || pthread_join(thread, &seen) || calls || seen)
		return 0;
	/* What it asks for counts at once. */
	if (!stop_requested() || calls != 1)
		return 0;
	stop_set_hook(NULL, NULL);
	return stop_requested() && calls == 1;
}

static void only_the_thread_that_set_the_hook_calls_it(void **state)
{
	(void)state;
	in_child(hook_in_its_own_thread);
}

static void on_alarm(int sig)
{
	(void)sig;
	raise(SIGTERM);
}

static int gives_up_on_a_greeting(void)
{
	char path[64];
	struct line_socket l;
	struct err e = { 0 };
	struct qmp *q;
	uint64_t begin = now_ns();
	int r;

	snprintf(path, sizeof(path), "/tmp/godwit-stop-%d", (int)getpid());
	if (line_socket_listen(&l, path))
		return 0;
	stop_install();
	signal(SIGALRM, on_alarm);
	ualarm(200000, 0);
	r = qmp_open(path, 20000, &q, &e);
	line_socket_close(&l);
	return r == -EINTR && e.exit == GW_CANCELLED && now_ns() - begin < 5000000000ull;
}

/* Another client may hold a QMP socket for ever. */
static void a_qmp_socket_that_says_nothing_can_be_left(void **state)
{
	(void)state;
	in_child(gives_up_on_a_greeting);
}

/* A port whose queue is full answers no SYN. */
static int full_port(char *addr, size_t size)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(fd, (struct sockaddr *)&sin, len) || listen(fd, 0) || getsockname(fd, (struct sockaddr *)&sin, &len))
		return -errno;
	snprintf(addr, size, "127.0.0.1:%d", ntohs(sin.sin_port));
	for (int i = 0; i < 4; i++) {
		int peer = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

		if (connect(peer, (struct sockaddr *)&sin, len) && errno != EINPROGRESS)
			return -errno;
	}
	return 0;
}

static int gives_up_on_a_connection(void)
{
	struct channel *ch;
	struct err e = { 0 };
	uint64_t begin = now_ns(), features;
	char addr[32];
	const struct hello_peer peer = { .addr = addr, .timeout_ms = 20000 };
	int r;

	if (full_port(addr, sizeof(addr)))
		return 0;
	stop_install();
	signal(SIGALRM, on_alarm);
	ualarm(200000, 0);
	r = hello(&peer, &ch, &features, &e);
	return r == -EINTR && e.exit == GW_CANCELLED && !ch && now_ns() - begin < 5000000000ull;
}

/* A host that swallows packets is unreachable only when no request to stop came before. */
static void a_connection_under_way_can_be_left(void **state)
{
	(void)state;
	in_child(gives_up_on_a_connection);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_reason_counts),
		cmocka_unit_test(a_terminal_stops_nothing),
		cmocka_unit_test(no_request_is_lost),
		cmocka_unit_test(a_qmp_socket_that_says_nothing_can_be_left),
		cmocka_unit_test(a_connection_under_way_can_be_left),
		cmocka_unit_test(only_the_thread_that_set_the_hook_calls_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
