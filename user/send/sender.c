// SPDX-License-Identifier: GPL-2.0-only
/* The order of a migration at the source. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "kernel/device.h"
#include "reuse/image.h"
#include "send/preflight.h"
#include "send/sender_internal.h"

/* The round that is under way is cut, and the switchover follows. */
static void sender_hurry(struct sender *s)
{
	s->hurries = true;
	if (s->round)
		round_cut(s->round);
}

/* While there is no link it would be slowed for nothing. */
static unsigned int sender_throttle(const struct sender *s)
{
	if (!s->streams)
		return 0;
	return s->limits.throttle == THROTTLE_AUTO ? s->slowed : s->limits.throttle;
}

void sender_slow(struct sender *s)
{
	const unsigned int percent = sender_throttle(s);
	const char *why;

	if (!s->brake.shared)
		return;
	brake_alive(&s->brake);
	brake_set(&s->brake, percent);
	why = percent ? brake_why(&s->brake) : NULL;
	s->report->throttle = why ? 0 : percent;
	s->report->throttled_ns = brake_held_ns(&s->brake);
	if (why && !s->slow_told)
		say("a vCPU cannot be slowed (%s), and the guest runs as ever: end the debugger that is attached to QEMU, or let godwit trace it (CAP_SYS_PTRACE)",
			why);
	s->slow_told = why;
}

void sender_brake_end(struct sender *s)
{
	if (s->brake.shared)
		s->report->throttled_ns = brake_held_ns(&s->brake);
	brake_end(&s->brake);
}

/* It may be asked for later (godwit set), if it was not now. */
static int sender_open_brake(struct sender *s, struct err *e)
{
	struct err failed = { 0 };
	int r;

	if (s->o->pause)
		return 0;
	r = brake_open(&s->brake, &failed);
	if (r && s->limits.throttle)
		*e = failed;
	return s->limits.throttle ? r : 0;
}

/*
 * Called from all waits of this thread: serves the control socket, enforces --timeout, and obeys
 * --postcopy now.
 */
static void sender_serve(void *arg)
{
	struct sender *s = arg;
	uint64_t timeout_ns = s->limits.timeout_s * 1000000000ull;

	control_serve(&s->control);
	sender_slow(s);
	/* Behind the commit point there is nothing to give up, and a sender in doubt asks on. */
	if (s->commit != COMMIT_PREPARED)
		return;
	if (s->limits.postcopy == POSTCOPY_NOW && s->owing.agreed && !s->hurries)
		sender_hurry(s);
	if (!timeout_ns || now_ns() - s->started_ns < timeout_ns)
		return;
	if (s->limits.on_timeout == ON_TIMEOUT_CANCEL) {
		stop_request(STOP_TIME);
	} else if (!s->hurries) {
		pace_set(&s->pace, 0);
		sender_hurry(s);
	}
}

static int sender_open_control(struct sender *s, struct err *e)
{
	struct control *c = &s->control;
	int r;

	c->vm_pid = s->vm.pid;
	if (!realpath(s->o->qmp_path, c->qmp_path))
		strcpy(c->qmp_path, "?");	/* removed since we have connected to it */
	r = control_open(c, s->o->control, e);
	if (!r)
		stop_set_hook(sender_serve, s);
	return r;
}

/* Refuses whatever can be refused, before anything is changed anywhere. */
static int sender_preflight(struct sender *s, struct err *e)
{
	struct preflight p = {
		.qmp_path = s->o->qmp_path, .pid = s->o->pid, .timeout_ms = s->o->timeout_ms,
		.downtime_limit_ms = s->limits.downtime_limit_ms, .pause = s->o->pause,
		.wish = s->o->wish, .claim = &s->claim, .qmp = &s->qmp, .vm = &s->vm,
		.migration = &s->migration, .mode = &s->mode, .private = &s->private_copy.ram,
	};
	int r = preflight_all(&p, e);

	s->report->guest_was_paused = s->migration.qmp && !s->migration.was_running;
	return r ? r : sender_open_control(s, e);
}

