// SPDX-License-Identifier: GPL-2.0-only
/* How a migration ends at the source: what may be undone then, and what not, see txn/commit.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/sender_internal.h"
#include "txn/foreign.h"
#include "vmm/proc_io.h"

#define TAKE_OVER_MS	5000u

/*
 * What is recorded. If QEMU does not listen to us any more, another client may have its monitor: the guardian tries on, also
 * when we have gone.
 */
static void undo(struct sender *s, enum undo_what what, struct err *e)
{
	struct err back = { 0 }, cause = *e;

	if (!journal_undo(&s->journal, s->qmp, what, &back) || proc_ended(s->vm.pidfd))
		return;
	qmp_close(s->qmp);
	s->qmp = NULL;
	fprintf(stderr, "godwit: %s; the guardian (process %d) tries again\n", back.text, (int)s->guardian.pid);
	if (guardian_take_over(&s->guardian, TAKE_OVER_MS))
		return;
	e->exit = GW_OK;
	err_set(e, GW_NOT_PUT_BACK, EBUSY,
		"%.400s%sThe source VM could not be put back yet (%.200s): process godwit-guardian tries on until it can; if another client has QEMU's monitor, close that",
		cause.text, *cause.text ? ". " : "", back.text);
}

static void hang_up(struct sender *s)
{
	channel_free(s->ch);
	s->ch = NULL;
	streams_free(s->streams);
	s->streams = NULL;
}

/*
 * The connections end for good before the source runs: what the receiver did not get, it never will. It is told first why.
 */
static void put_back(struct sender *s, struct err *e)
{
	guardian_stand_up(&s->guardian);
	if (s->ch)
		channel_abort(s->ch, e);
	hang_up(s);
	/* QEMU may hang in a write to it, and then hears no command. */
	migration_hang_up(&s->migration);
	undo(s, UNDO_ALL, e);
}

static void leave(struct sender *s, struct err *e)
{
	struct err cause = *e;

	e->exit = GW_OK;
	err_set(e, GW_UNKNOWN, EREMOTEIO,
		"after the device state was handed over: %.500s. The guest may run at the destination, so the source stays stopped: \"godwit resolve\" asks again; else look at both ends before you continue either",
		cause.text);
	undo(s, UNDO_SETTINGS, e);
}

static enum commit_source_event ask_verdict(struct sender *s, struct err *e)
{
	struct doubt d = { .addr = s->o->addr, .engine = s->o->engine, .timeout_ms = s->o->timeout_ms, .seconds = s->o->resolve_s };
	enum commit_source_event said;
	struct err why = { 0 };

	if (!s->verdicts)
		return SOURCE_IS_TIRED;
	memcpy(d.token, s->token, sizeof(d.token));
	/* The receiver may still listen to the old connection, and to no other. */
	hang_up(s);
	/*
	 * An operator who finds the guest stopped may save it to a file: with our capabilities that
	 * would leave its RAM out. Settings are ours to undo in any state (txn/commit.h), and all else
	 * stays recorded. What fails is tried again when the answer is there.
	 */
	if (s->qmp)
		journal_undo(&s->journal, s->qmp, UNDO_SETTINGS, &why);
	why = (struct err) { 0 };
	/* The operator may have enough of it before. */
	stop_heed();
	fprintf(stderr, "godwit: in doubt (%s): asking the receiver for %u s\n", e->text, d.seconds);
	said = doubt_ask(&d, &s->resumed_realtime_ns, &why);
	if (said == SOURCE_IS_TIRED) {
		struct err cause = *e;

		e->exit = GW_OK;
		err_set(e, cause.exit, EREMOTEIO, "%.400s; asked for %u s: %.300s", cause.text, d.seconds, why.text);
	}
	return said;
}

/* Somebody has let the guest run here behind the commit point: too late for us to undo anything. */
static int check_alone(struct sender *s, struct err *e)
{
	struct err ignored = { 0 };
	bool running = false;

	if (s->qmp)
		migration_running(s->qmp, &running, &ignored);
	if (!running)
		return 0;
	return err_set(e, GW_VM_STATE, EEXIST, "the guest runs at the destination, and here as well, as somebody has let it run on (cont): stop it here (stop), now");
}

int sender_settle(struct sender *s, int r, struct err *e)
{
	enum commit_source_event event = SOURCE_HEARS_RUNS;
	struct err back = { 0 };

	if (r && s->ch && channel_aborted(s->ch))
		event = SOURCE_HEARS_DEAD;
	else if (r)
		event = s->commit == COMMIT_PREPARED ? SOURCE_GIVES_UP : SOURCE_LOSES_LINK;
	for (;;) {
		switch (commit_source(&s->commit, event)) {
		case SOURCE_ASKS:
			event = ask_verdict(s, e);
			break;
		case SOURCE_IS_DONE:
			*e = (struct err) { 0 };
			undo(s, UNDO_SETTINGS, &back);
			if (back.exit)
				fprintf(stderr, "godwit: the guest runs at the destination. %s\n", back.text);
			return check_alone(s, e);
		case SOURCE_LEAVES:
			leave(s, e);
			return -EREMOTEIO;
		case SOURCE_UNDOES:
		case SOURCE_GOES_ON:	/* it does not, see above: what has no action of its own is a failure */
			put_back(s, e);
			return r;
		}
	}
}

/*
 * QEMU has no migration under way. If it has, that is waited for: until somebody asks to stop, then
 * the guardian does it.
 */
static bool nobody_migrates(struct sender *s, const struct foreign *f)
{
	if (foreign_wait(f, stop_requested))
		return true;
	qmp_close(s->qmp);
	s->qmp = NULL;
	guardian_undone(&s->guardian);
	fprintf(stderr, "godwit: the guardian (process %d) waits for that, and then switches the log off\n",
		(int)s->guardian.pid);
	return guardian_take_over(&s->guardian, 0);
}

/*
 * The session ends when the last of its descriptors is closed: ours, and the guardian's. Where the
 * guest has moved the log goes off in the background. Else the guest runs here, or may again: an
 * operator who migrates it by QEMU's own means must find the log off when we have ended, and one who
 * does so already must find it on (foreign.h).
 *
 * We wait here, and do not leave it to the guardian at once: a service manager that sees our end
 * ends the guardian, too.
 */
void sender_let_go(struct sender *s)
{
	struct foreign f = {
		.qmp = s->qmp, .qmp_path = s->o->qmp_path, .pidfd = s->vm.pidfd,
		.timeout_ms = s->o->timeout_ms,
	};
	bool stays = s->commit != COMMIT_RUNS && s->source && !s->o->pause;

	/* Threads that read by its bitmaps. */
	hang_up(s);
	if (stays && !s->guardian.at_work)
		stays = nobody_migrates(s, &f);
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
