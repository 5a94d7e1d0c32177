// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "io/door.h"
#include "io/sock.h"

int door_init(struct door *d, int lfd)
{
	memset(d, 0, sizeof(*d));
	d->lfd = lfd;
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++)
		d->fds[i] = -1;
	/* So short a request is never cut. */
	return getrandom(d->secret, sizeof(d->secret), 0) == sizeof(d->secret) ? 0 : -errno;
}

static void forget(struct door *d, unsigned int i)
{
	d->nr_guests--;
	memmove(&d->guests[i], &d->guests[i + 1], (d->nr_guests - i) * sizeof(d->guests[0]));
}

static void hang_up(struct door *d, unsigned int i)
{
	close(d->guests[i].fd);
	forget(d, i);
}

/* Takes as long whatever differs: a secret must not be found byte by byte. */
static bool secret_ok(const uint8_t *a, const uint8_t *b)
{
	volatile uint8_t differ = 0;

	for (unsigned int i = 0; i < WIRE_SECRET; i++)
		differ |= a[i] ^ b[i];
	return !differ;
}

/* Which stream is this? -1: none of ours. */
static int which(const struct door *d, const uint8_t *said)
{
	struct wire_header h;

	if (wire_get_header(said, &h) || h.type != WIRE_JOIN || !secret_ok(said + WIRE_HEADER, d->secret) ||
	    h.arg >= d->want || d->fds[h.arg] >= 0)
		return -1;
	return (int)h.arg;
}

static void hear(struct door *d, unsigned int i)
{
	struct door_guest *g = &d->guests[i];
	ssize_t n = sock_recv_some(g->fd, g->said + g->len, sizeof(g->said) - g->len);
	int stream;

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		hang_up(d, i);
		return;
	}
	g->len += (unsigned int)n;
	if (g->len < sizeof(g->said))
		return;
	stream = which(d, g->said);
	if (stream < 0) {
		hang_up(d, i);
		return;
	}
	d->fds[stream] = g->fd;
	forget(d, i);
}

static int let_in(struct door *d)
{
	int fd = sock_accept(d->lfd);

	if (fd == -EAGAIN)
		return 0;
	/* Out of descriptors or memory: strangers must make room. */
	if (fd < 0 && d->nr_guests) {
		hang_up(d, 0);
		return 0;
	}
	if (fd < 0)
		return fd;
	if (d->nr_guests == DOOR_GUESTS)
		hang_up(d, 0);
	d->guests[d->nr_guests++] = (struct door_guest) { .fd = fd };
	return 0;
}

static bool all_here(const struct door *d)
{
	for (unsigned int i = 0; i < d->want; i++)
		if (d->fds[i] < 0)
			return false;
	return true;
}

int door_step(struct door *d, int other_fd, int ms)
{
	struct pollfd p[DOOR_GUESTS + 2] = { { .fd = other_fd, .events = POLLIN }, { .fd = d->lfd, .events = POLLIN } };
	int r = 0;

	for (unsigned int i = 0; i < d->nr_guests; i++)
		p[i + 2] = (struct pollfd) { .fd = d->guests[i].fd, .events = POLLIN };
	if (poll(p, d->nr_guests + 2, ms) < 0)
		return errno == EINTR ? 0 : -errno;
	/* From the last one, as those behind it move up when one goes. */
	for (unsigned int i = d->nr_guests; i-- > 0;)
		if (p[i + 2].revents)
			hear(d, i);
	if (p[1].revents)
		r = let_in(d);
	return r ? r : all_here(d);
}

void door_take(struct door *d, int *fds)
{
	for (unsigned int i = 0; i < d->want; i++) {
		fds[i] = d->fds[i];
		d->fds[i] = -1;
	}
}

void door_close(struct door *d)
{
	while (d->nr_guests)
		hang_up(d, 0);
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++) {
		if (d->fds[i] >= 0)
			close(d->fds[i]);
		d->fds[i] = -1;
	}
}
