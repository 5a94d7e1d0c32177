// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "base/say.h"
#include "claim/claim.h"
#include "devstate/migration.h"
#include "doubt/resolve.h"
#include "txn/journal.h"
#include "txn/mark.h"

/*
 * QEMU may have what a migration has set whose sender was killed, and its guardian too: that the
 * guest would be saved without its RAM the operator must know.
 */
static int resolve_warn(struct qmp *q, struct err *e)
{
	bool leaves_ram_out = false;
	int r = migration_leaves_ram_out(q, &leaves_ram_out, e);

	if (!r && leaves_ram_out)
		say("QEMU has the capability x-ignore-shared, which that migration may have left, and with which QEMU's own leave RAM out: switch it off (migrate-set-capabilities), and pause-before-switchover as well, unless you have set them");
	return r;
}

/*
 * The operator says that the guest is to run here, whatever became of it elsewhere. No record is
 * left of what a killed migration has set: the message names the setting, and nothing is guessed.
 */
static int resolve_forget(struct qmp *q, pid_t pid, struct err *e)
{
	struct migration_status m;
	char target[MARK_MAX];
	int r = mark_read(q, target, e);

	if (!r)
		r = err_set(e, GW_NO_MIGRATION, ENOENT,
			    "there is nothing to forget: QEMU has no object \"" MARK_ID "\"");
	if (r > 0)
		r = migration_query(q, &m, e);
	if (!r && m.under_way)
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "that migration is still under way in QEMU (%s): end it first (migrate_cancel)",
			    m.status);
	if (!r)
		r = resolve_warn(q, e);
	if (!r)
		r = mark_remove(q, "", e);
	if (!r)
		doubt_forget(pid);
	return r;
}

static int resolve_undo(struct qmp *q, pid_t pid, const json_t *note, struct err *e)
{
	struct journal j = { .records = json_deep_copy(json_object_get(note, "undo")), .pipe = -1 };
	struct err ignored = { 0 };
	int r = journal_undo(&j, q, UNDO_ALL, e);

	/* The note has no settings: doubt_without_settings(). */
	if (!r)
		resolve_warn(q, &ignored);
	if (!r && j.left) {
		/* Nothing is left to resolve, and the receiver, which has answered, may forget. */
		doubt_forget(pid);
		r = err_set(e, GW_VM_STATE, EEXIST,
			    "the guest does not run at the destination, and is left stopped here, by what may not be godwit's (a migration, a save to a file): continue it here (cont) if it runs nowhere else");
	}
	journal_close(&j);
	return r;
}

/* Does the guest run here as well? */
static int resolve_running(struct qmp *q, pid_t pid, const struct doubt *d, json_t *note,
			   struct err *e)
{
	bool running = false;
	int r = migration_running(q, &running, e);

	if (!r && running) {
		doubt_note_continued(pid, note);
		r = err_set(e, GW_RAN_TWICE, EEXIST,
			    "the guest runs here AND at %s, because another client has continued it here (cont): stop it here now, the guest that has moved is the one at the destination",
			    d->addr);
	}
	return r;
}

/* Has it run here since it was sent? *why says by what that is known. */
static bool resolve_ran_since(struct qmp *q, const struct doubt *d, struct err *why)
{
	return doubt_check_source(q, d, why) &&
	       (why->exit == GW_VM_STATE || why->exit == GW_RAN_TWICE);
}

static int resolve_moved(struct qmp *q, pid_t pid, const struct doubt *d, json_t *note,
			 struct err *e)
{
	struct err why = { 0 };
	int r = resolve_running(q, pid, d, note, e);

	if (r)
		return r;
	if (!resolve_ran_since(q, d, &why))
		return 0;
	/* Nothing is left to resolve. */
	doubt_forget(pid);
	/* What else has changed QEMU's state since does not show whether the guest ran before. */
	return err_set(e, GW_RAN_TWICE, EEXIST,
		       "the guest runs at %s, AND another client has continued it here (cont)%s: leave it stopped here, and look at what it has written to its disks meanwhile",
		       d->addr, d->continued ? ", and stopped it again" :
		       ", or only reset it, saved it to a file or took its disks");
}

/*
 * The guest has run there, and may lack RAM. The note stays: it may have all of it later, and if
 * this one has run since, whoever would send that RAM must know. unheard: only the note has it,
 * and whether the QEMU there lives nobody says: why not. NULL: a receiver has said it.
 */
