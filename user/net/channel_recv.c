// SPDX-License-Identifier: GPL-2.0-only
/* Receiving: frames, their bodies, and what the peer says when it gives up. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "net/channel_internal.h"
#include "net/sock.h"

#define PROGRESS	65536u	/* bytes in a timeout are enough */
#define LEFT_MAX	1000u	/* frames before an ABORT */
#define ASKED_TIMES	4	/* timeouts, for an answer while the peer shows that it lives */

/*
 * The peer is told that its ABORT was read: to see our end closed tells it nothing, as we may have
 * closed it before. Not in the middle of a frame of ours.
 */
static void confirm(struct channel *ch)
{
	const struct wire_header h = { .type = WIRE_DONE };
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	if (!ch->queued)
		ch->engine->ops->say(ch->engine, head, sizeof(head), now_ns());
}

/*
 * The peer's own exit status becomes ours where it means the same on this side. text has room for a
 * NUL.
 */
static int gave_up(struct channel *ch, const struct wire_header *h, char *text, struct err *e)
{
	enum gw_exit exit = GW_PEER_FAILED;

	text[h->length] = '\0';
	one_line(text, WIRE_TEXT_MAX + 1, text);	/* it goes to a terminal */
	if (h->arg == GW_RAM_DIFFERS || h->arg == GW_DEVICE_STATE || h->arg == GW_VERIFY ||
	    h->arg == GW_VERSION || h->arg == GW_TLS || h->arg == GW_NO_ROOM ||
	    h->arg == GW_CANCELLED || h->arg == GW_TIME_LIMIT || h->arg == GW_BAD_PEER)
		exit = (enum gw_exit)h->arg;
	ch->broken = ch->aborted = true;
	ch->abort_status = h->arg;
	confirm(ch);
	return err_set(e, exit, ECONNABORTED, "the other host gave up: %s", text);
}

/* Returns the last result of take(): > 0 if all of len was there. */
static ssize_t skip(struct engine *en, uint32_t len)
{
	uint8_t buf[4096];
	ssize_t n = 1;

	while (len && n > 0) {
		n = en->ops->take(en, buf, len < sizeof(buf) ? len : sizeof(buf));
		len -= n > 0 ? (uint32_t)n : 0;
	}
	return n;
}

/*
 * Reads on in what has come until there is an ABORT: there may be other frames before it, and the
 * rest of one that the caller was reading. Returns the last result of take(), and sets e if the
 * peer gave up.
 */
static ssize_t read_on(struct channel *ch, struct err *e)
{
	char text[WIRE_TEXT_MAX + 1];
	uint8_t head[WIRE_HEADER];
	struct engine *en = ch->engine;
	struct wire_header h = { .length = ch->due };
	unsigned int frames;
	ssize_t n = 1;

	/* A peer that never ends must not hold us. */
	for (frames = 0; n > 0 && frames < LEFT_MAX; frames++) {
		n = skip(en, h.length);
		if (n > 0)
			n = en->ops->take(en, head, sizeof(head));
		if (n > 0 && (n < (ssize_t)sizeof(head) || wire_get_header(head, &h)))
			return -EPROTO;
		if (n <= 0 || h.type != WIRE_ABORT)
			continue;
		n = h.length ? en->ops->take(en, text, h.length) : 0;
		if (n == (ssize_t)h.length)
			gave_up(ch, &h, text, e);
		return n;
	}
	return n;
}

void channel_keep_unread(struct channel *ch)
{
	ch->keeps = true;
}

/*
 * A send fails when the peer has closed, and it may have said why before: then that is the error.
 */
int channel_lost(struct channel *ch, int err, struct err *e)
{
	ssize_t n = -EAGAIN;

	ch->broken = true;
	if (ch->tls && tls_explain(ch->tls, err, e))
		return -err;
	if (!ch->engine->receiving && !ch->keeps)
		n = read_on(ch, e);
	if (ch->aborted)
		return -ECONNABORTED;
	if (ch->tls && n < 0 && tls_explain(ch->tls, (int)-n, e))
		return -err;
	/* Kernel TLS: a record that is no data, close_notify. */
	if (ch->tls && err == EIO)
		err = ECONNRESET;
	return err_set(e, GW_LINK_LOST, err, "the connection to the other host broke: %s", strerror(err));
}

/*
 * A peer that sends a byte now and then would hold us for ever; on a slow link with many streams a
 * whole body may take longer than the timeout. channel_wait() looks at the time only where nothing
 * has come for a slice, which a peer can avoid.
 */
static int recv_in_time(struct channel *ch, size_t got, size_t *mark, uint64_t *deadline,
			struct err *e)
{
	if (ch->until_ns && now_ns() > ch->until_ns)
		return channel_given_up(ch, e);
	if (!*deadline)
		return 0;
	if (got - *mark >= PROGRESS) {
		*mark = got;
		*deadline = channel_patience(ch);
	}
	return now_ns() > *deadline ? channel_silent(ch, e) : 0;
}

