// SPDX-License-Identifier: GPL-2.0-only
/*
 * One io_uring, at most one send and one receive under way. TCP needs its bytes in order, so the frames
 * queue up here and the completion of one starts the next; the queue keeps the socket busy while the
 * caller scans the pages of a later frame. Receiving is in channel_recv.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/channel_internal.h"
#include "io/sock.h"
#include "io/stop.h"

static int ring_init(struct io_uring *ring)
{
	/* Completions are reaped by the one thread there is; kernels before 6.1 do not know the flags. */
	int r = io_uring_queue_init(16, ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	return r == -EINVAL ? io_uring_queue_init(16, ring, 0) : r;
}

int channel_new(int fd, unsigned int timeout_ms, struct channel **out, struct err *e)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	int r;

	if (!ch) {
		close(fd);
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	r = ring_init(&ch->ring);
	if (r < 0) {
		close(fd);
		free(ch);
		return err_set(e, GW_INTERNAL, -r, "io_uring is not to be had here: %s (sysctl kernel.io_uring_disabled, seccomp, memlock limit?)",
			       strerror(-r));
	}
	/* io_uring waits by itself; on a non-blocking descriptor it would not. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	ch->fd = fd;
	ch->timeout_ns = timeout_ms * 1000000ull;
	*out = ch;
	return 0;
}

void channel_free(struct channel *ch)
{
	if (!ch)
		return;
	/* Cancels what is under way and waits for it: only then may the buffers go. */
	shutdown(ch->fd, SHUT_RDWR);
	io_uring_queue_exit(&ch->ring);
	close(ch->fd);
	for (unsigned int i = 0; i < CHANNEL_FRAMES; i++)
		free(ch->slots[i].frame.bounce);
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

/* Drops len bytes from the front of a vector. */
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

static void start_send(struct channel *ch)
{
	struct io_uring_sqe *sqe;

	if (ch->sending || !ch->queued)
		return;
	sqe = io_uring_get_sqe(&ch->ring);
	io_uring_prep_sendmsg(sqe, ch->fd, &ch->queue[0]->msg, MSG_WAITALL | MSG_NOSIGNAL);
	io_uring_sqe_set_data64(sqe, TAG_SEND);
	ch->sending = true;
}

static int sent(struct channel *ch, int result, struct err *e)
{
	struct slot *slot = ch->queue[0];

	ch->sending = false;
	if (result == -EINTR || result == -EAGAIN)
		result = 0;
	else if (result <= 0)
		return channel_lost(ch, result ? -result : EPIPE, e);
	ch->sent += (uint64_t)result;
	channel_iov_advance(&slot->msg, (size_t)result);
	if (!slot->msg.msg_iovlen) {
		slot->busy = false;
		ch->queued--;
		memmove(&ch->queue[0], &ch->queue[1], ch->queued * sizeof(ch->queue[0]));
	}
	start_send(ch);
	return 0;
}

/* Takes the completions that are there. */
int channel_reap(struct channel *ch, struct err *e)
{
	struct io_uring_cqe *cqe;
	int r = 0;

	while (!io_uring_peek_cqe(&ch->ring, &cqe)) {
		uint64_t tag = io_uring_cqe_get_data64(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&ch->ring, cqe);
		if (tag == TAG_RECV) {
			ch->receiving = false;
			ch->recv_result = result;
		} else if (tag == TAG_SEND && !r) {
			r = sent(ch, result, e);
		}
	}
	return r;
}

/* Submits, waits for one completion at least, takes all that are there. */
int channel_wait(struct channel *ch, uint64_t deadline, struct err *e)
{
	for (;;) {
		struct __kernel_timespec ts = { .tv_nsec = STOP_SLICE_NS };
		struct io_uring_cqe *cqe;
		int r = io_uring_submit_and_wait_timeout(&ch->ring, &cqe, 1, &ts, NULL);

		if (r >= 0 && io_uring_cq_ready(&ch->ring))
			return channel_reap(ch, e);
		if (r < 0 && r != -ETIME && r != -EINTR && r != -EAGAIN)
			return err_set(e, GW_INTERNAL, -r, "io_uring: %s", strerror(-r));
		if (stop_requested())
			return err_set(e, GW_CANCELLED, EINTR, "cancelled by a signal");
		if (deadline && now_ns() > deadline) {
			ch->broken = true;
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the other host has stopped talking (nothing for %llu s)",
				       (unsigned long long)(ch->timeout_ns / 1000000000ull));
		}
	}
}

uint64_t channel_patience(const struct channel *ch)
{
	return now_ns() + ch->timeout_ns;
}

