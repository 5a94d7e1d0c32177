// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connects to the receiver, compares both ends, and opens all connections that a migration needs.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/say.h"
#include "fit/host.h"
#include "net/dial.h"
#include "net/sock.h"
#include "peer/hello.h"
#include "plan/link.h"
#include "send/sender_internal.h"

/* TCP knows nothing of a link behind a tunnel; PONGs do, and are there later. */
unsigned int connect_patience_ms(const struct sender *s)
{
	const uint64_t rtt_ns = sock_least_rtt_ns(channel_fd(s->ch));

	return link_patience_ms(s->o->timeout_ms, rtt_ns > s->rtt_ns ? rtt_ns : s->rtt_ns);
}

static void connect_be_patient(const struct sender *s)
{
	channel_set_timeout(s->ch, connect_patience_ms(s));
	sock_tune(channel_fd(s->ch), connect_patience_ms(s));
}

/* On a long link all PINGs leave at once. */
static int connect_ask_clock(struct sender *s, struct hello_asked *asked, struct hello_pong *pong,
			     struct err *e)
{
	if (hello_is_long(sock_least_rtt_ns(channel_fd(s->ch))))
		return hello_ask_clocks(s->ch, asked, e);
	return hello_clocks(s->ch, pong, e);
}

static int connect_joined(const struct wire_header *h, unsigned int due, struct err *e)
{
	if (h->type != WIRE_STREAMS || !due)
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s where %s was due",
			       wire_type_name(h->type), due ? "STREAMS" : "PONG");
	return h->arg == due ? 0 :
	       err_set(e, GW_BAD_PEER, EPROTO,
		       "the receiver confirmed %u streams where %u were due", h->arg, due);
}

/*
 * What is still due of PONGs, and of STREAMS, for so many streams (0: not yet), in whatever order.
 * Once they have joined the receiver may say LOAD before each PONG: the next one is soon enough.
 */
static int connect_hear(struct sender *s, struct hello_asked *asked, struct hello_pong *pong,
			unsigned int due, struct err *e)
{
	unsigned int loads = 0;
	bool joined = false;
	int r = 0;

	while (!r && (asked->n || due)) {
		struct wire_header h;

		r = channel_recv(s->ch, &h, false, e);
		if (!r && h.type == WIRE_PONG && asked->n) {
			r = hello_take_pong(s->ch, &h, asked, pong, e);
		} else if (!r && (h.type != WIRE_LOAD || !joined || loads++ == HELLO_AT_ONCE)) {
			r = connect_joined(&h, due, e);
			joined = !r;
			due = 0;
		}
	}
	if (r)
		return r;
	s->rtt_ns = s->report->link.rtt_ns = pong->rtt_ns;
	s->clock_offset_ns = pong->offset_ns;
	return 0;
}

/*
 * What a stream shows: with TLS a value that only the two ends of the control connection know, so
 * that a stream is of the same two.
 */
static void connect_secret(const struct sender *s, const uint8_t *ready, uint8_t *secret)
{
	uint8_t export[TLS_EXPORT];

	memcpy(secret, ready, WIRE_SECRET);
	if (!channel_tls(s->ch))
		return;
	tls_export(channel_tls(s->ch), ready, WIRE_SECRET, export);
	memcpy(secret, export, WIRE_SECRET);
}

/*
 * Where nothing of JOIN is waited for it leaves behind the PINGs, which saves a round trip. To wait
 * for a connection, or for a handshake, would count as part of the one that PONGs measure; and what
 * has not begun is a link that came back: in post-copy FAULTS may come between them.
 */
static int connect_dial(struct sender *s, struct dial *d, struct err *e)
{
	const bool begun = d->fds[0] >= 0;
	struct hello_pong pong = { .rtt_ns = UINT64_MAX };
	struct hello_asked asked = { 0 };
	int r = dial_begin(d, channel_fd(s->ch), e);

	if (!r)
		r = connect_ask_clock(s, &asked, &pong, e);
	if (!r && (!begun || d->creds || !dial_is_connected(d)))
		r = connect_hear(s, &asked, &pong, 0, e);
	d->patience_ms = connect_patience_ms(s);
	if (!r)
		r = dial_join(d, e);
	return r ? r : connect_hear(s, &asked, &pong, d->n, e);
}

/* d: connections that have begun, if there are any; none is left there. */
static int connect_use_streams(struct sender *s, const uint8_t *ready, unsigned int n,
			       struct dial *d, struct err *e)
{
	struct wire_header h = { .type = WIRE_STREAMS, .arg = n + s->owing.agreed };
	struct tls *tls[WIRE_STREAMS_MAX];
	struct send_streams_options o = {
		.vm = &s->vm, .engine = s->o->engine, .pace = &s->pace, .tls = tls,
		.zero_copy = s->o->zero_copy,
		.compress = &s->compress, .features = s->features,
		.delta = s->delta, .delta_always = s->o->delta == DELTA_ON, .reuse = &s->reuse,
		.zeros = &s->zeros,
		.pack_threads = s->o->pack_threads,
		.idle = sender_idle, .arg = s,
	};
	int fds[WIRE_STREAMS_MAX], r;

