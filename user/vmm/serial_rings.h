/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Has a client of a virtio-serial port been served while the guest stood still?
 *
 * QEMU takes nothing from such clients then, but its main loop goes on with output that it has held
 * up (of a port, not of a console) as soon as the client takes it or goes: it fetches more from the
 * guest's buffers, and says so in the used ring, in guest RAM. If only one of page and device state
 * is from before that, the destination has a ring and a device that contradict each other: it
 * refuses them, or loses buffers.
 *
 * Each such buffer counts up the index of a used ring (virtio 1.2, 2.7.8). So we look at these
 * before the first page is read for good, and when device state and pages are there.
 *
 * Not seen: what comes after the commit point, which in post-copy may be in pages that are still
 * owed; rings in the packed form (QEMU's devices must be told to offer it), those behind a vIOMMU,
 * those of a driver that the guest has loaded since the migration began; and a QEMU before 7.2,
 * which does not say where rings are.
 */
#ifndef GODWIT_SERIAL_RINGS_H
#define GODWIT_SERIAL_RINGS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "qmp/qmp.h"

/**
 * struct serial_rings - the rings for output that the guest has set up, of all such devices
 * @pid: QEMU
 * @ring: @index: where QEMU has the used index; @used: that, as of serial_rings_note(); @path: the
 *	device's, in QEMU's tree
 */
struct serial_rings {
	pid_t pid;
	unsigned int n;
	struct serial_ring {
		uint64_t index;
		uint16_t used;
		char path[128];
	} *ring;
};

/*
 * Some 40 commands for a device of 31 ports, so it comes before the first round. Errors: those of
 * qmp_call() but GW_QMP; GW_INTERNAL.
 */
int serial_rings_find(struct qmp *q, pid_t pid, struct serial_rings *r, struct err *e);
/* The guest stands still, and no page of it was read since that counts. */
void serial_rings_note(struct serial_rings *r);
/* All pages were read, and QEMU has saved its devices. GW_VM_STATE: a client was served. */
int serial_rings_check(const struct serial_rings *r, struct err *e);
void serial_rings_free(struct serial_rings *r);

#endif
