// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "net/join.h"
#include "net/sock.h"

int join_init(struct join *j, int lfd)
{
	memset(j, 0, sizeof(*j));
	j->lfd = lfd;
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++)
		j->fds[i] = -1;
	/* getrandom() never cuts a request this short. */
	return getrandom(j->secret, sizeof(j->secret), 0) == sizeof(j->secret) ? 0 : -errno;
}

static void join_remove(struct join *j, unsigned int i)
{
	j->nr_candidates--;
	memmove(&j->candidates[i], &j->candidates[i + 1],
		(j->nr_candidates - i) * sizeof(j->candidates[0]));
}

static void join_reject(struct join *j, unsigned int i)
{
	tls_free(j->candidates[i].tls);
	close(j->candidates[i].fd);
	join_remove(j, i);
}

bool join_secret_ok(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t differ = 0;

	for (unsigned int i = 0; i < WIRE_SECRET; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

/* The stream that this JOIN names. -1: not a JOIN of ours, or its stream has joined already. */
static int join_stream(const struct join *j, const uint8_t *frame)
{
	struct wire_header h;

	if (wire_get_header(frame, &h) || h.type != WIRE_JOIN ||
	    !join_secret_ok(frame + WIRE_HEADER, j->secret) || h.arg >= j->want ||
	    j->fds[h.arg] >= 0)
		return -1;
	return (int)h.arg;
}

/* 1: the whole frame is there; 0: not yet; else: it never will be. */
static ssize_t join_fill(struct join_candidate *c)
{
	const bool records = c->tls && !tls_in_kernel(c->tls);
	ssize_t n = 1;

	/* To the end: poll() does not tell of records that the library has read ahead. */
	while (n > 0 && c->len < sizeof(c->frame)) {
		struct iovec left = { c->frame + c->len, sizeof(c->frame) - c->len };

		n = records ? tls_read(c->tls, &left, 1) :
			      sock_recv_some(c->fd, left.iov_base, left.iov_len);
		if (n > 0)
			c->len += (unsigned int)n;
	}
	if (n == -EAGAIN)
		return 0;
	return n > 0 ? 1 : -1;
}

static void join_read(struct join *j, unsigned int i)
{
	struct join_candidate *c = &j->candidates[i];
	struct err ignored = { 0 };
	ssize_t r = c->secure ? 1 : tls_step(c->tls, &ignored);
	int stream;

	c->secure = r > 0;
	if (r > 0)
		r = join_fill(c);
	if (!r)
		return;
	stream = r > 0 ? join_stream(j, c->frame) : -1;
	if (stream < 0) {
		join_reject(j, i);
		return;
	}
	j->fds[stream] = c->fd;
	j->tls[stream] = c->tls;
	join_remove(j, i);
}

static void join_add(struct join *j, int fd)
{
	struct join_candidate c = { .fd = fd, .secure = !j->creds };
	struct err ignored = { 0 };

	/* No memory: as a connection that is lost. */
	if (j->creds && tls_open(j->creds, fd, &c.tls, &ignored)) {
		close(fd);
		return;
	}
	if (c.tls && j->keep_keys)
		tls_keep_keys(c.tls);
	j->candidates[j->nr_candidates++] = c;
}

static int join_accept(struct join *j)
{
	int fd = sock_accept(j->lfd);

	if (fd == -EAGAIN)
		return 0;
	/* No descriptor or memory left: the oldest candidate makes room. */
	if (fd < 0 && j->nr_candidates) {
		join_reject(j, 0);
		return 0;
	}
	if (fd < 0)
		return fd;
	if (j->nr_candidates == JOIN_CANDIDATES)
		join_reject(j, 0);
	join_add(j, fd);
	return 0;
}

static bool join_complete(const struct join *j)
{
	for (unsigned int i = 0; i < j->want; i++)
		if (j->fds[i] < 0)
			return false;
	return true;
}

int join_step(struct join *j, int other_fd, int ms)
{
	struct pollfd p[JOIN_CANDIDATES + 2] = {
		{ .fd = other_fd, .events = POLLIN },
		{ .fd = j->lfd, .events = POLLIN },
	};
	int r = 0;

	for (unsigned int i = 0; i < j->nr_candidates; i++) {
		const struct join_candidate *c = &j->candidates[i];

		p[i + 2] = (struct pollfd) {
			.fd = c->fd, .events = c->secure ? POLLIN : tls_wants(c->tls),
		};
	}
	if (poll(p, j->nr_candidates + 2, ms) < 0)
		return errno == EINTR ? 0 : -errno;
	/* From the last to the first: when one is removed, those behind it move up. */
	for (unsigned int i = j->nr_candidates; i-- > 0;)
		if (p[i + 2].revents)
			join_read(j, i);
	if (p[1].revents)
		r = join_accept(j);
	return r ? r : join_complete(j);
}

void join_take(struct join *j, int *fds, struct tls **tls)
{
	for (unsigned int i = 0; i < j->want; i++) {
		fds[i] = j->fds[i];
		tls[i] = j->tls[i];
		j->fds[i] = -1;
		j->tls[i] = NULL;
	}
}

void join_close(struct join *j)
{
	while (j->nr_candidates)
		join_reject(j, 0);
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++) {
		tls_free(j->tls[i]);
		j->tls[i] = NULL;
		if (j->fds[i] >= 0)
			close(j->fds[i]);
		j->fds[i] = -1;
	}
}
