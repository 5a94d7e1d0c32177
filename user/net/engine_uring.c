// SPDX-License-Identifier: GPL-2.0-only
/*
 * One ring for one socket. The socket is a registered file: no reference is taken and dropped for
 * each operation. Registered buffers would help zero-copy sends only, and those of one piece; ours
 * are vectors, for which the kernel takes them from 6.15 on.
 *
 * With DEFER_TASKRUN the kernel goes on with a send only when we ask for completions, so a caller
 * that waits for something else (pace, another thread) must do it in wait().
 *
 * A zero-copy send completes twice: when TCP has taken it, and when nothing reads its pages any
 * more. Pages of a guest may change in between. Then the peer gets either content, or after a
 * retransmission some of both, and the page counts as written: it follows in a later round, behind
 * these bytes on this socket, or when the peer has read all of this round.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>

#include "net/engine.h"

/* What liburing 2.3 does not name yet. */
#ifndef IORING_SEND_ZC_REPORT_USAGE
#define IORING_SEND_ZC_REPORT_USAGE	(1u << 3)
#define IORING_NOTIF_USAGE_ZC_COPIED	(1u << 31)
#endif

/*
 * Below so many bytes a copy costs less than to pin pages and to wait for them (the kernel's own
 * advice is 10 KB).
 */
#define ZC_MIN_BYTES	(32u << 10)
/* So many that have come back decide whether the kernel copies. */
#define ZC_TRIAL	16u
/* Few are ever submitted, but each held buffer may complete twice. */
#define RING_ENTRIES	ENGINE_BUFFERS

/* TAG_ZERO_COPY + buffer: both completions of such a send. */
enum { TAG_SEND = 1, TAG_RECV, TAG_CANCEL, TAG_ZERO_COPY };

/**
 * struct uring
 * @fixed: the socket is registered
 * @closing: begin nothing more
 * @refused: the kernel refuses zero-copy sends
 * @msg: @buffer: @send_tag: the send under way
 */
struct uring {
	struct engine base;
	struct io_uring ring;
	bool fixed, closing, refused;
	struct msghdr *msg;
	unsigned int buffer;
	uint64_t send_tag;
};

static struct uring *uring_of(struct engine *en)
{
	return (struct uring *)en;
}

static int ring_init(struct io_uring *ring)
{
	/*
	 * Completions are reaped by the thread that submits; kernels before 6.1 do not know the
	 * flags.
	 */
	int r = io_uring_queue_init(RING_ENTRIES, ring,
				    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	return r == -EINVAL ? io_uring_queue_init(RING_ENTRIES, ring, 0) : r;
}

static int uring_supported(void)
{
	struct io_uring ring;
	int r = ring_init(&ring);

	if (!r)
		io_uring_queue_exit(&ring);
	return r;
}

static int uring_open(int fd, struct engine **out)
{
	struct uring *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	r = ring_init(&u->ring);
	if (r < 0) {
		free(u);
		return r;
	}
	/* io_uring waits by itself; on a non-blocking descriptor it would not. */
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	u->fixed = !io_uring_register_files(&u->ring, &fd, 1);
	u->base.ops = &engine_uring;
	u->base.fd = fd;
	*out = &u->base;
	return 0;
}

/* At most three are ever queued, so there is always room. */
static void start(struct uring *u, struct io_uring_sqe *sqe, uint64_t tag)
{
	io_uring_sqe_set_data64(sqe, tag);
	if (u->fixed) {
		sqe->fd = 0;
		sqe->flags |= IOSQE_FIXED_FILE;
	}
}

static bool zero_copy(const struct uring *u)
{
	size_t bytes = 0;

	if (u->refused || u->base.zero_copy == ENGINE_ZC_OFF)
		return false;
	for (size_t i = 0; i < u->msg->msg_iovlen && bytes < ZC_MIN_BYTES; i++)
		bytes += u->msg->msg_iov[i].iov_len;
	return bytes >= ZC_MIN_BYTES;
}

static void uring_start_send(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	/* Kernel TLS refuses flags that it does not know; what it did not take follows. */
	int flags = u->base.kernel_tls ? MSG_NOSIGNAL : MSG_WAITALL | MSG_NOSIGNAL;

	if (zero_copy(u)) {
		io_uring_prep_sendmsg_zc(sqe, u->base.fd, u->msg, MSG_WAITALL | MSG_NOSIGNAL);
		sqe->ioprio = IORING_SEND_ZC_REPORT_USAGE;
		u->send_tag = TAG_ZERO_COPY + u->buffer;
	} else {
		io_uring_prep_sendmsg(sqe, u->base.fd, u->msg, (unsigned int)flags);
		u->send_tag = TAG_SEND;
	}
	start(u, sqe, u->send_tag);
}

static void uring_send(struct engine *en, struct msghdr *msg, unsigned int buffer)
{
	struct uring *u = uring_of(en);

	u->msg = msg;
	u->buffer = buffer;
	en->sending = true;
	uring_start_send(u);
}

static void uring_recv(struct engine *en, struct msghdr *msg)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring_of(en)->ring);

	io_uring_prep_recvmsg(sqe, en->fd, msg, MSG_WAITALL);
	start(uring_of(en), sqe, TAG_RECV);
	en->receiving = true;
}