	d->n = h.arg;
	d->addr = s->o->addr;
	d->creds = s->o->tls;
	d->keep_keys = tls_is_long(s->report->total_pages * PAGE_BYTES, n);
	/* To connect again it was what is left of the time for that. */
	connect_be_patient(s);
	connect_secret(s, ready, d->secret);
	r = channel_send(s->ch, &h, NULL, e);
	if (!r)
		r = connect_dial(s, d, e);
	if (r) {
		dial_close(d);
		return r;
	}
	connect_be_patient(s);
	o.timeout_ms = connect_patience_ms(s);
	s->report->kernel_tls &= !d->keep_keys;
	dial_take(d, fds, tls);
	if (s->owing.agreed)
		owing_connection(s, fds[n], tls[n]);
	return send_streams_start(&o, fds, n, &s->streams, e);
}

int connect_open_streams(struct sender *s, const uint8_t *ready, unsigned int n, struct err *e)
{
	struct dial d;

	dial_init(&d);
	return connect_use_streams(s, ready, n, &d, e);
}

/* The receiver's answer to s->mode. save: it can load a device state that save mode makes. */
static int connect_agree_mode(struct sender *s, bool save, struct err *e)
{
	int r;

	if (save && s->mode == MODE_MIGRATE)
		return err_set(e, GW_BAD_PEER, EPROTO,
			       "the receiver chose save mode, which was not offered");
	if (!save)
		return s->mode == MODE_SAVE ? mode_refused(s->o->wish, e) : 0;
	s->devstate = &devstate_save;
	s->report->save_mode = true;
	r = journal_save(&s->journal, e);
	return r ? r : save_open(&s->save, s->qmp, e);
}

/* The streams that we would have. By now TCP has measured some round trips. */
static unsigned int connect_wish(struct sender *s)
{
	uint64_t rtt_ns = sock_least_rtt_ns(channel_fd(s->ch));

	s->spread = link_is_long(rtt_ns);
	return s->o->streams ? s->o->streams :
			       link_streams(s->o->cpus, rtt_ns, WIRE_STREAMS_MAX);
}

/* Receives READY, and opens n streams, as far as the receiver has so many. */
static int connect_ready(struct sender *s, unsigned int n, struct dial *begun, struct err *e)
{
	struct wire_header h;
	uint8_t secret[WIRE_SECRET];
	int r = hello_ready(s->ch, s->features, &h, e);

	if (!r)
		r = channel_body(s->ch, secret, sizeof(secret), e);
	if (r)
		return r;
	if (n > h.arg)
		n = h.arg;
	memcpy(s->token, secret, sizeof(s->token));
	r = connect_agree_mode(s, h.flags & WIRE_SAVE_MODE, e);
	if (!r)
		r = owing_hear(s, e);
	if (!r && s->reuse_soon)
		r = sender_hear_reuse(s, e);
	if (s->owing.agreed && n == WIRE_STREAMS_MAX)
		n--;
	s->report->streams = n;
	return r ? r : connect_use_streams(s, secret, n, begun, e);
}

/*
 * With --reconnect it is asked behind KEEP, as before that no loss is survived, and behind save
 * mode's private RAM, which has come if there is an answer (state_there).
 */
static int connect_ask_reuse(struct sender *s, struct err *e)
{
	s->reuse_soon = s->features & WIRE_REUSES && s->features & WIRE_REUSES_SOON &&
			s->o->reuse_mib && !s->o->reconnect_s;
	return s->reuse_soon ? referring_want(s->ch, e) : 0;
}

/*
 * Says which RAM there is, and all that READY has no part in, so that on a long link it travels
 * with that: whether pages may be owed, what the receiver has in a file, and the connections of
 * the streams, which wait at the receiver's listener until READY has told their secret. The
 * destination is known to fit by now.
 */
static int connect_agree(struct sender *s, uint64_t features, struct err *e)
{
	const unsigned int n = connect_wish(s);
	struct dial d = { .addr = s->o->addr };
	struct err later = { 0 };
	int r = hello_blocks(s->ch, WIRE_BLOCKS, features, &s->vm, &s->private_copy.ram, e);

	dial_init(&d);
	if (!r)
		r = owing_ask(s, e);
	if (!r)
		r = connect_ask_reuse(s, e);
	d.n = n + s->owing.asked;
	if (d.n > WIRE_STREAMS_MAX)
		d.n = WIRE_STREAMS_MAX;
	/*
	 * If one fails at once it begins again, when an ABORT of the receiver's may say why. (A
	 * UNIX socket, which has no round trip, may wait for room in a backlog.)
	 */
	if (!r && hello_is_long(sock_least_rtt_ns(channel_fd(s->ch))))
		dial_begin(&d, channel_fd(s->ch), &later);
	if (!r)
		r = connect_ready(s, n, &d, e);
	if (r)
		dial_close(&d);
	return r;
}

