// SPDX-License-Identifier: GPL-2.0-only
/*
 * TLS records by the library, and poll() when the socket has nothing to read, or no room. A part of
 * a send has been sent when all of its records are with the kernel. There is no zero-copy: what
 * leaves is not the caller's bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include "net/engine.h"
#include "net/sock.h"
#include "tls/tls.h"

/**
 * struct secure
 * @sealed: bytes of @send that have been encrypted, and are not all with the kernel
 */
struct secure {
	struct engine base;
	struct tls *tls;
	struct msghdr *send, *recv;
	ssize_t sealed;
};

static struct secure *secure_of(struct engine *en)
{
	return (struct secure *)en;
}

static int secure_supported(void)
{
	return 0;
}

/* See engine_tls_open(). */
static int secure_open(int fd, struct engine **out)
{
	(void)fd;
	(void)out;
	return -EINVAL;
}

static void secure_close(struct engine *en)
{
	free(secure_of(en));
}

static void secure_sent(struct secure *s, ssize_t n)
{
	s->base.sent = n;
	s->base.sending = false;
	s->sealed = 0;
}

/* Also sends what the library has to say by itself. true: a send has ended. */
static bool secure_try_send(struct secure *s)
{
	int r;

	if (s->base.sending && !s->sealed) {
		/* An answer of the library's own must leave first: the buffer is to be empty. */
		r = tls_flush(s->tls);
		if (r > 0)
			s->sealed = tls_seal(s->tls, s->send->msg_iov, s->send->msg_iovlen);
		if (r < 0 || s->sealed < 0) {
			secure_sent(s, r < 0 ? r : s->sealed);
			return true;
		}
	}
	r = tls_flush(s->tls);
	if (!s->sealed || !r)
		return false;
	secure_sent(s, r < 0 ? r : s->sealed);
	return true;
}

static bool secure_try_recv(struct secure *s)
{
	ssize_t n = tls_read(s->tls, s->recv->msg_iov, s->recv->msg_iovlen);

	if (n == -EAGAIN)
		return false;
	s->base.received = n;
	s->base.receiving = false;
	return true;
}

static void secure_send(struct engine *en, struct msghdr *msg, unsigned int buffer)
{
	(void)buffer;	/* the records are a copy */
	secure_of(en)->send = msg;
	en->sending = true;
}

static void secure_recv(struct engine *en, struct msghdr *msg)
{
	secure_of(en)->recv = msg;
	en->receiving = true;
}

static bool secure_try(struct secure *s)
{
	bool done = secure_try_send(s);

	if (s->base.receiving)
		done |= secure_try_recv(s);
	return done;
}

static int secure_wait(struct engine *en, uint64_t ns)
{
	struct secure *s = secure_of(en);
	short revents;
	int r;

	if (secure_try(s) || !ns)
		return 0;
	r = engine_poll_wait(en, ns, &revents);
	if (!r)
		secure_try(s);
	return r;
}

static ssize_t secure_take(struct engine *en, void *buf, size_t len)
{
	return tls_read(secure_of(en)->tls, &(struct iovec) { buf, len }, 1);
}

static int secure_flush(struct secure *s, uint64_t deadline)
{
	int r;

	while (!(r = tls_flush(s->tls))) {
		r = sock_wait(s->base.fd, POLLOUT, deadline);
		if (r)
			return r;
	}
	return r < 0 ? r : 0;
}

static int secure_say(struct engine *en, const void *buf, size_t len, uint64_t deadline)
{
	struct secure *s = secure_of(en);
	const struct iovec iov = { (void *)buf, len };
	int r = secure_flush(s, deadline);
	ssize_t n = r ? r : tls_seal(s->tls, &iov, 1);

	if (n < 0)
		return (int)n;
	return (size_t)n < len ? -EMSGSIZE : secure_flush(s, deadline);
}

static bool secure_pending(const struct engine *en)
{
	return tls_pending(((const struct secure *)en)->tls);
}

static const struct engine_ops engine_tls = {
	.name = "tls",
	.supported = secure_supported,
	.open = secure_open,
	.close = secure_close,
	.send = secure_send,
	.recv = secure_recv,
	.cancel_recv = engine_poll_cancel_recv,
	.wait = secure_wait,
	.take = secure_take,
	.say = secure_say,
	.pending = secure_pending,
};

int engine_tls_open(int fd, struct tls *tls, struct engine **out)
{
	struct secure *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	s->base.ops = &engine_tls;
	s->base.fd = fd;
	s->tls = tls;
	*out = &s->base;
	return 0;
}
