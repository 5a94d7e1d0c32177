// SPDX-License-Identifier: GPL-2.0-only
/* Sockets with deadlines: all the bytes or an error in time, whatever the other end does. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/sock.h"

#define MS		1000000ull
#define BIG		(4u << 20)

static void pair(int fd[2])
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd), 0);
}

static void on_signal(int sig)
{
	(void)sig;
}

/* A SIGALRM each 5 ms, and system calls are not restarted. */
static void alarms(bool on)
{
	struct sigaction sa = { .sa_handler = on_signal };
	struct itimerval it = { .it_value.tv_usec = on ? 5000 : 0, .it_interval.tv_usec = on ? 5000 : 0 };

	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &it, NULL);
}

static void test_wait(void **state)
{
	uint64_t start = now_ns();
	int fd[2];

	(void)state;
	pair(fd);
	alarms(true);
	assert_int_equal(sock_wait(fd[0], POLLIN, deadline_ms(100)), -ETIMEDOUT);
	alarms(false);
	assert_in_range(now_ns() - start, 100 * MS, 10000 * MS);
	assert_int_equal(sock_wait(fd[0], POLLIN, 0), -ETIMEDOUT);
	assert_int_equal(sock_wait(fd[0], POLLOUT, 0), 0);
	assert_int_equal(write(fd[1], "x", 1), 1);
	assert_int_equal(sock_wait(fd[0], POLLIN, 0), 0);
	close(fd[1]);
	assert_int_equal(sock_wait(fd[0], POLLIN, 0), 0);
	close(fd[0]);
	assert_int_equal(sock_wait(fd[0], POLLIN, deadline_ms(100)), -EBADF);
}

static void test_recv(void **state)
{
	char buf[8];
	int fd[2];

	(void)state;
	pair(fd);
	assert_int_equal(sock_recv_some(fd[0], buf, sizeof(buf)), -EAGAIN);
	assert_int_equal(write(fd[1], "abc", 3), 3);
	assert_int_equal(sock_recv(fd[0], buf, 4, deadline_ms(50)), -ETIMEDOUT);
	assert_int_equal(write(fd[1], "defgh", 5), 5);
	assert_int_equal(sock_recv(fd[0], buf, 4, 0), 0);
	assert_memory_equal(buf, "defg", 4);
	assert_int_equal(sock_recv_some(fd[0], buf, sizeof(buf)), 1);
	assert_int_equal(write(fd[1], "ij", 2), 2);
	close(fd[1]);
	assert_int_equal(sock_recv(fd[0], buf, 3, deadline_ms(2000)), -ECONNRESET);
	assert_int_equal(sock_recv_some(fd[0], buf, sizeof(buf)), 0);
	close(fd[0]);
}

static void *drip(void *arg)
{
	for (char c = 'A'; send(*(int *)arg, &c, 1, MSG_NOSIGNAL) == 1; c = c == 'z' ? 'A' : (char)(c + 1))
		nap_ms(5);
	return NULL;
}

static void test_recv_from_a_dripping_peer(void **state)
{
	pthread_t thread;
	uint64_t start;
	char buf[200];
	int fd[2];

	(void)state;
	pair(fd);
	pthread_create(&thread, NULL, drip, &fd[1]);
	assert_int_equal(sock_recv(fd[0], buf, 10, deadline_ms(2000)), 0);
	assert_memory_equal(buf, "ABCDEFGHIJ", 10);
	start = now_ns();
	assert_int_equal(sock_recv(fd[0], buf, sizeof(buf), deadline_ms(100)), -ETIMEDOUT);
	/* A deadline that moved with each byte would let all of them come, in a second. */
	assert_true(now_ns() - start >= 100 * MS);
	close(fd[0]);
	pthread_join(thread, NULL);
	close(fd[1]);
}

/**
 * struct reader - a thread that reads to the end
 * @fds: descriptors that came
 */
struct reader {
	int fd, fds, passed_fd;
	size_t len;
	uint8_t *buf;
};

static void *read_all(void *arg)
{
	struct reader *r = arg;

	for (;;) {
		union {
			struct cmsghdr align;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control;
		struct iovec iov = { r->buf + r->len, BIG + 1 - r->len };
		struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
				      .msg_controllen = sizeof(control) };
		struct pollfd p = { .fd = r->fd, .events = POLLIN };
		ssize_t n;

		poll(&p, 1, 5000);
		n = recvmsg(r->fd, &msg, MSG_DONTWAIT);
		/* The signals are for the sender, but may come here. */
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return NULL;
		if (CMSG_FIRSTHDR(&msg)) {
			memcpy(&r->passed_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
			r->fds++;
		}
		r->len += (size_t)n;
		if (r->len % 7 == 0)
			nap_ms(1);
	}
}

/* Far more than the socket takes at once, to a slow reader, with signals. */
static void send_big(bool with_fd)
{
	uint8_t *data = malloc(BIG);
	struct reader r = { .buf = malloc(BIG + 1) };
	int fd[2], file = open("/dev/null", O_RDONLY), small = 4096;
	pthread_t thread;

	for (size_t i = 0; i < BIG; i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13);
	pair(fd);
	setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	r.fd = fd[1];
	pthread_create(&thread, NULL, read_all, &r);
	alarms(true);
	if (with_fd)
		assert_int_equal(sock_send_fd(fd[0], data, BIG, file, deadline_ms(200000)), 0);
	else
		assert_int_equal(sock_send(fd[0], data, BIG, deadline_ms(200000)), 0);
	alarms(false);
	close(fd[0]);
	pthread_join(thread, NULL);
	assert_int_equal(r.len, BIG);
	assert_memory_equal(r.buf, data, BIG);
	assert_int_equal(r.fds, with_fd);
	if (with_fd)
		close(r.passed_fd);
	close(file);
	close(fd[1]);
	free(r.buf);
	free(data);
}

static void test_send(void **state)
{
	char *data = calloc(1, BIG);
	uint64_t start = now_ns();
	int fd[2];

	(void)state;
	send_big(false);
	send_big(true);
	pair(fd);
	assert_int_equal(sock_send_fd(fd[0], "", 0, fd[0], deadline_ms(10)), -EINVAL);
	start = now_ns();
	assert_int_equal(sock_send(fd[0], data, BIG, deadline_ms(50)), -ETIMEDOUT);
	assert_in_range(now_ns() - start, 50 * MS, 10000 * MS);
	close(fd[1]);
	/* A SIGPIPE would end this test. */
	assert_int_equal(sock_send(fd[0], "x", 1, deadline_ms(50)), -ECONNRESET);
	close(fd[0]);
	free(data);
}

static void test_clocks(void **state)
{
	uint64_t a = now_ns(), real = realtime_ns();

	(void)state;
	nap_ms(20);
	assert_in_range(now_ns() - a, 20 * MS, 10000 * MS);
	assert_in_range(real / 1000000000, (uint64_t)time(NULL) - 2, (uint64_t)time(NULL) + 2);
	assert_in_range(deadline_ms(5000) - now_ns(), 1 * MS, 5000 * MS);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_wait),
	cmocka_unit_test(test_recv),
	cmocka_unit_test(test_recv_from_a_dripping_peer),
	cmocka_unit_test(test_send),
	cmocka_unit_test(test_clocks),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
