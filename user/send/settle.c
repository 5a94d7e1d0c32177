// SPDX-License-Identifier: GPL-2.0-only
/* How a migration ends at the source. What may be undone then, and what not: see txn/commit.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "plan/link.h"
#include "proc/proc_io.h"
#include "send/sender_internal.h"
#include "txn/foreign.h"

#define TAKE_OVER_MS	5000u
#define TELL_MS		1000u	/* for each answer when we tell the receiver that we gave up */
#define TELL_S		3u	/* for all of that, and round trips: our end waits for it */

/* In which QEMU is stopped, for as long as nobody continues the guest. */
static const char *settle_state(const struct sender *s)
{
	if (s->devstate == &devstate_migrate)
		return "postmigrate";
	return s->migration.was_running ? "paused" : "";
}

void sender_note_doubt(struct sender *s)
{
	struct doubt d = {
		.addr = s->o->addr, .ran = s->commit == COMMIT_RUNS,
		.dead = s->commit == COMMIT_DEAD,
		.paused = !s->migration.was_running, .continued = s->resumed,
		.state = settle_state(s),
	};

	d.complete = d.ran && (!s->owing.collected || s->owing.complete);
	if (d.complete && s->note_before)
		doubt_note_complete(s->vm.pid, s->note_before);
	/* A sender that takes over has no note of its own (doubt_note_ran()). */
	if (d.ran && s->note.fd < 0)
		return;
	memcpy(d.token, s->token, sizeof(d.token));
	doubt_write(&s->note, s->vm.pid, &d, s->journal.records);
}

static void settle_not_put_back(struct sender *s, enum undo_what what, const struct err *back,
				struct err *e)
{
	const struct err cause = *e;

	e->exit = GW_OK;
	err_set(e, GW_NOT_PUT_BACK, EBUSY,
		"%.400s%s%s could not be %s yet (%.200s): %s; if another client has QEMU's monitor, close that client",
		cause.text, *cause.text ? ". " : "",
		what == UNDO_ALL ? "The source VM" : "The source QEMU's settings",
		what == UNDO_ALL ? "rolled back" : "put back", back->text,
		!s->guardian.died ? "process godwit-guardian goes on trying" :
		what == UNDO_ALL ? "the guardian was killed, \"godwit resolve\" tries again" :
		"the guardian was killed");
}

/*
 * Undoes what is recorded. If QEMU does not answer us any more, another client may have its
 * monitor: the guardian tries again, also after our end.
 */
static void settle_undo(struct sender *s, enum undo_what what, struct err *e)
{
	struct err back = { 0 }, cause = *e;

	if (journal_undo(&s->journal, s->qmp, what, &back) && !proc_ended(s->vm.pidfd)) {
		qmp_close(s->qmp);
		s->qmp = NULL;
		say("%s; the guardian (process %d) tries again", back.text, (int)s->guardian.pid);
		/* By that `resolve` does it where the guardian is killed, which else drops it. */
		if (what == UNDO_ALL)
			sender_note_doubt(s);
		if (!guardian_take_over(&s->guardian, TAKE_OVER_MS)) {
			settle_not_put_back(s, what, &back, e);
			return;
		}
		s->journal.left |= s->guardian.left;
	}
	if (!s->journal.left)
		return;
	e->exit = GW_OK;
	err_set(e, GW_VM_STATE, EEXIST,
		"%.600s%sThe guest is left stopped here, by what may not be godwit's (a migration, a save to a file): continue it (cont) if it runs nowhere else",
		cause.text, *cause.text ? ". " : "");
}

static void settle_disconnect(struct sender *s)
{
	sender_disconnect(s);
	/* A failure while the last round was on its way. */
	if (s->round)
		round_end(s->round);
	s->round = NULL;
}

/*
 * The link was lost where the migration cannot go on from, and a receiver that was told to wait
 * (KEEP) does not know that: our question for its verdict ends the wait. This end has given up, and
 * all is undone: whatever the answer is, it changes nothing. If the link does not come back soon
 * the receiver waits its time. So it does if the operator asked us to stop, or --timeout was over:
 * then nothing is waited for here, this neither.
 */
void sender_tell(const struct sender *s, const char *addr)
{
	struct doubt d = {
		.addr = addr, .tls = s->o->tls, .engine = s->o->engine,
		.timeout_ms = link_patience_ms(TELL_MS, s->rtt_ns), .seconds = TELL_S,
		.rtt_ns = s->rtt_ns, .strict = true,
	};
	struct doubt_answer answer;
	struct err ignored = { 0 };

	memcpy(d.token, s->token, sizeof(d.token));
	doubt_ask(&d, &answer, &ignored);
}

