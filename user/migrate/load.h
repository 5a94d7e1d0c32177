/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The destination QEMU and the device state: it is kept here until DEVICE_END has come, then handed over, and QEMU is
 * watched until it is known whether the guest runs. What may be said when stands in txn/commit.h.
 */
#ifndef GODWIT_LOAD_H
#define GODWIT_LOAD_H

#include "err.h"
#include "migrate/receiver_internal.h"

#define LOAD_STATE_MAX	(1u << 30)	/* bytes; real ones have some 100 KiB, and 8 KiB for each vCPU */
#define LOAD_TIMES	4u		/* as long as any other silence: QEMU may have much to map, and disks to open */

/* One DEVICE frame, before or behind COMMIT. */
int load_frame(struct receiver *r, const struct wire_header *h, struct err *e);

/**
 * load_run() - r->commit is COMMIT_SENT: hand the state over, and watch QEMU until it is COMMIT_RUNS or COMMIT_DEAD
 * The sender hears a sign of life each second. A guest that ran at the source is let run, also in a QEMU that was started
 * with -S.
 * Return: 0: COMMIT_RUNS, and r->resumed_ns. Else *e says why; with GW_UNKNOWN even the process of QEMU could not be ended.
 */
int load_run(struct receiver *r, struct err *e);

#endif
