// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>

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

bool foreign_wait(const struct foreign *f, bool (*enough)(void))
{
	struct migration_status m;
	bool reported = f->quiet;

	for (;;) {
		int r = foreign_ask(f, &m, false);

		if ((!r && !m.under_way) || proc_ended(f->pidfd))
			return true;
		if (!r && !reported) {
			fprintf(stderr, "godwit: QEMU has a migration of its own under way (%s), which needs KVM's dirty log: the log stays on until that migration has ended\n",
				m.status);
			reported = true;
		}
		if (enough && (r || enough()))
			return false;
		nap_ms(AGAIN_MS);
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
		/* Counted back from before the question: not later than it did begin. */
		if (asked_ns - (uint64_t)m.total_ms * 1000000 > off_ns)
			return;
		foreign_ask(f, &m, true);
		fprintf(stderr, "godwit: cancelled a migration of QEMU's own that began before the dirty log was off: it would have lost writes of the guest; begin it again\n");
		return;
	}
}