/*
 * Ends the connections for good before the source runs: what the receiver did not get, it never
 * will. An ABORT tells it why, first. tells: the receiver does not know yet that it is over.
 */
static void settle_roll_back(struct sender *s, bool tells, struct err *e)
{
	bool told = false;

	guardian_stand_up(&s->guardian);
	if (s->ch)
		told = channel_abort(s->ch, e);
	settle_disconnect(s);
	/* QEMU may be blocked in a write to this socket, and then serves no command. */
	migration_close_stream(&s->migration);
	settle_undo(s, UNDO_ALL, e);
	if (tells && !told && s->keeps && s->verdicts)
		sender_tell(s, s->peer);
}

bool sender_was_continued(struct sender *s)
{
	const bool before = s->resumed;
	struct err ignored = { 0 };

	if (s->qmp && s->commit != COMMIT_PREPARED)
		sender_events(s, NULL, 0, &ignored);
	if (s->resumed && !before && s->note.fd >= 0)
		sender_note_doubt(s);
	/* With all RAM there it has gone. */
	if (s->resumed && s->note_before && !s->owing.complete)
		doubt_note_continued(s->vm.pid, s->note_before);
	return s->resumed;
}

static void settle_stay_stopped(struct sender *s, struct err *e)
{
	const bool continued = sender_was_continued(s);
	struct err cause = *e, back = { 0 };

	e->exit = GW_OK;
	err_set(e, GW_UNKNOWN, EREMOTEIO,
		"after the commit point: %.500s. The guest may run at the destination, %s: \"godwit resolve\" asks again; else look at both ends before you continue either",
		cause.text,
		continued ? "and another client has continued it here (cont): stop it here now (stop)" :
			    "so the source stays stopped");
	/* Whatever becomes of QEMU's settings, where the guest runs is not known. */
	settle_undo(s, UNDO_SETTINGS, &back);
	if (back.exit)
		say("%s", back.text);
}

static enum commit_source_event settle_ask(struct sender *s, struct err *e)
{
	struct doubt d = {
		.addr = s->o->addr, .tls = s->o->tls, .engine = s->o->engine,
		.timeout_ms = s->o->timeout_ms, .seconds = s->o->resolve_s,
		.rtt_ns = s->rtt_ns,
	};
	enum commit_source_event event;
	struct doubt_answer answer;
	struct err why = { 0 };

	if (!s->verdicts)
		return SOURCE_STOPS_ASKING;
	memcpy(d.token, s->token, sizeof(d.token));
	/* The receiver may still wait on the old connection, and serves no other before its end. */
	settle_disconnect(s);
	/*
	 * An operator who finds the guest stopped may save it to a file: with our capabilities QEMU
	 * would leave its RAM out. Settings are ours to undo in any state (txn/commit.h), and all
	 * else stays recorded. What fails here is tried again after the receiver's answer.
	 */
	if (s->qmp)
		journal_undo(&s->journal, s->qmp, UNDO_SETTINGS, &why);
	why = (struct err) { 0 };
	/* The operator may end the asking earlier. */
	stop_heed();
	say("in doubt (%s): asking the receiver for %u s", e->text,
		doubt_patience_ms(&d) / 1000);
	event = doubt_ask(&d, &answer, &why);
	s->resumed_realtime_ns = answer.resumed_ns;
	s->owing.complete |= event == SOURCE_LEARNS_RUNS && !answer.owing;
	/* The answer to RECOVER says that as well, but there may be none. */
	s->owing.lost = event == SOURCE_LEARNS_RUNS && answer.lost;
	if (event == SOURCE_STOPS_ASKING) {
		struct err cause = *e;

		e->exit = GW_OK;
		err_set(e, cause.exit, EREMOTEIO, "%.400s; asked the receiver for %u s: %.300s",
			cause.text, doubt_patience_ms(&d) / 1000, why.text);
	}
	return event;
}

int sender_check_source(struct sender *s, struct err *e)
{
	struct err ignored = { 0 };
	bool running = false;

	if (s->qmp)
		migration_running(s->qmp, &running, &ignored);
	if (running)
		return err_set(e, GW_RAN_TWICE, EEXIST,
			       "the guest runs at the destination AND here, because another client has continued it here (cont): stop it here now (stop)");
	if (!sender_was_continued(s))
		return 0;
	return err_set(e, GW_RAN_TWICE, EEXIST,
		       "the guest runs at the destination, AND another client has continued it here (cont), and stopped it again: leave it stopped here, and look at what it has written to its disks meanwhile");
}

