// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bytes with deadlines. A signal ends none of these waits: godwit talks to QEMU after it, to roll
 * back. A caller whose wait may be long, and is to end at a stop, waits in slices (base/stop.h).
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/sock.h"

#define SEC_NS 1000000000ull

int sock_wait(int fd, short events, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = events };

	for (;;) {
		uint64_t now = now_ns();
		uint64_t left = deadline > now ? deadline - now : 0;
		struct timespec ts = {
			.tv_sec = (time_t)(left / SEC_NS),
			.tv_nsec = (long)(left % SEC_NS),
		};
		int n = ppoll(&p, 1, &ts, NULL);

		/* Any other error appears at the next read or write. */
		if (n > 0)
			return p.revents & POLLNVAL ? -EBADF : 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

ssize_t sock_recv_some(int fd, void *buf, size_t len)
{
	ssize_t n;

	do {
		n = recv(fd, buf, len, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

int sock_recv(int fd, void *buf, size_t len, uint64_t deadline)
{
	uint8_t *p = buf;

	while (len) {
		ssize_t n = sock_recv_some(fd, p, len);
		int r;

		if (n > 0) {
			p += n;
			len -= (size_t)n;
			continue;
		}
		if (n != -EAGAIN)
			return n ? (int)n : -ECONNRESET;
		r = sock_wait(fd, POLLIN, deadline);
		if (r)
			return r;
	}
	return 0;
}

/* One sendmsg(): bytes or -errno. */
static ssize_t sock_send_some(int fd, struct msghdr *msg)
{
	ssize_t n;

	do {
		n = sendmsg(fd, msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EPIPE ? -ECONNRESET : -errno;
	return n;
}

/* Control data leaves with the first byte, so only the first sendmsg() has it. */
static int sock_send_all(int fd, struct msghdr *msg, uint64_t deadline)
{
	struct iovec *iov = msg->msg_iov;

	while (iov->iov_len) {
		ssize_t n = sock_send_some(fd, msg);
		int r;

		if (n >= 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
			msg->msg_control = NULL;
			msg->msg_controllen = 0;
			continue;
		}
		if (n != -EAGAIN)
			return (int)n;
		r = sock_wait(fd, POLLOUT, deadline);
		if (r)
			return r;
	}
	return 0;
}

int sock_send(int fd, const void *buf, size_t len, uint64_t deadline)
{
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	return sock_send_all(fd, &msg, deadline);
}

int sock_send_fd(int fd, const void *buf, size_t len, int passed_fd, uint64_t deadline)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)buf, .iov_len = len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	if (!len)
		return -EINVAL;		/* the descriptor travels with the first byte */
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &passed_fd, sizeof(int));
	return sock_send_all(fd, &msg, deadline);
}

/*
 * For the other end to read: a reset after that is as long on its way as what was sent last, so the
 * round trip does not count.
 */
#define CLOSE_MS	250u

void sock_close_read(int fd)
{
	uint64_t deadline = deadline_ms(CLOSE_MS);
	char dropped[4096];

	shutdown(fd, SHUT_WR);
	while (!sock_wait(fd, POLLIN, deadline) && now_ns() < deadline &&
	       sock_recv_some(fd, dropped, sizeof(dropped)) > 0)
		;
	close(fd);
}

bool sock_is_open(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };

	return poll(&p, 1, 0) == 0;
}
