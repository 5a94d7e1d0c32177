// SPDX-License-Identifier: GPL-2.0-only
/*
 * At most one send and one receive under way. TCP needs its bytes in order, so the frames queue up
 * here and the end of one starts the next; the queue keeps the socket busy while the caller reads
 * the pages of a later frame. Frames come into the queue in channel_send.c; receiving is in
 * channel_recv.c, the end of a connection in channel_abort.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/channel_internal.h"
#include "net/sock.h"

int channel_new_tls(int fd, struct tls *tls, const struct engine_ops *engine,
		    unsigned int timeout_ms, struct channel **out, struct err *e)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	int r;

	if (!ch) {
		close(fd);
		tls_free(tls);
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	r = tls && !tls_in_kernel(tls) ? engine_tls_open(fd, tls, &ch->engine) :
					 engine->open(fd, &ch->engine);
	if (r < 0) {
		close(fd);
		tls_free(tls);
		free(ch);
		return err_set(e, GW_INTERNAL, -r, "%s cannot be set up for another connection: %s; use fewer --streams, or --io poll",
			       engine->name, strerror(-r));
	}
	ch->fd = fd;
	ch->tls = tls;
	ch->engine->kernel_tls = tls;
	ch->most = tls && tls_in_kernel(tls) ? TLS_KEY_BYTES : UINT64_MAX;
	ch->timeout_ns = timeout_ms * 1000000ull;
	*out = ch;
	return 0;
}

int channel_new(int fd, const struct engine_ops *engine, unsigned int timeout_ms,
		struct channel **out, struct err *e)
{
	return channel_new_tls(fd, NULL, engine, timeout_ms, out, e);
}

const struct tls *channel_tls(const struct channel *ch)
{
	return ch->tls;
}

void channel_set_end(struct channel *ch, uint64_t until_ns)
{
	ch->until_ns = until_ns;
}

void channel_set_last(struct channel *ch)
{
	ch->until_ns = channel_patience(ch);
}

void channel_set_timeout(struct channel *ch, unsigned int timeout_ms)
{
	ch->timeout_ns = timeout_ms * 1000000ull;
}

void channel_free(struct channel *ch)
{
	if (!ch)
		return;
	/* Not in the middle of a frame: its records may be. */
	if (ch->tls && !ch->queued)
		tls_bye(ch->tls);
	shutdown(ch->fd, SHUT_RDWR);
	ch->engine->ops->close(ch->engine);
	close(ch->fd);
	tls_free(ch->tls);
	for (unsigned int i = 0; i < CHANNEL_SLOTS; i++)
		if (ch->slots[i].head)
			munmap(ch->slots[i].head, MAPPED_BYTES);
	free(ch);
}

int channel_fd(const struct channel *ch)
{
	return ch->fd;
}

uint64_t channel_sent(const struct channel *ch)
{
	return ch->sent;
}

void channel_zero_copy(struct channel *ch, enum engine_zero_copy how)
{
	ch->engine->zero_copy = ch->tls ? ENGINE_ZC_OFF : how;
}

struct zero_copy_count channel_zero_copies(const struct channel *ch)
{
	return (struct zero_copy_count) { ch->engine->zero_copies, ch->engine->copied };
}

void channel_interrupt(struct channel *ch, const atomic_bool *flag)
{
	ch->interrupt = flag;
}

void channel_iov_advance(struct msghdr *msg, size_t len)
{
	while (msg->msg_iovlen && len >= msg->msg_iov->iov_len) {
		len -= msg->msg_iov->iov_len;
		msg->msg_iov++;
		msg->msg_iovlen--;
	}
	if (msg->msg_iovlen) {
		msg->msg_iov->iov_base = (char *)msg->msg_iov->iov_base + len;
		msg->msg_iov->iov_len -= len;
	}
}

void channel_start_send(struct channel *ch)
{
	if (ch->sending || !ch->queued)
		return;
	ch->engine->ops->send(ch->engine, &ch->queue[0]->msg,
			      (unsigned int)(ch->queue[0] - ch->slots));
	ch->sending = true;
}

int channel_reap(struct channel *ch, struct err *e)
{
	struct slot *slot = ch->queue[0];
	ssize_t n = ch->engine->sent;

	if (!ch->sending || ch->engine->sending)
		return 0;
	ch->sending = false;
	if (n == -EINTR || n == -EAGAIN)
		n = 0;
	else if (n <= 0)
		return channel_lost(ch, n ? (int)-n : EPIPE, e);
	ch->sent += (uint64_t)n;
	if (ch->sent > ch->most)
		return err_set(e, GW_TLS, EOVERFLOW, "TLS: the kernel's key of this connection is used up: use more --streams, which each have one, or unload the module tls at both ends");
	channel_iov_advance(&slot->msg, (size_t)n);
	if (!slot->msg.msg_iovlen) {
		slot->busy = false;
		ch->queued--;
		memmove(&ch->queue[0], &ch->queue[1], ch->queued * sizeof(ch->queue[0]));
	}
	channel_start_send(ch);
	return 0;
}

int channel_engine_wait(struct channel *ch, uint64_t ns, struct err *e)
{
	int r = ch->engine->ops->wait(ch->engine, ns);

	return r ? err_set(e, GW_INTERNAL, -r, "waiting for the connection (%s): %s", ch->engine->ops->name, strerror(-r)) : 0;
}

int channel_given_up(struct channel *ch, struct err *e)
{
	if (ch->until_ns && now_ns() > ch->until_ns) {
		ch->broken = true;
		return -ETIMEDOUT;
	}
	if (ch->interrupt && atomic_load(ch->interrupt))
		return -ECANCELED;
	if (stop_requested())
		return stop_err(e);
	return 0;
}

int channel_silent(struct channel *ch, struct err *e)
{
	ch->broken = true;
	return err_set_silent(e, "the other host has stopped talking (nothing for %llu s)",
			      (unsigned long long)(ch->timeout_ns / 1000000000ull));
}

int channel_wait(struct channel *ch, uint64_t deadline, struct err *e)
{
	const bool receiving = ch->engine->receiving;
	const uint64_t released = ch->engine->released;
	int r;

	for (;;) {
		r = channel_engine_wait(ch, STOP_SLICE_NS, e);
		if (r)
			return r;
		if ((ch->sending && !ch->engine->sending) || (receiving && !ch->engine->receiving))
			return channel_reap(ch, e);
		if (ch->engine->released != released)
			return 0;
		r = channel_given_up(ch, e);
		if (r)
			return r;
		if (deadline && now_ns() > deadline)
			return channel_silent(ch, e);
	}
}

uint64_t channel_patience(const struct channel *ch)
{
	return now_ns() + ch->timeout_ns;
}

int channel_pause(struct channel *ch, uint64_t until_ns, struct err *e)
{
	uint64_t now;
	int r = 0;

	while (!r && (now = now_ns()) < until_ns) {
		uint64_t left = until_ns - now;

		r = channel_engine_wait(ch, left < STOP_SLICE_NS ? left : STOP_SLICE_NS, e);
		if (!r)
			r = channel_reap(ch, e);
		if (!r)
			r = channel_given_up(ch, e);
	}
	return r;
}
