// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "devstate/migration.h"
#include "proc/proc_io.h"
#include "txn/foreign.h"

#define AGAIN_MS	500u
#define SETUP_MS	20u
#define SETUP_TRIES	50u

/* 0, or -errno: QEMU does not answer. cancel: cancels the migration that is under way. */
static int foreign_ask(const struct foreign *f, struct migration_status *m, bool cancel)
{
	struct qmp *q = f->qmp;
	struct err e = { 0 };
	int r = q ? 0 : qmp_open_at(f->at, f->timeout_ms, &q, &e);

	/* Then another QEMU may answer at its path, perhaps under its number. */
	if (!r && proc_ended(f->pidfd))
		r = -ESRCH;
	if (!r && cancel)
		r = qmp_call(q, "migrate_cancel", NULL, NULL, &e);
	else if (!r)
		r = migration_query(q, m, &e);
	if (!f->qmp)
		qmp_close(q);
	return r;
}

/*
 * Did it begin before that? Counted back from before the question, and QEMU's number may be a
 * millisecond short: not later than it did begin.
 */
static bool foreign_older(const struct migration_status *m, uint64_t asked_ns, uint64_t than_ns)
{
	return m->total_ms >= 0 && asked_ns - (uint64_t)(m->total_ms + 1) * 1000000 <= than_ns;
}

/* The guest runs at the destination, or may: if it were cancelled it would run here as well. */
static bool foreign_is_beyond(const struct migration_status *m)
{
	return !strncmp(m->status, "postcopy", 8) || !strcmp(m->status, "colo");
}

static void foreign_report_loss(const struct migration_status *m)
{
	say("a migration of QEMU's own (%s) began before godwit was done with the dirty log: writes of the guest may be missing there: if the guest does not run there yet, throw that copy away, continue the guest here (cont), and migrate it again",
		m->status);
}

/* Waits for its end: it may have completed before the command. */
static void foreign_cancel(const struct foreign *f, struct migration_status *m)
{
	uint64_t deadline = deadline_ms(f->timeout_ms);

	if (foreign_is_beyond(m)) {
		foreign_report_loss(m);
		return;
	}
	foreign_ask(f, m, true);
	while (!foreign_ask(f, m, false) && m->under_way && now_ns() < deadline)
		nap_ms(SETUP_MS);
	if (m->under_way || !strcmp(m->status, "completed"))
		foreign_report_loss(m);
	else
		say("cancelled a migration of QEMU's own that began before godwit was done with the dirty log: it would have lost writes of the guest; begin it again");
}

/* Is this the end of a migration that had not ended then? */
static bool foreign_completed(const struct migration_status *m, const struct migration_status *then)
{
	return !strcmp(m->status, "completed") &&
	       (strcmp(then->status, m->status) || then->total_ms != m->total_ms ||
		then->bytes != m->bytes);
}

/* The same, or of one that came to nothing: of that QEMU says nothing but its status. */
static bool foreign_ended(const struct migration_status *m, const struct migration_status *then)
{
	return foreign_completed(m, then) ||
	       (migration_has_ended(m->status) && strcmp(then->status, m->status));
}

bool foreign_wait(const struct foreign *f, bool (*enough)(void))
{
	struct migration_status m;
	bool reported = f->quiet, judged = false, compared = false;

	for (unsigned int tries = 0;; tries++) {
		uint64_t asked_ns = now_ns();
		int r = foreign_ask(f, &m, false);

		if (!r && !compared && f->watch && f->watch->asked_ns &&
		    foreign_completed(&m, &f->watch->last) && f->cleared_ns >= f->watch->asked_ns)
			foreign_report_loss(&m);
		compared |= !r;
		if ((!r && !m.under_way) || proc_ended(f->pidfd))
			return true;
		/*
		 * Once is enough: nothing is cleared any more, so what begins later is newer. Each
		 * further answer that comes late would make the same migration look older.
		 */
		if (!r && !judged && m.total_ms >= 0) {
			judged = true;
			if (foreign_older(&m, asked_ns, f->cleared_ns)) {
				foreign_cancel(f, &m);
				continue;
			}
		}
		if (!r && !reported && (judged || tries >= SETUP_TRIES)) {
			say("QEMU has a migration of its own under way (%s), which needs KVM's dirty log: the log stays on until that migration has ended",
				m.status);
			reported = true;
		}
		if (enough && (r || enough()))
			return false;
		/* Of one that is still connecting QEMU does not say when it began. */
		nap_ms(!r && m.total_ms < 0 && tries < SETUP_TRIES ? SETUP_MS : AGAIN_MS);
	}
}