/*
 * The guest has run at the destination, and its QEMU has exited: that is no guest that never ran,
 * which may go on here.
 */
static bool settle_was_lost(const struct sender *s)
{
	return s->owing.collected && channel_abort_status(s->ch) == GW_GUEST_LOST;
}

int sender_settle(struct sender *s, int r, struct err *e)
{
	enum commit_source_event event = SOURCE_LEARNS_RUNS;
	struct err back = { 0 }, owing;

	/* Which of both an ABORT says: RESUMED may have been dropped before it (channel_recv.c). */
	if (r && s->ch && channel_aborted(s->ch))
		event = settle_was_lost(s) ? SOURCE_LEARNS_RUNS : SOURCE_LEARNS_DEAD;
	else if (r)
		event = s->commit == COMMIT_PREPARED ? SOURCE_GIVES_UP : SOURCE_LOSES_LINK;
	for (;;) {
		const bool asked = s->commit == COMMIT_IN_DOUBT;

		switch (commit_source(&s->commit, event)) {
		case SOURCE_ASKS:
			event = settle_ask(s, e);
			break;
		case SOURCE_IS_DONE:
			owing = *e;
			*e = (struct err) { 0 };
			/* It compares before it loads. */
			s->report->verified = s->o->verify;
			/* An answer to ASK has the receiver forget, as DONE does. */
			if (s->note.fd >= 0)
				sender_note_doubt(s);
			settle_undo(s, UNDO_SETTINGS, &back);
			if (back.exit)
				say("the guest runs at the destination. %s",
					back.text);
			r = owing_settle(s, r, &owing);
			if (r)
				*e = owing;
			return r ? r : sender_check_source(s, e);
		case SOURCE_STAYS_STOPPED:
			settle_stay_stopped(s, e);
			return -EREMOTEIO;
		case SOURCE_ROLLS_BACK:
		case SOURCE_GOES_ON:	/* never for these events; if it were, a failure */
			/* The receiver has said so, and may forget it now. */
			if (asked && event == SOURCE_LEARNS_DEAD && s->note.fd >= 0)
				sender_note_doubt(s);
			settle_roll_back(s, event == SOURCE_GIVES_UP, e);
			return r;
		}
	}
}

/*
 * Waits until QEMU has no migration under way. A request to stop ends the wait, and leaves it to
 * the guardian. Return: foreign_wait()'s, or the guardian's.
 */
static bool settle_wait_foreign(struct sender *s, const struct foreign *f)
{
	if (foreign_wait(f, stop_requested))
		return true;
	qmp_close(s->qmp);
	s->qmp = NULL;
	guardian_undone(&s->guardian);
	say("the guardian (process %d) waits for QEMU's migration to end, and then switches the log off",
		(int)s->guardian.pid);
	return guardian_take_over(&s->guardian, 0);
}

/*
 * The session ends when the last of its descriptors is closed: ours, and the guardian's. If the
 * guest has moved, the log goes off in the background. Otherwise the guest runs here, or may run
 * again: an operator who migrates it by QEMU's own means must find the log off once we have ended,
 * and an operator who does so already must find it on (foreign.h).
 *
 * We wait here, and do not leave the wait to the guardian at once: a service manager that sees our
 * end ends the guardian, too.
 */
void sender_end_session(struct sender *s)
{
	struct foreign f = {
		.qmp = s->qmp, .at = &s->at, .pidfd = s->vm.pidfd,
		.timeout_ms = s->o->timeout_ms,
	};
	bool stays = s->commit != COMMIT_RUNS && s->source && !s->o->pause;

	/* Of a switchover that has failed by something else. */
	stop_checks_end(s, NULL);
	/* Ends the threads that read by the session's bitmaps. */
	settle_disconnect(s);
	if (s->lease) {
		f.cleared_ns = lease_cleared_ns(s->lease);
		f.watch = &s->foreign;
	}
	if (stays && !s->guardian.at_work)
		stays = settle_wait_foreign(s, &f);
	if (!s->guardian.at_work)
		guardian_dismiss(&s->guardian);
	if (s->session >= 0)
		close(s->session);
	if (s->source)
		s->source->ops->close(s->source, stays && !s->guardian.at_work);
	if (!stays || s->guardian.at_work)
		return;
	f.qmp = s->qmp;
	foreign_end_overlap(&f, now_ns());
}
