// SPDX-License-Identifier: GPL-2.0-only
/* The order of things at the source. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "io/stop.h"
#include "kernel/device.h"
#include "migrate/hello.h"
#include "migrate/sender_internal.h"
#include "vmm/look.h"

#define PING_NS 1000000000ull

uint64_t sender_bytes(const struct sender *s)
{
	return channel_sent(s->ch) + streams_sent(s->streams);
}

/* How far it is. */
static void count(struct sender *s)
{
	struct report *rep = s->report;
	struct zero_copy_count zc = streams_zero_copies(s->streams);
	uint64_t taken, start_ns = rep->rows[0].start_ns;

	rep->total_ns = now_ns() - s->started_ns;
	rep->bytes = sender_bytes(s);
	rep->zero_copies = zc.sends;
	rep->zero_copies_copied = zc.copied;
	if (s->round) {
		taken = round_taken(s->round);
		/* Of the last round only its harvest knows how much it is: the guess is the harvest before. */
		rep->remaining_pages = rep->pending_pages > taken ? rep->pending_pages - taken : 0;
	}
	/* Until a whole round has been measured, what this one has shown so far is the best guess. */
	if (s->round && rep->round == 1 && rep->total_ns > start_ns)
		rep->rate = (uint64_t)((double)(rep->bytes - rep->rows[0].bytes) * 1e9 / (double)(rep->total_ns - start_ns));
}

void sender_progress(struct sender *s)
{
	count(s);
	if (s->o->progress)
		s->o->progress(s->report, s->o->progress_arg);
}

static int drop_pong(struct sender *s, struct err *e)
{
	uint8_t body[8];

	return channel_body(s->ch, body, sizeof(body), e);
}

int sender_recv(struct sender *s, struct wire_header *h, struct err *e)
{
	int r;

	while (!(r = channel_recv(s->ch, h, false, e)) && h->type == WIRE_PONG) {
		r = drop_pong(s, e);
		if (r)
			break;
	}
	return r;
}

/* ROUND, when all streams have said it, and its ACK. */
static int end_round(struct sender *s, bool last, struct err *e)
{
	struct wire_header h = { .type = WIRE_ROUND, .flags = last ? WIRE_ROUND_LAST : 0, .arg = s->report->round };
	int r;

	r = channel_send(s->ch, &h, NULL, e);
	if (!r)
		r = sender_recv(s, &h, e);
	if (!r && (h.type != WIRE_ACK || h.arg != s->report->round))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s %u where ACK %u was due", wire_type_name(h.type), h.arg,
			    s->report->round);
	return r;
}

/* When a stream just broke, the receiver may have said why on the control connection. */
static void ask_why(struct sender *s, struct err *e)
{
	struct err said = { 0 };

	if (e->exit != GW_LINK_LOST)
		return;
	channel_last_words(s->ch, 1000, &said);
	if (said.exit)
		*e = said;
}

static void begin_round(struct sender *s, bool last)
{
	struct report *rep = s->report;

	/* The first round takes all that is allocated. */
	if (++rep->round == 1) {
		rep->pending_pages = vm_allocated_pages(&s->vm);
		rep->remaining_pages = rep->pending_pages;
		rep->untouched_pages = rep->total_pages - rep->pending_pages;
	}
	count(s);
	report_round_begin(rep, last, rep->total_ns);
}

int sender_round(struct sender *s, enum round_kind kind, struct err *e)
{
	struct round_count sent = { 0, 0 };
	struct round rd;
	int r;

	begin_round(s, kind == ROUND_LAST);
	/* In the first round all pages count as written, which says nothing. */
	if (kind == ROUND_PRECOPY && s->report->round > 1)
		hot_hold(&s->hot, s->source);
	round_begin(&rd, &s->vm, s->source, kind, kind == ROUND_PRECOPY ? &s->hot : NULL);
	s->round = &rd;
	if (s->out_of_time)
		round_cut(&rd);
	r = streams_round(s->streams, &rd, s->report->round, &sent, sender_idle, s, e);
	if (!r)
		r = end_round(s, kind == ROUND_LAST, e);
	else
		ask_why(s, e);
	/* After a failure, or a cut, some of it is still here. */
	count(s);
	if (!r)
		s->report->remaining_pages = 0;
	s->round = NULL;
	round_end(&rd);
	report_round_end(s->report, sent.data_pages, sent.zero_pages, s->report->total_ns);
	return r;
}

int sender_listen(struct sender *s, struct err *e)
{
	struct wire_header h;
	int r = channel_recv(s->ch, &h, false, e);

	if (r)
		return r;
	if (h.type != WIRE_PONG)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s out of turn", wire_type_name(h.type));
	return drop_pong(s, e);
}

int sender_keep_alive(struct sender *s, struct err *e)
{
	if (now_ns() <= s->next_ping_ns)
		return 0;
	s->next_ping_ns = now_ns() + PING_NS;
	return hello_send_ping(s->ch, ++s->ping_serial, realtime_ns(), e);
}

int sender_idle(void *arg, struct err *e)
{
	struct sender *s = arg;
	int r = 0;

	sender_progress(s);
	if (stop_requested())
		return stop_err(e);
	if (channel_readable(s->ch))
		r = sender_listen(s, e);
	/* The streams are busy; the receiver must not take that for a dead control connection. */
	return r ? r : sender_keep_alive(s, e);
}

/* The time is over, and the guest is to stand still: what is under way is the last that is sent before it does. */
static void hurry(struct sender *s)
{
	s->out_of_time = true;
	pace_set(&s->pace, 0);
	if (s->round)
		round_cut(s->round);
}