/* got: bytes that have come, also when it fails. */
static int recv_all(struct channel *ch, struct iovec *iov, unsigned int n, bool patient,
		    size_t *got, struct err *e)
{
	uint64_t deadline = patient ? 0 : channel_patience(ch);
	struct engine *en = ch->engine;
	size_t mark = 0;
	int r;

	*got = 0;
	/* Where there is always something to read, no wait ever looks. */
	r = channel_given_up(ch, e);
	if (r)
		return r;
	ch->recv_msg = (struct msghdr) { .msg_iov = iov, .msg_iovlen = n };
	while (ch->recv_msg.msg_iovlen) {
		if (!en->receiving) {
			en->received = 0;
			en->ops->recv(en, &ch->recv_msg);
		}
		r = channel_wait(ch, deadline, e);
		if (r) {
			/*
			 * One that is given up must not write into buffers that are the caller's
			 * again.
			 */
			en->ops->cancel_recv(en);
			*got += en->received > 0 ? (size_t)en->received : 0;
			return r;
		}
		if (en->receiving)
			continue;	/* that was a send */
		if (en->received == -EINTR || en->received == -EAGAIN)
			continue;
		if (en->received == -EFAULT) {
			ch->broken = true;
			return err_set(e, GW_NO_ROOM, EFAULT,
				       "there is no memory at the destination for what arrives: its tmpfs is full, there are too few huge pages, or a cgroup limits them");
		}
		if (en->received <= 0)
			return channel_lost(ch, en->received ? (int)-en->received : ECONNRESET, e);
		*got += (size_t)en->received;
		channel_iov_advance(&ch->recv_msg, (size_t)en->received);
		if (ch->recv_msg.msg_iovlen)
			r = recv_in_time(ch, *got, &mark, &deadline, e);
		if (r)
			return r;
	}
	return 0;
}

int channel_bodyv(struct channel *ch, struct iovec *iov, unsigned int n, struct err *e)
{
	size_t got;
	int r = recv_all(ch, iov, n, false, &got, e);

	ch->due -= (uint32_t)got;
	return r;
}

int channel_body(struct channel *ch, void *buf, size_t len, struct err *e)
{
	struct iovec iov = { buf, len };

	return len ? channel_bodyv(ch, &iov, 1, e) : 0;
}

static int aborted(struct channel *ch, const struct wire_header *h, struct err *e)
{
	char text[WIRE_TEXT_MAX + 1];
	int r = channel_body(ch, text, h->length, e);

	return r ? r : gave_up(ch, h, text, e);
}

int channel_recv(struct channel *ch, struct wire_header *h, bool patient, struct err *e)
{
	uint8_t head[WIRE_HEADER];
	struct iovec iov = { head, sizeof(head) };
	size_t got;
	int r;

	r = recv_all(ch, &iov, 1, patient, &got, e);
	if (r) {
		ch->torn = got;
		return r;
	}
	r = wire_get_header(head, h);
	ch->due = r ? 0 : h->length;
	if (r == -EPROTONOSUPPORT)
		return err_set(e, GW_VERSION, EPROTO,
			       "the other side does not speak godwit's protocol, version %u: install the same version on both hosts",
			       WIRE_VERSION);
	if (r)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent a frame that makes no sense (type %u): is it godwit, of the same version?",
			       wire_header_type(head));
	return h->type == WIRE_ABORT ? aborted(ch, h, e) : 0;
}

void channel_unasked(struct channel *ch,
		     int (*take)(void *arg, const struct wire_header *h, struct err *e), void *arg)
{
	ch->take = take;
	ch->take_arg = arg;
}

int channel_recv_asked(struct channel *ch, struct wire_header *h, struct err *e)
{
	/* Much may be before the answer on its way: RAM that the peer writes first. */
	uint64_t deadline = now_ns() + ASKED_TIMES * ch->timeout_ns;
	int r;

	while (!(r = channel_recv(ch, h, false, e)) && ch->take) {
		r = ch->take(ch->take_arg, h, e);
		if (r <= 0)
			break;
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the other host shows that it lives, but does not answer (for %llu s)",
				       (unsigned long long)(ASKED_TIMES * ch->timeout_ns /
							    1000000000ull));
	}
	return r;
}

int channel_expect(struct channel *ch, enum wire_type type, struct wire_header *h, struct err *e)
{
	int r = channel_recv_asked(ch, h, e);

	if (r)
		return r;
	if (h->type != type)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s where %s was due", wire_type_name(h->type),
			       wire_type_name(type));
	return 0;
}

bool channel_aborted(const struct channel *ch)
{
	return ch->aborted;
}

uint32_t channel_abort_status(const struct channel *ch)
{
	return ch->abort_status;
}

bool channel_readable(const struct channel *ch)
{
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	const struct engine_ops *ops = ch->engine->ops;

	return (ops->pending && ops->pending(ch->engine)) || poll(&p, 1, 0) > 0;
}

/* Drops what is left of a body that the caller does not want. */
static int drop_body(struct channel *ch, struct err *e)
{
	uint8_t buf[4096];
	int r = 0;

	while (ch->due && !r)
		r = channel_body(ch, buf, ch->due < sizeof(buf) ? ch->due : sizeof(buf), e);
	return r;
}

void channel_last_words(struct channel *ch, unsigned int ms, struct err *e)
{
	struct wire_header h;
	int r;

	ch->interrupt = NULL;
	ch->until_ns = deadline_ms(ms);
	if (ch->torn || ch->broken)
		return;
	/* The wait that was given up may have been for a body. */
	r = drop_body(ch, e);
	while (!r && !ch->broken &&
	       (channel_readable(ch) || !sock_wait(ch->fd, POLLIN, ch->until_ns))) {
		r = channel_recv(ch, &h, false, e);
		if (!r)
			r = drop_body(ch, e);
	}
}
