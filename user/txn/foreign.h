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
 */
#ifndef GODWIT_FOREIGN_H
#define GODWIT_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "qmp/qmp.h"

/**
 * struct foreign - how to ask QEMU
 * @qmp: NULL: a connection for each question, so that other clients have the monitor in between
 * @pidfd: of QEMU's process
 * @timeout_ms: for each of its answers
 * @quiet: the operator knows already that godwit waits
 */
struct foreign {
	struct qmp *qmp;
	const char *qmp_path;
	int pidfd;
	unsigned int timeout_ms;
	bool quiet;
};

/**
 * foreign_wait() - wait until QEMU has no migration under way
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

#endif
