/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Loads the device state into the destination QEMU. The receiver keeps the device state until
 * DEVICE_END has come, writes it to QEMU, and watches QEMU until it knows whether the guest runs.
 * txn/commit.h says what the receiver may tell the sender when.
 */
#ifndef GODWIT_LOAD_H
#define GODWIT_LOAD_H

#include "base/err.h"
#include "receive/receiver_internal.h"

/*
 * Timeouts for QEMU: it may have RAM to map, disks to open. And in post-copy it waits for pages of
 * the source, each for a round trip, so these are as long as those for the sender.
 */
#define LOAD_TIMES	4u

/**
 * load_run() - write the device state to QEMU, and watch QEMU until r->commit is RUNS or DEAD
 * r->commit is COMMIT_SENT. The receiver sends the sender a PONG each second. A guest that ran at
 * the source is resumed here, also in a QEMU that was started with -S.
 * Return: 0: COMMIT_RUNS, and r->resumed_ns is set. Else *e says why. GW_UNKNOWN: QEMU's monitor
 * proved nothing, or the receiver could not kill QEMU.
 */
int load_run(struct receiver *r, struct err *e);

#endif