/*
 * A kernel that does not know it or cannot tell, a socket that is not TCP, no more memory to lock.
 */
static bool zc_refused(int res)
{
	return res == -EINVAL || res == -EOPNOTSUPP || res == -ENOMEM || res == -ENOBUFS;
}

static void zc_done(struct uring *u, const struct io_uring_cqe *cqe, unsigned int buffer)
{
	struct engine *en = &u->base;

	if (cqe->flags & IORING_CQE_F_NOTIF) {
		en->held[buffer]--;
		en->released++;
		if (u->refused)
			return;
		en->zero_copies++;
		en->copied += !!((unsigned int)cqe->res & IORING_NOTIF_USAGE_ZC_COPIED);
		if (en->zero_copy == ENGINE_ZC_AUTO && en->zero_copies >= ZC_TRIAL &&
		    en->copied > en->zero_copies / 2)
			en->zero_copy = ENGINE_ZC_OFF;
		return;
	}
	if (cqe->flags & IORING_CQE_F_MORE)
		en->held[buffer]++;
	if (zc_refused(cqe->res) && !u->closing) {
		u->refused = true;
		uring_start_send(u);
		return;
	}
	en->sending = false;
	en->sent = cqe->res;
}

static void reap(struct uring *u)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&u->ring, &cqe)) {
		uint64_t tag = io_uring_cqe_get_data64(cqe);

		if (tag >= TAG_ZERO_COPY) {
			zc_done(u, cqe, (unsigned int)(tag - TAG_ZERO_COPY));
		} else if (tag == TAG_SEND) {
			u->base.sending = false;
			u->base.sent = cqe->res;
		} else if (tag == TAG_RECV) {
			u->base.receiving = false;
			u->base.received = cqe->res;
		}
		io_uring_cqe_seen(&u->ring, cqe);
	}
}

static int uring_wait(struct engine *en, uint64_t ns)
{
	struct __kernel_timespec ts = {
		.tv_sec = (long long)(ns / 1000000000), .tv_nsec = (long long)(ns % 1000000000),
	};
	struct uring *u = uring_of(en);
	struct io_uring_cqe *cqe;
	int r;

	if (!ns)
		r = io_uring_submit_and_get_events(&u->ring);
	else
		r = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &ts, NULL);
	reap(u);
	return r < 0 && r != -ETIME && r != -EINTR && r != -EAGAIN ? r : 0;
}

static void cancel(struct uring *u, uint64_t tag, const bool *under_way)
{
	struct io_uring_sqe *sqe;

	if (!*under_way)
		return;
	sqe = io_uring_get_sqe(&u->ring);
	io_uring_prep_cancel64(sqe, tag, 0);
	io_uring_sqe_set_data64(sqe, TAG_CANCEL);
	while (*under_way) {
		int r = io_uring_submit_and_wait(&u->ring, 1);

		reap(u);
		if (r < 0 && r != -EINTR && r != -EAGAIN)
			break;
	}
}

static void uring_cancel_recv(struct engine *en)
{
	cancel(uring_of(en), TAG_RECV, &en->receiving);
}

/*
 * Closing a ring ends what is under way some time later: too late for the buffers. What a zero-copy
 * send has left with TCP stays readable to it: the pages are the kernel's too, for as long as it
 * needs them.
 */
static void uring_close(struct engine *en)
{
	struct uring *u = uring_of(en);

	u->closing = true;
	cancel(u, u->send_tag, &en->sending);
	cancel(u, TAG_RECV, &en->receiving);
	io_uring_queue_exit(&u->ring);
	free(u);
}

const struct engine_ops engine_uring = {
	.name = "uring",
	.supported = uring_supported,
	.open = uring_open,
	.close = uring_close,
	.send = uring_send,
	.recv = uring_recv,
	.cancel_recv = uring_cancel_recv,
	.wait = uring_wait,
	.take = engine_plain_take,
	.say = engine_plain_say,
};