/*
 * Prints each difference in a line of its own. A single fatal one is not printed here: the sender
 * ends with it as its last message.
 */
static int connect_print_findings(const struct findings *f, struct err *e)
{
	for (unsigned int i = 0; i < findings_kept(f); i++)
		if (f->rows[i].severity == FIT_WARNING || f->nfatal > 1)
			say("%s: %s: %s",
				f->rows[i].severity == FIT_WARNING ? "warning" : "does not fit",
				fit_class_name(f->rows[i].class), f->rows[i].text);
	return findings_verdict(f, e);
}

/* Is the destination the machine that the guest was started on? */
static int connect_check_fit(struct sender *s, uint64_t features, struct err *e)
{
	int r;

	if (s->o->no_compare)
		return 0;
	s->views = features & WIRE_VIEWS;
	if (!s->views) {
		say("warning: the receiver's godwit is too old to describe its machine: whether the guest fits there shows only once the guest is stopped");
		return 0;
	}
	s->fit.findings.accepted = s->o->accepted;
	r = fit_ask(s->ch, s->qmp, &s->vm, &s->fit, e);
	return r ? r : connect_print_findings(&s->fit.findings, e);
}

int sender_check_same(struct sender *s, struct err *e)
{
	return s->views ? fit_check_same(s->qmp, &s->fit, e) : 0;
}

/* What PINGs, and TCP, have told of both hosts. */
static int connect_compare_hosts(struct sender *s, struct err *e)
{
	struct findings f = { .accepted = s->o->accepted };
	/* TCP's round trip: behind a tunnel the buffers are the tunnel's. */
	struct window window = {
		.streams = s->report->streams, .rtt_ns = sock_least_rtt_ns(channel_fd(s->ch)),
		.goal = WINDOW_GIGABIT,
	};
	int r;

	host_compare_clocks(s->clock_offset_ns, s->rtt_ns, &f);
	if (s->limits.bandwidth_mib && (uint64_t)s->limits.bandwidth_mib << 20 < window.goal)
		window.goal = (uint64_t)s->limits.bandwidth_mib << 20;
	host_compare_window(s->fit.here, s->fit.there, &window, &f);
	r = connect_print_findings(&f, e);
	findings_free(&f);
	return r;
}

int sender_check_fit(struct sender *s, bool *changed, struct err *e)
{
	int r;

	*changed = false;
	if (s->fits)
		return s->fits = false;
	r = s->views ? fit_again(s->ch, s->qmp, &s->vm, &s->fit, changed, e) : 0;
	if (r || !*changed)
		return r;
	say("a VM was changed since the migration began: compared both ends again");
	return connect_print_findings(&s->fit.findings, e);
}

/* --reconnect: asks the receiver to wait for us if the link is lost. */
static int connect_keep(struct sender *s, uint64_t features, struct err *e)
{
	struct wire_header h = { .type = WIRE_KEEP, .arg = s->o->reconnect_s };

	if (!s->o->reconnect_s)
		return 0;
	s->keeps = (features & WIRE_RECONNECTS) &&
		   !address_of_peer(s->o->addr, channel_fd(s->ch), s->peer);
	if (s->keeps)
		return channel_send(s->ch, &h, NULL, e);
	say("warning: the receiver's godwit is too old for --reconnect: if the link is lost the migration fails");
	return 0;
}

void connect_report_tls(const struct sender *s)
{
	const struct tls *tls = s->ch ? channel_tls(s->ch) : NULL;
	struct report *rep = s->report;

	rep->encrypted = tls;
	rep->kernel_tls = tls && tls_in_kernel(tls);
	snprintf(rep->cipher, sizeof(rep->cipher), "%s", tls ? TLS_CIPHER_NAME : "");
}

int connect_peer(struct sender *s, struct err *e)
{
	const struct hello_peer peer = {
		.addr = s->o->addr, .tls = s->o->tls, .engine = s->o->engine,
		.timeout_ms = s->o->timeout_ms,
	};
	uint64_t features = 0;
	int r = hello(&peer, &s->ch, &features, e);

	s->features = features;
	s->verdicts = features & WIRE_VERDICTS;
	connect_report_tls(s);
	if (!r)
		r = codec_check(&s->limits.compress, features, e);
	if (!r)
		r = sender_open_delta(s, e);
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		s->report->total_pages += s->vm.blocks[i].pages;
	if (!r)
		r = connect_check_fit(s, features, e);
	if (!r)
		r = fit_choose_mode(&s->fit, s->o->wish, s->qmp, &s->vm, s->migration.was_running,
				    &s->mode, &s->private_copy.ram, e);
	if (!r)
		r = connect_agree(s, features, e);
	if (!r)
		r = connect_keep(s, features, e);
	if (r)
		return r;
	channel_unasked(s->ch, sender_take, s);
	return connect_compare_hosts(s, e);
}
