// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/address.h"
#include "net/dial.h"
#include "net/sock.h"

static int dial_failed(const struct dial *d, unsigned int stream, int r, struct err *e)
{
	if (r == -EINTR)
		return stop_err(e);
	return err_set(e, GW_UNREACHABLE, -r,
		       "cannot connect stream %u to %s: %s; fewer --streams need fewer connections",
		       stream, d->addr, strerror(-r));
}

void dial_init(struct dial *d)
{
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++) {
		d->fds[i] = -1;
		d->tls[i] = NULL;
	}
}

int dial_begin(struct dial *d, int fd, struct err *e)
{
	for (unsigned int i = d->n; i < WIRE_STREAMS_MAX; i++) {
		if (d->fds[i] >= 0)
			close(d->fds[i]);
		d->fds[i] = -1;
	}
	for (unsigned int i = 0; i < d->n; i++) {
		if (d->fds[i] >= 0)
			continue;
		d->fds[i] = address_connect_again(d->addr, fd);
		if (d->fds[i] < 0)
			return dial_failed(d, i, d->fds[i], e);
	}
	return 0;
}

bool dial_is_connected(const struct dial *d)
{
	for (unsigned int i = 0; i < d->n; i++)
		if (sock_wait(d->fds[i], POLLOUT, 0))
			return false;
	return true;
}

static int dial_secure(struct dial *d, uint64_t deadline, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < d->n; i++) {
		r = tls_open(d->creds, d->fds[i], &d->tls[i], e);
		if (!r && d->keep_keys)
			tls_keep_keys(d->tls[i]);
	}
	return r ? r : tls_handshake(d->tls, d->n, deadline, e);
}

/* By records of the library, or as the socket takes it. */
static int dial_say(struct tls *tls, int fd, const uint8_t *buf, size_t len, uint64_t deadline)
{
	const struct iovec iov = { (void *)buf, len };
	ssize_t n;
	int r;

	if (!tls || tls_in_kernel(tls))
		return sock_send(fd, buf, len, deadline);
	n = tls_seal(tls, &iov, 1);
	if (n < 0)
		return (int)n;
	while (!(r = tls_flush(tls))) {
		r = sock_wait(fd, POLLOUT, deadline);
		if (r)
			return r;
	}
	return r < 0 ? r : 0;
}

int dial_join(struct dial *d, struct err *e)
{
	struct wire_header h = { .type = WIRE_JOIN, .length = WIRE_SECRET };
	uint8_t join[WIRE_HEADER + WIRE_SECRET];
	uint64_t deadline = deadline_ms(d->patience_ms);
	int r = 0;

	for (unsigned int i = 0; i < d->n; i++) {
		r = sock_tcp_connected(d->fds[i], deadline);
		if (r)
			return dial_failed(d, i, r, e);
		sock_tune(d->fds[i], d->patience_ms);
	}
	if (d->creds)
		r = dial_secure(d, deadline, e);
	memcpy(join + WIRE_HEADER, d->secret, WIRE_SECRET);
	for (unsigned int i = 0; !r && i < d->n; i++) {
		h.arg = i;
		wire_put_header(join, &h);
		r = dial_say(d->tls[i], d->fds[i], join, sizeof(join), deadline);
		if (r)
			err_set(e, GW_LINK_LOST, -r, "stream %u to %s broke: %s", i, d->addr,
				strerror(-r));
	}
	return r;
}

void dial_take(struct dial *d, int *fds, struct tls **tls)
{
	memcpy(fds, d->fds, sizeof(d->fds));
	memcpy(tls, d->tls, sizeof(d->tls));
	dial_init(d);
}

/* All that have begun: by then fewer may be wanted. */
void dial_close(struct dial *d)
{
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++) {
		tls_free(d->tls[i]);
		d->tls[i] = NULL;
		if (d->fds[i] >= 0)
			close(d->fds[i]);
		d->fds[i] = -1;
	}
}