/* Looked at from all waits of this thread: others who may ask to stop. */
static void look_around(void *arg)
{
	struct sender *s = arg;
	uint64_t timeout_ns = s->limits.timeout_s * 1000000000ull;

	control_serve(&s->control);
	if (!timeout_ns || s->out_of_time || now_ns() - s->started_ns < timeout_ns)
		return;
	if (s->limits.on_timeout == ON_TIMEOUT_PAUSE)
		hurry(s);
	else
		stop_request(STOP_TIME);
}

static int open_control(struct sender *s, struct err *e)
{
	struct control *c = &s->control;
	int r;

	c->vm_pid = s->vm.pid;
	if (!realpath(s->o->qmp_path, c->qmp_path))
		strcpy(c->qmp_path, "?");	/* it has gone; there was one to connect to */
	r = control_open(c, s->o->control, e);
	if (!r)
		stop_look(look_around, s);
	return r;
}

/* Everything that can be refused is refused here, before anything is changed anywhere. */
static int look(struct sender *s, struct err *e)
{
	struct look l = {
		.qmp_path = s->o->qmp_path, .pid = s->o->pid, .timeout_ms = s->o->timeout_ms,
		.downtime_limit_ms = s->limits.downtime_limit_ms, .pause = s->o->pause, .wish = s->o->wish,
		.claim = &s->claim, .qmp = &s->qmp, .vm = &s->vm, .migration = &s->migration, .way = &s->choice, .private = &s->devram.ram,
	};
	int r = look_all(&l, e);

	s->report->guest_was_paused = s->migration.qmp && !s->migration.was_running;
	return r ? r : open_control(s, e);
}

static int start_guardian(struct sender *s, struct err *e)
{
	int held[CLAIM_FDS_MAX], r;
	struct ward w = {
		.qmp_path = s->o->qmp_path, .pidfd = s->vm.pidfd, .pid = s->vm.pid, .vm_fd = s->vm.vm_fd, .control = s->control.local.path, .timeout_ms = s->o->timeout_ms,
		.session = -1, .lock = s->claim.lock.fd < 0 ? "" : s->claim.lock.path, .held = held, .nheld = claim_fds(&s->claim, &s->vm, held),
	};

	/* It keeps the session, so that comes first. */
	if (!s->o->pause) {
		s->session = device_open(e);
		if (s->session < 0)
			return s->session;
		w.session = s->session;
	}
	r = journal_open(&s->journal, e);
	return r ? r : guardian_start(&s->guardian, &w, &s->journal, e);
}

static int open_source(struct sender *s, struct err *e)
{
	int dev = s->session;

	s->session = -1;
	return s->o->pause ? source_none(&s->vm, &s->source, e) : source_kmod(&s->vm, dev, &s->source, e);
}

static int migrate(struct sender *s, struct err *e)
{
	int r;

	r = claim_take(&s->claim, &s->vm, e);
	/* Again: one in another container may have been at work until now. */
	if (!r)
		r = claim_check_mark(s->qmp, e);
	if (!r)
		r = migration_check_again(&s->migration, s->limits.downtime_limit_ms, e);
	if (!r)
		r = start_guardian(s, e);
	if (!r)
		r = claim_mark(s->qmp, &s->journal, s->o->addr, e);
	if (!r)
		r = open_source(s, e);
	if (!r && !s->o->pause)
		r = hot_init(&s->hot, &s->vm, e);
	if (!r)
		r = connect_peer(s, e);
	if (!r && s->way == &way_save)
		r = devram_send(&s->devram, s->ch, &s->report->device_bytes, e);
	if (!r && !s->o->pause)
		r = precopy(s, e);
	return r ? r : switchover(s, e);
}

int sender_run(const struct sender_options *o, struct report *report, struct err *e)
{
	struct sender s = {
		.o = o, .report = report, .vm = { .pidfd = -1, .vm_fd = -1 }, .session = -1,
		.migration = { .stream = -1 }, .way = &way_migrate, .saved = SAVED_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_PREPARED, .note = RECORD_NONE, .claim = CLAIM_NONE,
		.started_ns = now_ns(), .next_ping_ns = now_ns() + PING_NS, .limits = o->limits,
		.control = { .addr = o->addr, .report = report, .limits = &s.limits, .pace = &s.pace, .local = { .lfd = -1 } },
	};
	int r;

	pace_init(&s.pace, (uint64_t)o->limits.bandwidth_mib << 20);
	report->phase = "connect";
	report->started_realtime_ns = realtime_ns();
	report->limit_ns = o->limits.downtime_limit_ms * 1000000ull;
	r = look(&s, e);
	if (!r)
		r = migrate(&s, e);
	report->total_ns = now_ns() - s.started_ns;
	if (s.ch)
		report->bytes = sender_bytes(&s);
	if (s.guardian.pid > 0)
		r = sender_settle(&s, r, e);
	if (!r) {
		report->phase = "done";
		/* Not round_allocated(): walking 4 GiB took 16 ms that the operator waits for. */
		report->untouched_pages = report->total_pages - vm_allocated_pages(&s.vm);
		switchover_times(&s);
	}
	/* In doubt it stays, for `godwit resolve`; and for the guardian, if that still has to do what is due. */
	if (s.commit == COMMIT_IN_DOUBT || s.guardian.at_work)
		record_close(&s.note);
	else
		record_remove(&s.note);
	sender_let_go(&s);
	stop_look(NULL, NULL);
	control_close(&s.control, e);
	hot_free(&s.hot);
	saved_close(&s.saved);
	journal_close(&s.journal);
	devram_free(&s.devram);
	fit_free(&s.fit);
	migration_free(&s.migration);
	/* A guardian that is still at it keeps it. */
	if (s.guardian.at_work)
		claim_leave(&s.claim);
	else
		claim_drop(&s.claim, &s.vm);
	vm_close(&s.vm);
	qmp_close(s.qmp);
	return r;
}