void foreign_end_overlap(const struct foreign *f, uint64_t off_ns)
{
	struct migration_status m;

	for (unsigned int i = 0; i < SETUP_TRIES; i++) {
		uint64_t asked_ns = now_ns();

		if (foreign_ask(f, &m, false) || !m.under_way)
			return;
		if (m.total_ms < 0) {
			/* QEMU is still connecting; once it has begun it says when. */
			nap_ms(SETUP_MS);
			continue;
		}
		if (foreign_older(&m, asked_ns, off_ns))
			foreign_cancel(f, &m);
		return;
	}
}

/*
 * One is under way. At once, before it can complete: what of it is lost is lost while both run.
 */
static int foreign_ends_us(struct foreign_watch *w, const struct migration_status *m, struct err *e)
{
	struct foreign f = { .qmp = w->qmp, .pidfd = -1, .timeout_ms = w->timeout_ms };

	lease_revoke(w->lease);
	foreign_end_overlap(&f, lease_cleared_ns(w->lease));
	return err_set(e, GW_VM_STATE, EBUSY,
		       "another program migrates the source VM, or saves it to a file (%s): wait for that to end, or cancel it",
		       m->status);
}

/*
 * One has begun and ended since QEMU was asked before. It may have been a snapshot. What it took of
 * the log we have not heard of; but at its end QEMU switches the log off, and the module counts all
 * pages as written. While the guest stands still QEMU puts that off until it runs again, and our
 * own `migrate`, which wants the log on, calls it off.
 */
static int foreign_came_and_went(struct foreign_watch *w, const struct migration_status *m,
				 uint64_t before_ns, struct err *e)
{
	char vm[64];
	int r;

	if (!strcmp(m->status, "completed") && lease_cleared_ns(w->lease) >= before_ns)
		foreign_report_loss(m);
	r = migration_vm_status(w->qmp, vm, sizeof(vm), e);
	if (r || !strcmp(vm, "running"))
		return r;
	lease_revoke(w->lease);
	if (!strcmp(vm, "postmigrate"))
		return err_set(e, GW_VM_STATE, EBUSY,
			       "another program has migrated the guest away, or saved it to a file, meanwhile");
	return err_set(e, GW_VM_STATE, EBUSY,
		       "another program has saved the guest, or begun to migrate it, and the guest stands still (\"%s\"): what that took of KVM's dirty log would be lost: try again",
		       vm);
}

static int foreign_take_answer(struct foreign_watch *w, const json_t *info, struct err *e)
{
	uint64_t before_ns = w->asked_ns;
	struct migration_status m;
	bool news;
	int r = 0;

	migration_read_status(info, &m);
	if (m.under_way)
		return foreign_ends_us(w, &m, e);
	news = before_ns && foreign_ended(&m, &w->last);
	w->asked_ns = w->asking_ns;
	w->last = m;
	if (news)
		r = foreign_came_and_went(w, &m, before_ns, e);
	if (!r)
		lease_renew(w->lease);
	return r;
}

bool foreign_may_hide(const struct foreign_watch *w)
{
	return w->asked_ns && migration_has_ended(w->last.status);
}

void foreign_ours_goes_on(struct foreign_watch *w, uint64_t since_ns)
{
	/* If ours ends now, and a foreign one completes before we learn of that: foreign_wait(). */
	w->last = (struct migration_status) { .status = "active", .under_way = true };
	w->asked_ns = since_ns;
	lease_renew(w->lease);
}

int foreign_renew(struct foreign_watch *w, struct err *e)
{
	json_auto_t *info = NULL;
	int r;

	w->asking_ns = now_ns();
	r = qmp_call(w->qmp, "query-migrate", NULL, &info, e);
	w->asking = false;
	return r ? r : foreign_take_answer(w, info, e);
}

int foreign_renew_soon(struct foreign_watch *w, struct err *e)
{
	json_auto_t *info = NULL;
	uint64_t now = now_ns(), looked_ns = w->looked_ns;
	int r = 0;

	w->looked_ns = now;
	if (w->asking) {
		r = qmp_take_reply(w->qmp, &info, e);
		/* An answer that may be as old as a lease says nothing of now: ask again. */
		if (r > 0)
			r = now - looked_ns < LEASE_NS ? foreign_take_answer(w, info, e) : 0;
		else if (!r && !qmp_answered(w->qmp))
			return now_ns() < w->asking_ns + w->timeout_ms * 1000000ull ? 0 :
			       err_set(e, GW_TIMEOUT, ETIMEDOUT, "QEMU does not answer query-migrate within %u s", w->timeout_ms / 1000);
		w->asking = false;
	}
	if (r)
		return r;
	w->asking_ns = now;
	r = qmp_begin(w->qmp, "query-migrate", NULL, e);
	w->asking = !r;
	return r;
}
