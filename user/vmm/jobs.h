/* SPDX-License-Identifier: GPL-2.0-only */
/* What QEMU is at besides running the guest, and would be broken by a switchover, or break it. */
#ifndef GODWIT_JOBS_H
#define GODWIT_JOBS_H

#include "err.h"
#include "vmm/qmp.h"

/**
 * jobs_check() - refuse a source VM with a job under way
 * Block jobs (backup, mirror, commit, stream, a snapshot) write its disks, so it cannot give them up when its guest leaves:
 * QEMU then fails in the blackout or, as 7.2 with a mirror, aborts behind it. An export of a disk (NBD, vhost-user, FUSE) may write
 * it as well, and QEMU does not say which do. A dump of its memory to a file is refused, too.
 * Errors: GW_VM_STATE, naming the job or export and how to end it.
 */
int jobs_check(struct qmp *q, struct err *e);
/* The same without the dump: two commands, for the switchover. */
int jobs_check_again(struct qmp *q, struct err *e);

#endif