static int sender_start_guardian(struct sender *s, struct err *e)
{
	int held[CLAIM_FDS_MAX], r;
	struct ward w = {
		.pidfd = s->vm.pidfd, .pid = s->vm.pid,
		.vm_fd = s->vm.vm_fd, .session = -1,
		.lock = s->claim.lock.fd < 0 ? "" : s->claim.lock.path,
		.held = held, .nheld = claim_fds(&s->claim, &s->vm, held),
		.control = s->control.socket.path, .timeout_ms = s->o->timeout_ms,
	};

	w.at = s->at = qmp_place(s->qmp, s->o->qmp_path, s->vm.pid);
	/* The guardian keeps the session, so that comes first. */
	if (!s->o->pause) {
		s->session = device_open_or_pause(e);
		if (s->session < 0)
			return s->session;
		w.session = s->session;
		s->lease = lease_new();
		w.lease = s->lease;
		if (!s->lease)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	r = journal_open(&s->journal, e);
	return r ? r : guardian_start(&s->guardian, &w, &s->journal, e);
}

static int sender_open_source(struct sender *s, struct err *e)
{
	int dev = s->session, r;

	s->session = -1;
	if (s->o->pause)
		return source_none(&s->vm, &s->source, e);
	r = source_kmod(&s->vm, dev, &s->source, e);
	if (!r)
		s->source->lease = s->lease;
	s->foreign = (struct foreign_watch) {
		.qmp = s->qmp, .timeout_ms = s->o->timeout_ms, .lease = s->lease,
	};
	return r;
}

/*
 * A stream has just broken: the receiver may have said why, in an ABORT on the control connection.
 */
static void sender_read_abort(struct sender *s, struct err *e)
{
	struct err aborted = { 0 };

	if (e->exit != GW_LINK_LOST || !s->ch)
		return;
	channel_last_words(s->ch, 1000, &aborted);
	if (aborted.exit)
		*e = aborted;
}

static int sender_migrate(struct sender *s, struct err *e)
{
	int r = sender_open_brake(s, e);

	if (!r)
		r = claim_take(&s->claim, &s->vm, e);
	/* Again: a godwit in another container may have been at work until now. */
	if (!r)
		r = claim_check_mark(s->qmp, e);
	if (!r)
		r = migration_check_again(&s->migration, s->limits.downtime_limit_ms, e);
	if (!r)
		r = sender_start_guardian(s, e);
	if (!r)
		r = claim_mark(s->qmp, &s->journal, s->o->addr, e);
	/* Without a mark until now nothing is in doubt: `resolve` was killed just before that. */
	if (!r)
		doubt_forget(s->vm.pid);
	if (!r)
		r = sender_open_source(s, e);
	if (!r && !s->o->pause)
		r = hot_pages_init(&s->hot, &s->vm, e);
	if (!r && !s->o->pause)
		r = rewritten_init(&s->rewritten, &s->vm, e);
	if (!r && !s->o->pause)
		r = zeros_init(&s->zeros, &s->vm, e);
	if (!r)
		r = connect_peer(s, e);
	if (!r)
		r = stripes_init(&s->stripes, &s->vm, e);
	if (!r)
		r = sender_send_ahead(s, e);
	if (!r)
		r = serial_rings_find(s->qmp, s->vm.pid, &s->serial, e);
	if (!r && !s->o->pause)
		r = precopy(s, e);
	if (!r)
		r = switchover(s, e);
	if (r && s->commit == COMMIT_PREPARED)
		sender_read_abort(s, e);
	return r;
}

/* Ends the session and the guardian, and releases everything. outcome: for `godwit cancel`. */
static void sender_close(struct sender *s, const struct err *outcome)
{
	const bool runs = s->commit == COMMIT_RUNS;
	const bool owes = s->owing.collected && !s->owing.complete && runs;

	/*
	 * The note stays for `godwit resolve` when in doubt, or when the guest may lack RAM, or if
	 * the guardian was killed, and for one that rolls back, and drops it then. That the guest
	 * is lost is the receiver's word: if that was wrong, `send --recover` still finds what it
	 * needs.
	 */
	if (s->commit == COMMIT_IN_DOUBT || owes ||
	    ((s->guardian.at_work || s->guardian.died) && !runs))
		record_close(&s->note);
	else
		record_remove(&s->note);
	json_decref(s->note_before);
	sender_end_session(s);
	lease_free(s->lease);
	stop_set_hook(NULL, NULL);
	control_close(&s->control, outcome);
	owing_free(s);
	hot_pages_free(&s->hot);
	rewritten_free(&s->rewritten);
	zeros_free(&s->zeros);
	stripes_free(&s->stripes);
	delta_free(s->delta);
	referring_free(&s->reuse);
	save_close(&s->save);
	journal_close(&s->journal);
	private_ram_copy_free(&s->private_copy);
	serial_rings_free(&s->serial);
	fit_free(&s->fit);
	migration_free(&s->migration);
	/* A guardian that is still at work keeps the claim. */
	if (s->guardian.at_work)
		claim_leave(&s->claim);
	else
		claim_drop(&s->claim, &s->vm);
	qmp_close(s->qmp);
	qmp_place_forget(&s->at);
}

/*
 * All that the migration had is undone, and every lock, note and socket of it is gone: nobody waits
 * for this. The source's RAM is at rest, as its guest runs elsewhere; if the operator ends QEMU, or
 * runs something in it, there is no image or a useless one, which harms no receiver.
 */
static void sender_leave_image(struct sender *s, const struct err *outcome)
{
	struct report *rep = s->report;
	uint64_t began_ns;
	struct err e = { 0 };
	int r;

	strcpy(rep->image.state, "writing");
	if (s->o->ended)
		s->o->ended(rep, outcome, s->o->progress_arg);
	/* A request to stop may end it. */
	stop_heed();
	began_ns = now_ns();
	r = image_write(s->o->leave_image, &s->vm, stop_requested, &rep->image.bytes, &e);
	rep->image.time_ns = now_ns() - began_ns;
	strcpy(rep->image.state, r ? "failed" : "left");
	if (r)
		say("warning: the guest has moved, and no image of it was left: %s",
			e.text);
}

int sender_run(const struct sender_options *o, struct report *report, struct err *e)
{
	struct sender s = {
		.o = o, .report = report, .vm = { .pidfd = -1, .vm_fd = -1 }, .session = -1,
		.at = QMP_PLACE_NONE,
		.migration = { .stream = -1 }, .devstate = &devstate_migrate, .save = SAVE_NONE,
		.owing = OWING_NONE,
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_PREPARED, .note = RECORD_NONE, .claim = CLAIM_NONE,
		.compress = codec_wish_word(&o->limits.compress),
		.started_ns = now_ns(), .next_ping_ns = now_ns() + PING_NS, .limits = o->limits,
		.control = {
			.addr = o->addr, .report = report, .limits = &s.limits, .pace = &s.pace,
			.compress = &s.compress, .features = &s.features,
			.no_postcopy = &s.owing.why_not,
			.socket = { .lfd = -1 },
		},
	};
	int r;

	pace_init(&s.pace, (uint64_t)o->limits.bandwidth_mib << 20);
	report->phase = "connect";
	report->started_realtime_ns = realtime_ns();
	report->limit_ns = o->limits.downtime_limit_ms * 1000000ull;
	if (o->recover) {
		r = owing_take_over(&s, e);
	} else {
		r = sender_preflight(&s, e);
		if (!r)
			r = sender_migrate(&s, e);
	}
	sender_brake_end(&s);
	report->total_ns = now_ns() - s.started_ns;
	if (s.ch)
		report->bytes = sender_bytes(&s);
	if (s.guardian.pid > 0)
		r = sender_settle(&s, r, e);
	if (!r) {
		report->phase = "done";
		/* Not source_allocated(): its walk over 4 GiB took 16 ms of the operator's time. */
		report->untouched_pages = report->total_pages - vm_allocated_pages(&s.vm);
		if (!o->recover)
			switchover_times(&s);
	}
	sender_close(&s, e);
	if (!r && o->leave_image)
		sender_leave_image(&s, e);
	vm_close(&s.vm);
	return r;
}