static int resolve_incomplete(struct qmp *q, pid_t pid, struct doubt *d, json_t *note,
			      const struct err *unheard, struct err *e)
{
	int r = resolve_running(q, pid, d, note, e);

	d->ran = true;
	if (r || resolve_ran_since(q, d, e))
		return r ? r : -EEXIST;
	*e = (struct err) { 0 };
	if (unheard)
		return err_set(e, GW_INCOMPLETE, EAGAIN,
			       "the guest has run at %s, and may lack RAM that is only here; no receiver says more now (%.600s): leave both QEMUs as they are, and do not continue this one",
			       d->addr, unheard->text);
	return err_set(e, GW_INCOMPLETE, EAGAIN,
		       "the guest runs at %s, and may lack RAM that is only here: leave both QEMUs as they are, and do not continue this one",
		       d->addr);
}

/* The note stays here as well: it is the receiver's word, and RAM that is at rest costs nothing. */
static int resolve_lost(const char *addr, const json_t *note, struct err *e)
{
	return err_set(e, GW_GUEST_LOST, ESRCH,
		       "the guest is lost, unless it had ended of its own accord: its QEMU at %s has exited before all of its RAM was there. %s",
		       addr, doubt_lost_words(doubt_guest(note)));
}

/* No receiver that tells the truth says this: two guests would come of it. */
static int resolve_contradicts(const char *addr, struct err *e)
{
	return err_set(e, GW_UNKNOWN, EPROTO,
		       "the receiver at %s says that the guest never arrived there, but it did, as another answer has shown: look at the destination, and leave this QEMU as it is. Nothing was changed",
		       addr);
}

static int resolve_act(struct qmp *q, pid_t pid, struct doubt *d, json_t *note,
		       enum commit_state *verdict, struct err *e)
{
	struct doubt_answer answer;
	struct err why = { 0 };

	switch (doubt_ask(d, &answer, &why)) {
	case SOURCE_LEARNS_RUNS:
		*verdict = COMMIT_RUNS;
		/* First of all: where the note stays, no later answer may start the source. */
		if (answer.lost || answer.owing)
			doubt_note_ran(pid, note);
		else
			doubt_note_complete(pid, note);
		if (answer.lost)
			return resolve_lost(d->addr, note, e);
		if (answer.owing)
			return resolve_incomplete(q, pid, d, note, NULL, e);
		return resolve_moved(q, pid, d, note, e);
	case SOURCE_LEARNS_DEAD:
		if (d->ran)
			return resolve_contradicts(d->addr, e);
		*verdict = COMMIT_DEAD;
		/* The receiver may forget: what fails here is for a later `resolve` to do. */
		doubt_note_dead(pid, note);
		return resolve_undo(q, pid, note, e);
	default:
		/* A receiver forgets what its sender knows. */
		if (d->complete) {
			*verdict = COMMIT_RUNS;
			return resolve_moved(q, pid, d, note, e);
		}
		if (d->ran)
			return resolve_incomplete(q, pid, d, note, &why, e);
		if (d->dead) {
			*verdict = COMMIT_DEAD;
			return resolve_undo(q, pid, note, e);
		}
		return err_set(e, GW_UNKNOWN, EAGAIN, "still in doubt: %.800s. Nothing was changed",
			       why.text);
	}
}

static int resolve_ask(const struct resolve_options *o, struct qmp *q, pid_t pid,
		       enum commit_state *verdict, struct err *e)
{
	json_auto_t *note = NULL;
	struct doubt d = o->doubt;
	int r = doubt_read(pid, &d, &note, e);

	if (o->doubt.addr)
		d.addr = o->doubt.addr;
	if (!r)
		r = resolve_act(q, pid, &d, note, verdict, e);
	if (!r)
		doubt_forget(pid);
	return r;
}

int resolve_run(const struct resolve_options *o, enum commit_state *verdict, struct err *e)
{
	struct vm vm = { .pidfd = -1, .vm_fd = -1 };
	struct claim claim = CLAIM_NONE;
	struct qmp *q = NULL;
	int r = qmp_open(o->qmp_path, o->doubt.timeout_ms, &q, e);

	if (!r)
		r = vm_find(q, o->pid, 0, &vm, e);
	if (!r)
		r = claim_take(&claim, &vm, e);
	if (!r)
		r = o->forget ? resolve_forget(q, vm.pid, e) :
				resolve_ask(o, q, vm.pid, verdict, e);
	claim_drop(&claim, &vm);
	vm_close(&vm);
	qmp_close(q);
	return r;
}
