// SPDX-License-Identifier: GPL-2.0-only
/*
 * One io_uring, at most one send and one receive under way. TCP needs its bytes in order, so the frames
 * queue up here and the completion of one starts the next; the queue keeps the socket busy while the
 * caller scans the pages of a later frame.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/channel.h"
#include "io/sock.h"
#include "io/stop.h"

enum { TAG_SEND = 1, TAG_RECV = 2 };

struct slot {
	struct ram_frame frame;
	uint8_t head[WIRE_HEADER + WIRE_EXTENTS_MAX * WIRE_EXTENT];
	struct iovec iov[WIRE_EXTENTS_MAX + 1];
	struct msghdr msg;
	bool busy;
};

struct channel {
	int fd;
	uint64_t timeout_ns;
	struct io_uring ring;
	struct slot slots[CHANNEL_FRAMES];
	struct slot *queue[CHANNEL_FRAMES];	/* the first one is under way */
	unsigned int queued;
	struct msghdr recv_msg;
	bool sending, receiving, broken;
	int recv_result;
	uint64_t sent;
};

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

static int lost(struct channel *ch, int err, struct err *e)
{
	ch->broken = true;
	return err_set(e, GW_LINK_LOST, err, "the connection to the other host broke: %s", strerror(err));
}

/* Drops len bytes from the front of a vector. */
static void iov_advance(struct msghdr *msg, size_t len)
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

static void start_recv(struct channel *ch)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ch->ring);

	io_uring_prep_recvmsg(sqe, ch->fd, &ch->recv_msg, MSG_WAITALL);
	io_uring_sqe_set_data64(sqe, TAG_RECV);
	ch->receiving = true;
}

static int sent(struct channel *ch, int result, struct err *e)
{
	struct slot *slot = ch->queue[0];

	ch->sending = false;
	if (result == -EINTR || result == -EAGAIN)
		result = 0;
	else if (result <= 0)
		return lost(ch, result ? -result : EPIPE, e);
	ch->sent += (uint64_t)result;
	iov_advance(&slot->msg, (size_t)result);
	if (!slot->msg.msg_iovlen) {
		slot->busy = false;
		ch->queued--;
		memmove(&ch->queue[0], &ch->queue[1], ch->queued * sizeof(ch->queue[0]));
	}
	start_send(ch);
	return 0;
}

/* Takes the completions that are there. */
static int reap(struct channel *ch, struct err *e)
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
static int wait_one(struct channel *ch, uint64_t deadline, struct err *e)
{
	for (;;) {
		struct __kernel_timespec ts = { .tv_nsec = STOP_SLICE_NS };
		struct io_uring_cqe *cqe;
		int r = io_uring_submit_and_wait_timeout(&ch->ring, &cqe, 1, &ts, NULL);

		if (r >= 0 && io_uring_cq_ready(&ch->ring))
			return reap(ch, e);
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

static uint64_t patience(const struct channel *ch)
{
	return now_ns() + ch->timeout_ns;
}

int channel_frame(struct channel *ch, struct ram_frame **out, struct err *e)
{
	uint64_t deadline = patience(ch);
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
		r = wait_one(ch, deadline, e);
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
	return reap(ch, e);
}

int channel_flush(struct channel *ch, struct err *e)
{
	uint64_t deadline = patience(ch);
	unsigned int before = ch->queued;
	int r;

	while (ch->queued) {
		r = wait_one(ch, deadline, e);
		if (r)
			return r;
		if (ch->queued < before)
			deadline = patience(ch);
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

/* A receive that is given up must not write into buffers that are the caller's again. */
static void cancel_recv(struct channel *ch)
{
	struct err ignored = { 0 };

	if (!ch->receiving)
		return;
	io_uring_prep_cancel64(io_uring_get_sqe(&ch->ring), TAG_RECV, 0);
	while (ch->receiving && io_uring_submit_and_wait(&ch->ring, 1) >= 0)
		reap(ch, &ignored);
}

static int recv_all(struct channel *ch, struct iovec *iov, unsigned int n, bool patient, struct err *e)
{
	uint64_t deadline = patient ? 0 : patience(ch);
	int r;

	ch->recv_msg = (struct msghdr) { .msg_iov = iov, .msg_iovlen = n };
	while (ch->recv_msg.msg_iovlen) {
		if (!ch->receiving)
			start_recv(ch);
		r = wait_one(ch, deadline, e);
		if (r) {
			cancel_recv(ch);
			return r;
		}
		if (ch->receiving)
			continue;	/* that was a send */
		r = ch->recv_result;
		if (r == -EINTR || r == -EAGAIN)
			continue;
		if (r <= 0)
			return lost(ch, r ? -r : ECONNRESET, e);
		iov_advance(&ch->recv_msg, (size_t)r);
		if (deadline)
			deadline = patience(ch);
	}
	return 0;
}

int channel_body(struct channel *ch, void *buf, size_t len, struct err *e)
{
	struct iovec iov = { buf, len };

	return len ? recv_all(ch, &iov, 1, false, e) : 0;
}

int channel_bodyv(struct channel *ch, struct iovec *iov, unsigned int n, struct err *e)
{
	return n ? recv_all(ch, iov, n, false, e) : 0;
}

/* The peer's own exit status becomes ours where it means the same on this side. */
static int aborted(struct channel *ch, const struct wire_header *h, struct err *e)
{
	char text[WIRE_TEXT_MAX + 1];
	enum gw_exit exit = GW_PEER_FAILED;
	int r;

	r = channel_body(ch, text, h->length, e);
	if (r)
		return r;
	text[h->length] = '\0';
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';	/* it goes to a terminal */
	if (h->arg == GW_RAM_DIFFERS || h->arg == GW_DEVICE_STATE || h->arg == GW_VERIFY || h->arg == GW_VERSION ||
	    h->arg == GW_CANCELLED || h->arg == GW_BAD_PEER)
		exit = (enum gw_exit)h->arg;
	ch->broken = true;
	return err_set(e, exit, ECONNABORTED, "the other host gave up: %s", text);
}

int channel_recv(struct channel *ch, struct wire_header *h, bool patient, struct err *e)
{
	uint8_t head[WIRE_HEADER];
	struct iovec iov = { head, sizeof(head) };
	int r;

	r = recv_all(ch, &iov, 1, patient, e);
	if (r)
		return r;
	r = wire_get_header(head, h);
	if (r == -EPROTONOSUPPORT)
		return err_set(e, GW_VERSION, EPROTO,
			       "the other side does not speak godwit's protocol, version %u: install the same version on both hosts",
			       WIRE_VERSION);
	if (r)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent a frame that makes no sense (type %u): is it godwit, of the same version?",
			       h->type);
	return h->type == WIRE_ABORT ? aborted(ch, h, e) : 0;
}

int channel_expect(struct channel *ch, enum wire_type type, struct wire_header *h, struct err *e)
{
	int r = channel_recv(ch, h, false, e);

	if (r)
		return r;
	if (h->type != type)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s where %s was due", wire_type_name(h->type),
			       wire_type_name(type));
	return 0;
}

bool channel_readable(const struct channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
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
		if (reap(ch, &ignored))
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
