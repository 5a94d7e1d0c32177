// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "devstate/device_state.h"
#include "net/sock.h"

void device_state_init(struct device_state *d)
{
	*d = (struct device_state) { .memfd = -1, .held = UINT64_MAX };
	pthread_mutex_init(&d->lock, NULL);
}

void device_state_stop(struct device_state *d)
{
	atomic_store(&d->stop, true);
}

void device_state_free(struct device_state *d)
{
	if (d->memfd >= 0)
		close(d->memfd);
	d->memfd = -1;
	pthread_mutex_destroy(&d->lock);
}

/* Adds a part, which must not overlap another. */
static int device_state_add(struct device_state *d, struct device_part p, struct err *e)
{
	unsigned int i = 0;
	bool before, after;

	while (i < d->n && d->parts[i].to < p.from)
		i++;
	/* parts[i] is the first that touches it, overlaps it, or lies behind it. */
	before = i < d->n && d->parts[i].to == p.from;
	if (before)
		i++;
	if (i < d->n && d->parts[i].from < p.to)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a part of the device state twice");
	after = i < d->n && d->parts[i].from == p.to;
	if (before && after) {
		d->parts[i - 1].to = d->parts[i].to;
		d->n--;
		memmove(&d->parts[i], &d->parts[i + 1], (d->n - i) * sizeof(p));
	} else if (before) {
		d->parts[i - 1].to = p.to;
	} else if (after) {
		d->parts[i].from = p.from;
	} else {
		if (d->n == DEVICE_STATE_PARTS)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender's device state comes in more than %u pieces at a time",
				       DEVICE_STATE_PARTS);
		memmove(&d->parts[i + 1], &d->parts[i], (d->n - i) * sizeof(p));
		d->parts[i] = p;
		d->n++;
	}
	return 0;
}

/* Checks before it writes: what contradicts itself must not change what was there. */
static int device_state_keep(struct device_state *d, const uint8_t *bytes, struct device_part p,
			     struct err *e)
{
	size_t len = p.to - p.from;
	int r = device_state_add(d, p, e);

	if (r)
		return r;
	if (d->memfd < 0)
		d->memfd = memfd_create("godwit-device-state", MFD_CLOEXEC);
	if (d->memfd < 0 || pwrite(d->memfd, bytes, len, (off_t)p.from) != (ssize_t)len)
		return err_set(e, GW_INTERNAL, errno, "no memory for the device state: %s",
			       strerror(errno));
	return 0;
}

/* The end of what QEMU may have now: of what has come without a gap, and is not to be kept. */
static uint64_t device_state_feed_end(const struct device_state *d)
{
	uint64_t end = d->n && !d->parts[0].from ? d->parts[0].to : 0;

	return end < d->held ? end : d->held;
}

/* Sends all of it to QEMU, which may take its time. -ECANCELED: @stop. */
static int device_state_send(struct device_state *d, int qemu, const uint8_t *p, size_t len,
			     unsigned int timeout_ms, struct err *e)
{
	uint64_t deadline = deadline_ms(timeout_ms);

	while (len) {
		ssize_t n = send(qemu, p, len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0) {
			p += n;
			len -= (size_t)n;
			deadline = deadline_ms(timeout_ms);
			continue;
		}
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return err_set(e, GW_DEVICE_STATE, errno, "the destination QEMU refused the private RAM: give it the same machine type and devices as the source (its log may name the difference)");
		if (atomic_load(&d->stop))
			return -ECANCELED;
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the destination QEMU does not read its private RAM: see its log");
		sock_wait(qemu, POLLOUT, now_ns() + STOP_SLICE_NS);
	}
	return 0;
}

/*
 * Passes on to QEMU what it may have. One thread at a time, and not under the lock: QEMU may not
 * read, and no other thread is to wait for it. Called, and returns, with the lock held.
 */
static int device_state_feed(struct device_state *d, int qemu, unsigned int timeout_ms,
			     struct err *e)
{
	static uint8_t buf[WIRE_DEVICE_MAX];	/* of the thread that feeds */
	uint64_t end;
	int r = 0;

	if (d->feeding)
		return 0;
	d->feeding = true;
	while (!r && d->fed < (end = device_state_feed_end(d))) {
		size_t want = end - d->fed < sizeof(buf) ? end - d->fed : sizeof(buf);
		ssize_t n = pread(d->memfd, buf, want, (off_t)d->fed);

		if (n <= 0) {
			r = err_set(e, GW_INTERNAL, errno, "cannot read the device state back: %s",
				    strerror(errno));
			break;
		}
		pthread_mutex_unlock(&d->lock);
		r = device_state_send(d, qemu, buf, (size_t)n, timeout_ms, e);
		pthread_mutex_lock(&d->lock);
		d->fed += r ? 0 : (uint64_t)n;
	}
	d->feeding = false;
	if (r)
		d->err = *e;
	return r;
}

static int device_state_take(struct device_state *d, const struct wire_header *h,
			     const uint8_t *body, int qemu, unsigned int timeout_ms, struct err *e)
{
	uint64_t from = wire_get_u64(body);
	struct device_part p = { from, from + h->length - WIRE_PLACE };
	bool held = h->flags & WIRE_HELD;
	int r;

	if (d->err.exit) {
		*e = d->err;
		return -EIO;
	}
	if (from > DEVICE_STATE_MAX || p.to > DEVICE_STATE_MAX)
		return err_set(e, GW_BAD_PEER, EFBIG, "the sender's device state has more than %u MiB",
			       DEVICE_STATE_MAX >> 20);
	/* QEMU gets no byte that is to be kept, and none behind one. */
	if (held ? p.from < device_state_feed_end(d) : p.to > d->held)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent parts of the device state that contradict each other");
	r = device_state_keep(d, body + WIRE_PLACE, p, e);
	if (!r && held && p.from < d->held)
		d->held = p.from;
	return r ? r : device_state_feed(d, qemu, timeout_ms, e);
}

int device_state_frame(struct device_state *d, struct channel *ch, const struct wire_header *h,
		       int qemu, unsigned int timeout_ms, struct err *e)
{
	uint8_t *body = malloc(h->length);
	int r;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = channel_body(ch, body, h->length, e);
	if (!r) {
		pthread_mutex_lock(&d->lock);
		r = device_state_take(d, h, body, qemu, timeout_ms, e);
		pthread_mutex_unlock(&d->lock);
	}
	free(body);
	return r;
}

bool device_state_begun(struct device_state *d)
{
	bool begun;

	pthread_mutex_lock(&d->lock);
	begun = d->n;
	pthread_mutex_unlock(&d->lock);
	return begun;
}

int device_state_complete(struct device_state *d, uint64_t bytes, struct err *e)
{
	int r;

	pthread_mutex_lock(&d->lock);
	if (d->n && d->parts[d->n - 1].to > bytes)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent more device state than it announced");
	else
		r = d->n == 1 && !d->parts[0].from && d->parts[0].to == bytes;
	if (r == 1 && d->held < bytes)
		r = d->fed == d->held;
	else if (r == 1)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent no device state");
	pthread_mutex_unlock(&d->lock);
	return r;
}
