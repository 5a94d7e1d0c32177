// SPDX-License-Identifier: GPL-2.0-only
/* From an address to a receiver that is ready, with all connections that a migration needs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fit/host.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/hello.h"
#include "migrate/sender_internal.h"

/* One connection that has joined, or -errno. */
static int join(struct sender *s, unsigned int stream, const uint8_t *secret, struct err *e)
{
	struct wire_header h = { .type = WIRE_JOIN, .arg = stream, .length = WIRE_SECRET };
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	uint8_t said[WIRE_HEADER + WIRE_SECRET];
	int fd = sock_tcp_connect_again(channel_fd(s->ch), deadline), r;

	if (fd == -EINTR)
		return stop_err(e);
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "cannot connect stream %u to %s: %s; fewer --streams need fewer connections",
			       stream, s->o->addr, strerror(-fd));
	sock_tune(fd, s->o->timeout_ms);
	wire_put_header(said, &h);
	memcpy(said + WIRE_HEADER, secret, WIRE_SECRET);
	r = sock_send(fd, said, sizeof(said), deadline);
	if (!r)
		return fd;
	close(fd);
	return err_set(e, GW_LINK_LOST, -r, "stream %u to %s broke: %s", stream, s->o->addr, strerror(-r));
}

static int open_streams(struct sender *s, const uint8_t *secret, unsigned int n, struct err *e)
{
	struct wire_header h = { .type = WIRE_STREAMS, .arg = n };
	struct streams_options o = {
		.vm = &s->vm, .engine = s->o->engine, .pace = &s->pace, .timeout_ms = s->o->timeout_ms,
		.zero_copy = s->o->zero_copy,
	};
	int fds[WIRE_STREAMS_MAX], r;
	unsigned int made = 0;

	r = channel_send(s->ch, &h, NULL, e);
	for (; !r && made < n; made++) {
		fds[made] = join(s, made, secret, e);
		if (fds[made] < 0) {
			r = fds[made];
			break;
		}
	}
	if (!r)
		r = channel_expect(s->ch, WIRE_STREAMS, &h, e);
	if (!r && h.arg != n)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the other side answered %u streams where %u were due", h.arg, n);
	if (!r)
		return streams_start(&o, fds, n, &s->streams, e);
	while (made)
		close(fds[--made]);
	return r;
}

/* READY, and the streams. */
static int join_streams(struct sender *s, struct err *e)
{
	struct wire_header h;
	uint8_t secret[WIRE_SECRET];
	unsigned int n = s->o->streams;
	int r;

	r = channel_expect(s->ch, WIRE_READY, &h, e);
	if (!r)
		r = channel_body(s->ch, secret, sizeof(secret), e);
	if (r)
		return r;
	if (n > h.arg)
		n = h.arg;
	s->report->streams = n;
	memcpy(s->token, secret, sizeof(s->token));
	r = way_agreed(s, h.flags & WIRE_SAVED, e);
	return r ? r : open_streams(s, secret, n, e);
}

/* Each difference in a line of its own; the reason to give up, if there is but one, is the last that the sender says. */
static int tell_findings(const struct findings *f, struct err *e)
{
	for (unsigned int i = 0; i < findings_kept(f); i++)
		if (f->rows[i].severity == FIT_WARNING || f->nfatal > 1)
			fprintf(stderr, "godwit: %s: %s: %s\n", f->rows[i].severity == FIT_WARNING ? "warning" : "does not fit",
				fit_class_name(f->rows[i].class), f->rows[i].text);
	return findings_verdict(f, e);
}

/* Is the destination the machine that the guest was started on? */
static int does_it_fit(struct sender *s, uint64_t features, struct err *e)
{
	int r;

	s->views = features & WIRE_VIEWS;
	if (!s->views) {
		fprintf(stderr, "godwit: warning: the receiver's godwit is too old to say what machine it has: whether the guest fits there shows only when it has been stopped\n");
		return 0;
	}
	s->fit.findings.accepted = s->o->accepted;
	r = fit_ask(s->ch, s->qmp, &s->vm, &s->fit, e);
	return r ? r : tell_findings(&s->fit.findings, e);
}

int sender_check_same(struct sender *s, struct err *e)
{
	return s->views ? fit_check_same(s->qmp, &s->fit, e) : 0;
}

static int compare_clocks(struct sender *s, struct err *e)
{
	struct findings f = { .accepted = s->o->accepted };
	int r;

	host_compare_clocks(s->clock_offset_ns, s->rtt_ns, &f);
	r = tell_findings(&f, e);
	findings_free(&f);
	return r;
}

int sender_fits_still(struct sender *s, bool *changed, struct err *e)
{
	int r;

	*changed = false;
	r = s->views ? fit_again(s->ch, s->qmp, &s->vm, &s->fit, changed, e) : 0;
	if (r || !*changed)
		return r;
	fprintf(stderr, "godwit: a VM was changed since the migration began: looked at both ends again\n");
	return tell_findings(&s->fit.findings, e);
}

int connect_peer(struct sender *s, struct err *e)
{
	struct hello_pong pong;
	uint64_t features = 0;
	int r = hello(s->o->addr, s->o->engine, s->o->timeout_ms, &s->ch, &features, e);

	s->verdicts = features & WIRE_VERDICTS;
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		s->report->total_pages += s->vm.blocks[i].pages;
	if (!r)
		r = does_it_fit(s, features, e);
	if (!r)
		r = hello_blocks(s->ch, WIRE_BLOCKS, features, &s->vm, &s->devram.ram, e);
	if (!r)
		r = join_streams(s, e);
	if (!r)
		r = hello_clocks(s->ch, &pong, e);
	if (r)
		return r;
	s->rtt_ns = pong.rtt_ns;
	s->clock_offset_ns = pong.offset_ns;
	return compare_clocks(s, e);
}
