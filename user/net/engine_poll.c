// SPDX-License-Identifier: GPL-2.0-only
/* Non-blocking system calls, and poll() when they would block. Runs everywhere. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "net/engine.h"

struct polled {
	struct engine base;
	struct msghdr *send, *recv;
};

static struct polled *poll_of(struct engine *en)
{
	return (struct polled *)en;
}

static int poll_supported(void)
{
	return 0;
}

static int poll_open(int fd, struct engine **out)
{
	struct polled *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	p->base.ops = &engine_poll;
	p->base.fd = fd;
	*out = &p->base;
	return 0;
}

static void poll_close(struct engine *en)
{
	free(poll_of(en));
}

static bool try_send(struct polled *p)
{
	ssize_t n = sendmsg(p->base.fd, p->send, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	p->base.sent = n < 0 ? -errno : n;
	p->base.sending = false;
	return true;
}

static bool try_recv(struct polled *p)
{
	ssize_t n = recvmsg(p->base.fd, p->recv, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	p->base.received = n < 0 ? -errno : n;
	p->base.receiving = false;
	return true;
}

static void poll_send(struct engine *en, struct msghdr *msg, unsigned int buffer)
{
	(void)buffer;	/* the kernel has its copy */
	poll_of(en)->send = msg;
	en->sending = true;
}

static void poll_recv(struct engine *en, struct msghdr *msg)
{
	poll_of(en)->recv = msg;
	en->receiving = true;
}

static int poll_wait(struct engine *en, uint64_t ns)
{
	struct polled *p = poll_of(en);
	bool done = false;
	short revents;
	int r;

	if (en->sending)
		done |= try_send(p);
	if (en->receiving)
		done |= try_recv(p);
	if (done || !ns)
		return 0;
	r = engine_poll_wait(en, ns, &revents);
	if (r)
		return r;
	if (en->sending && revents & (POLLOUT | POLLERR | POLLHUP))
		try_send(p);
	if (en->receiving && revents & (POLLIN | POLLERR | POLLHUP))
		try_recv(p);
	return 0;
}

const struct engine_ops engine_poll = {
	.name = "poll",
	.supported = poll_supported,
	.open = poll_open,
	.close = poll_close,
	.send = poll_send,
	.recv = poll_recv,
	.cancel_recv = engine_poll_cancel_recv,
	.wait = poll_wait,
	.take = engine_plain_take,
	.say = engine_plain_say,
};
