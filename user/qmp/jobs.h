/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Work of QEMU's besides running the guest, which a switchover would break, or which would break
 * it.
 */
#ifndef GODWIT_JOBS_H
#define GODWIT_JOBS_H

#include "base/err.h"
#include "qmp/qmp.h"

/**
 * jobs_check() - refuse a source VM with a job under way
 * Block jobs (backup, mirror, commit, stream, a snapshot) write the VM's disks, so QEMU cannot give
 * up the disks when the guest leaves: QEMU then fails in the blackout or, as 7.2 does with a
 * mirror, aborts after it. A client of an exported disk (NBD, vhost-user, FUSE) may write the disk
 * as well, and QEMU does not say which exports are writable. A dump of guest memory to a file is
 * refused, too.
 * Errors: GW_VM_STATE, naming the job or export and how to end it.
 */
int jobs_check(struct qmp *q, struct err *e);
/* The same without the dump: two commands, for the switchover. */
int jobs_check_again(struct qmp *q, struct err *e);

#endif
