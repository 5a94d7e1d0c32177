// SPDX-License-Identifier: GPL-2.0-only
/*
 * One ring for one socket. The socket is a registered file: no reference is taken and dropped for each operation.
 * Registered buffers would help zero-copy sends only: a plain send does not look at them.
 *
 * With DEFER_TASKRUN the kernel goes on with a send only when we ask for completions, so whoever waits for
 * something else (pace, another thread) must do it in wait().
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>

#include "io/engine.h"

enum { TAG_SEND = 1, TAG_RECV, TAG_CANCEL };

struct uring {
	struct engine base;
	struct io_uring ring;
	bool fixed;
};

static struct uring *of(struct engine *en)
{
	return (struct uring *)en;
}

static int ring_init(struct io_uring *ring)
{
	/* Completions are reaped by the thread that submits; kernels before 6.1 do not know the flags. */
	int r = io_uring_queue_init(16, ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);

	return r == -EINVAL ? io_uring_queue_init(16, ring, 0) : r;
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

static void uring_send(struct engine *en, struct msghdr *msg)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&of(en)->ring);

	io_uring_prep_sendmsg(sqe, en->fd, msg, MSG_WAITALL | MSG_NOSIGNAL);
	start(of(en), sqe, TAG_SEND);
	en->sending = true;
}

static void uring_recv(struct engine *en, struct msghdr *msg)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&of(en)->ring);

	io_uring_prep_recvmsg(sqe, en->fd, msg, MSG_WAITALL);
	start(of(en), sqe, TAG_RECV);
	en->receiving = true;
}

static void reap(struct uring *u)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&u->ring, &cqe)) {
		uint64_t tag = io_uring_cqe_get_data64(cqe);

		if (tag == TAG_SEND) {
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
	struct __kernel_timespec ts = { .tv_sec = (long long)(ns / 1000000000), .tv_nsec = (long long)(ns % 1000000000) };
	struct uring *u = of(en);
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
	cancel(of(en), TAG_RECV, &en->receiving);
}

/* Closing a ring ends what is under way some time later: too late for the buffers. */
static void uring_close(struct engine *en)
{
	struct uring *u = of(en);

	cancel(u, TAG_SEND, &en->sending);
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
};
