/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A migration of QEMU's own that an operator has begun beside ours: a foreign migration. KVM has
 * one dirty log for both. Ours has switched the log on, so QEMU, which wants it on, changes nothing
 * when it switches it on as well; and QEMU takes a log that is off (ENOENT) for a log without a
 * write. So godwit switches the log off only when QEMU has no migration under way: otherwise that
 * migration would lose what the guest writes, unnoticed.
 *
 * An operator may begin a migration between our question and the moment when the log is off in all
 * slots. So godwit asks again afterwards, and cancels a migration that began before that moment,
 * with a message. It cannot be saved any more, and the guest runs on at the source.
 *
 * What godwit clears in the log while such a migration runs, QEMU never hears of. So godwit clears
 * under a lease (dirty/lease.h), ends when it learns of a foreign migration, and cancels that one
 * if something was cleared since it began: the operator begins it again, and loses nothing.
 *
 * What a foreign migration clears, godwit never hears of. At its end QEMU switches the log off,
 * which the module sees, and counts all pages as written; but not while the guest stands still. So
 * godwit ends when one has come and gone by then, in whatever way.
 */
#ifndef GODWIT_FOREIGN_H
#define GODWIT_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "devstate/migration.h"
#include "dirty/lease.h"
#include "qmp/qmp.h"

/**
 * struct foreign_watch - how a lease is renewed
 * @qmp: of the VM whose log is cleared
 * @timeout_ms: for an answer
 * @lease: what is renewed
 * @asked_ns: when QEMU was asked the last question that it has answered; 0: none yet
 * @last: that answer
 * @asking: a question is under way, since @asking_ns
 * @looked_ns: when its answer was looked for last
 */
struct foreign_watch {
	struct qmp *qmp;
	unsigned int timeout_ms;
	struct lease *lease;
	uint64_t asked_ns;
	struct migration_status last;
	bool asking;
	uint64_t asking_ns, looked_ns;
};

/**
 * struct foreign - how to ask QEMU
 * @qmp: NULL: a connection @at its place for each question, so that other clients have the monitor
 *	in between
 * @pidfd: of QEMU's process
 * @timeout_ms: for each of its answers
 * @watch: which lease it was cleared under, if we have not begun a migration ourselves; NULL: not
 *	known
 * @cleared_ns: when something was cleared in the log last, CLOCK_MONOTONIC; 0: never
 * @quiet: the operator knows already that godwit waits
 */
struct foreign {
	struct qmp *qmp;
	const struct qmp_place *at;
	int pidfd;
	unsigned int timeout_ms;
	const struct foreign_watch *watch;
	uint64_t cleared_ns;
	bool quiet;
};

/**
 * foreign_wait() - wait until QEMU has no migration under way; cancel one that began before
 * @cleared_ns
 * @enough: called between two questions; true ends the wait. NULL: the wait does not end before
 *	QEMU's migration has, and a QEMU that does not answer is asked again
 * Return: true: none is under way, or QEMU has gone. false: @enough, or QEMU does not answer.
 */
bool foreign_wait(const struct foreign *f, bool (*enough)(void));

/*
 * Cancels a migration of QEMU's own that began before off_ns (CLOCK_MONOTONIC), when the log was
 * off in all slots.
 */
void foreign_end_overlap(const struct foreign *f, uint64_t off_ns);

/*
 * Asks QEMU, and renews the lease if no migration of its own is under way. GW_VM_STATE: one is, or
 * has moved the guest away since the last question, or has ended where the guest stands still, so
 * that what it took of the log nobody would hear of. Then nothing is cleared any more, and the
 * caller is to end.
 */
int foreign_renew(struct foreign_watch *w, struct err *e);
/*
 * The last answer was of a migration that failed, or was cancelled: of another one that ended in
 * the same way since QEMU's answers would tell nothing.
 */
bool foreign_may_hide(const struct foreign_watch *w);
/*
 * QEMU has our own migration under way, and all of its events have been read, since_ns or later
 * (CLOCK_MONOTONIC): none says that ours has ended. It says so before it takes another, and has one
 * at a time, so there was no foreign one at since_ns. Renews the lease. What the caller learns of
 * in the next ones ends its clears: lease_revoke().
 */
void foreign_ours_goes_on(struct foreign_watch *w, uint64_t since_ns);
/* The same without a wait, called again and again: looks at the answer the next time. */
int foreign_renew_soon(struct foreign_watch *w, struct err *e);

#endif
