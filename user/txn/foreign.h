/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A migration of QEMU's own that an operator has begun beside ours. KVM has one dirty log for both.
 * Ours has switched it on, so QEMU, which wants it on, changes nothing by that; and QEMU takes a log
 * that is off (ENOENT) for one without a write. So the log goes off only when QEMU has no migration
 * under way: else that one would lose what the guest writes, unnoticed.
 *
 * Between our look and the moment when the log is off in all slots somebody may begin one. That is
 * looked at afterwards: one that began before that moment is cancelled, in words. It cannot be saved
 * any more, and the guest runs on here.
 */
#ifndef GODWIT_FOREIGN_H
#define GODWIT_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#include "vmm/qmp.h"

/**
 * struct foreign - whom to ask
 * @qmp: NULL: a connection for each question, so that others have the monitor in between
 * @pidfd: of QEMU's process
 * @timeout_ms: for each of its answers
 * @quiet: that it is waited for has been said
 */
struct foreign {
	struct qmp *qmp;
	const char *qmp_path;
	int pidfd;
	unsigned int timeout_ms;
	bool quiet;
};

/**
 * foreign_wait() - until QEMU has no migration under way
 * @enough: looked at between two questions: give up waiting? NULL: never, and a QEMU that does not
 *	answer is asked again
 * Return: true: none is under way, or QEMU has gone. false: enough, or QEMU does not answer.
 */
bool foreign_wait(const struct foreign *f, bool (*enough)(void));

/* The log is off in all slots since off_ns (CLOCK_MONOTONIC): one that began before is cancelled. */
void foreign_end_overlap(const struct foreign *f, uint64_t off_ns);

#endif
