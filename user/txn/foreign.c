// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
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
	int r = q ? 0 : qmp_open(f->qmp_path, f->timeout_ms, &q, &e);

	if (!r && cancel)
		r = qmp_call(q, "migrate_cancel", NULL, NULL, &e);
	else if (!r)
		r = migration_query(q, m, &e);
	if (!f->qmp)
		qmp_close(q);
	return r;
}

/* Did it begin before that? Counted back from before the question: not later than it did begin. */
static bool foreign_older(const struct migration_status *m, uint64_t asked_ns, uint64_t than_ns)
{
	return m->total_ms >= 0 && asked_ns - (uint64_t)m->total_ms * 1000000 <= than_ns;
}

/* Waits for its end: it may have completed before the command. */
static void foreign_cancel(const struct foreign *f)
{
	struct migration_status m = { .under_way = true };
	uint64_t deadline = deadline_ms(f->timeout_ms);

	foreign_ask(f, &m, true);
	while (!foreign_ask(f, &m, false) && m.under_way && now_ns() < deadline)
		nap_ms(SETUP_MS);
	if (m.under_way)
		fprintf(stderr, "godwit: a migration of QEMU's own (%s) began before godwit was done with the dirty log, and does not end when it is cancelled: cancel it (migrate_cancel), as writes of the guest may be missing there\n",
			m.status);
	else if (!strcmp(m.status, "completed"))
		fprintf(stderr, "godwit: a migration of QEMU's own has completed that began before godwit was done with the dirty log: writes of the guest may be missing there: if you can, throw that copy away, continue the guest here (cont), and migrate it again\n");
	else
		fprintf(stderr, "godwit: cancelled a migration of QEMU's own that began before godwit was done with the dirty log: it would have lost writes of the guest; begin it again\n");
}

bool foreign_wait(const struct foreign *f, bool (*enough)(void))
{
	struct migration_status m;
	bool reported = f->quiet, cancelled = false;

	for (;;) {
		uint64_t asked_ns = now_ns();
		int r = foreign_ask(f, &m, false);

		if ((!r && !m.under_way) || proc_ended(f->pidfd))
			return true;
		if (!r && !cancelled && foreign_older(&m, asked_ns, f->cleared_ns)) {
			foreign_cancel(f);
			cancelled = true;
			continue;
		}
		if (!r && !reported) {
			fprintf(stderr, "godwit: QEMU has a migration of its own under way (%s), which needs KVM's dirty log: the log stays on until that migration has ended\n",
				m.status);
			reported = true;
		}
		if (enough && (r || enough()))
			return false;
		/* Of one that is still connecting QEMU does not say when it began. */
		nap_ms(!r && m.total_ms < 0 ? SETUP_MS : AGAIN_MS);
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
		if (!foreign_older(&m, asked_ns, off_ns))
			return;
		foreign_cancel(f);
		return;
	}
}

/* The guest is gone, by a migration that has ended since QEMU was asked last. */
static int foreign_moved_it(struct foreign_watch *w, uint64_t before_ns, struct err *e)
{
	bool lost = lease_cleared_ns(w->lease, false) >= before_ns;

	return err_set(e, GW_VM_STATE, EBUSY,
		       "another program has migrated the guest away, or saved it to a file, meanwhile%s",
		       lost ? ", so quickly that writes of the guest may be missing there: if you can, throw that copy away, continue the guest here (cont), and migrate it again" : "");
}

int foreign_renew(struct foreign_watch *w, struct err *e)
{
	struct migration_status m;
	uint64_t asked_ns = now_ns(), before_ns = w->asked_ns;
	bool news;
	int r = migration_query(w->qmp, &m, e);

	if (r)
		return r;
	if (m.under_way) {
		lease_revoke(w->lease);
		return err_set(e, GW_VM_STATE, EBUSY,
			       "another program migrates the source VM, or saves it to a file (%s): wait for that to end, or cancel it",
			       m.status);
	}
	news = before_ns && !strcmp(m.status, "completed") &&
	       (strcmp(w->last.status, m.status) || w->last.total_ms != m.total_ms ||
		w->last.bytes != m.bytes);
	w->asked_ns = asked_ns;
	w->last = m;
	if (news) {
		char vm[64];

		r = migration_vm_status(w->qmp, vm, sizeof(vm), e);
		if (r || !strcmp(vm, "postmigrate")) {
			lease_revoke(w->lease);
			return r ? r : foreign_moved_it(w, before_ns, e);
		}
	}
	lease_renew(w->lease, asked_ns);
	return 0;
}