int channel_frame(struct channel *ch, struct ram_frame **out, struct err *e)
{
	uint64_t deadline = channel_patience(ch);
	int r;

	for (;;) {
		for (unsigned int i = 0; i < CHANNEL_FRAMES; i++) {
			struct slot *slot = &ch->slots[i];

			if (slot->busy)
				continue;
			if (!slot->frame.bounce && posix_memalign((void **)&slot->frame.bounce, 4096, WIRE_RAM_MAX))
				return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
			slot->frame.nr = slot->frame.nr_iov = slot->frame.bytes = 0;
			slot->busy = true;
			*out = &slot->frame;
			return 0;
		}
		r = channel_wait(ch, deadline, e);
		if (r)
			return r;
	}
}

int channel_push(struct channel *ch, struct ram_frame *f, struct err *e)
{
	struct slot *slot = (struct slot *)f;	/* its first member */
	struct wire_header h = {
		.type = WIRE_RAM, .arg = f->nr, .length = f->nr * WIRE_EXTENT + f->bytes,
	};

	if (!f->nr) {
		slot->busy = false;
		return 0;
	}
	wire_put_header(slot->head, &h);
	for (unsigned int i = 0; i < f->nr; i++)
		wire_put_extent(slot->head + WIRE_HEADER + i * WIRE_EXTENT, &f->extents[i]);
	slot->iov[0] = (struct iovec) { slot->head, WIRE_HEADER + f->nr * WIRE_EXTENT };
	memcpy(&slot->iov[1], f->iov, f->nr_iov * sizeof(f->iov[0]));
	slot->msg = (struct msghdr) { .msg_iov = slot->iov, .msg_iovlen = f->nr_iov + 1 };
	ch->queue[ch->queued++] = slot;
	start_send(ch);
	io_uring_submit(&ch->ring);
	return channel_reap(ch, e);
}

int channel_flush(struct channel *ch, struct err *e)
{
	uint64_t deadline = channel_patience(ch);
	unsigned int before = ch->queued;
	int r;

	while (ch->queued) {
		r = channel_wait(ch, deadline, e);
		if (r)
			return r;
		if (ch->queued < before)
			deadline = channel_patience(ch);
		before = ch->queued;
	}
	return 0;
}

int channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e)
{
	struct ram_frame *f;
	struct slot *slot;
	int r;

	r = channel_flush(ch, e);
	if (!r)
		r = channel_frame(ch, &f, e);
	if (r)
		return r;
	slot = (struct slot *)f;
	wire_put_header(slot->head, h);
	slot->iov[0] = (struct iovec) { slot->head, WIRE_HEADER };
	slot->iov[1] = (struct iovec) { (void *)body, h->length };
	slot->msg = (struct msghdr) { .msg_iov = slot->iov, .msg_iovlen = h->length ? 2 : 1 };
	ch->queue[ch->queued++] = slot;
	start_send(ch);
	return channel_flush(ch, e);	/* body is the caller's */
}

void channel_abort(struct channel *ch, const struct err *why)
{
	uint8_t buf[WIRE_HEADER + WIRE_TEXT_MAX];
	size_t len = strnlen(why->text, WIRE_TEXT_MAX);
	struct wire_header h = { .type = WIRE_ABORT, .arg = why->exit, .length = (uint32_t)len };
	uint64_t deadline = deadline_ms(2000);
	struct err ignored = { 0 };
	char drain[4096];

	/* In the middle of a frame the text would be taken for its body: end it first, if the peer still reads. */
	while (!ch->broken && ch->queued && now_ns() < deadline) {
		struct __kernel_timespec ts = { .tv_nsec = STOP_SLICE_NS };
		struct io_uring_cqe *cqe;

		io_uring_submit_and_wait_timeout(&ch->ring, &cqe, 1, &ts, NULL);
		if (channel_reap(ch, &ignored))
			break;
	}
	if (ch->broken || ch->queued)
		return;
	wire_put_header(buf, &h);
	memcpy(buf + WIRE_HEADER, why->text, len);
	if (sock_send(ch->fd, buf, WIRE_HEADER + len, deadline))
		return;
	/* Closing with unread data resets the connection, and the peer would never read the text. */
	shutdown(ch->fd, SHUT_WR);
	while (now_ns() < deadline) {
		struct pollfd p = { .fd = ch->fd, .events = POLLIN };

		if (poll(&p, 1, 200) > 0 && recv(ch->fd, drain, sizeof(drain), MSG_DONTWAIT) <= 0)
			break;
	}
}
