/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's own migration, as far as godwit uses it: the device state and small private RAM go through a
 * socket pair whose other end we hold. RAM that is shared stays out of it (capability x-ignore-shared), and
 * the source stops before the device state and waits for us (pause-before-switchover).
 */
#ifndef GODWIT_MIGRATION_H
#define GODWIT_MIGRATION_H

#include <stdbool.h>

#include "err.h"
#include "vmm/qmp.h"

/**
 * struct migration - one end's QEMU
 * @was_running: the guest ran when we looked last
 * @saved: the device state is saved (saved.h), not migrated: no capability is needed for that
 * @caps, @params: what migration_configure() sets; NULL: nothing
 * @old_caps, @old_params: the same with the values that were found
 * @stream: our end of the socket pair, non-blocking; -1 before and after
 */
struct migration {
	struct qmp *qmp;
	bool was_running;
	bool saved;
	json_t *caps, *old_caps;
	json_t *params, *old_params;
	int stream;
};

/*
 * Looks whether this QEMU can be a source (incoming false: running or paused, no migration under way) or a destination
 * (-incoming defer, nothing loaded yet), and plans what to set. Changes nothing. GW_VM_STATE says what to do.
 */
int migration_check(struct migration *m, struct qmp *q, bool incoming, unsigned int downtime_limit_ms, struct err *e);
/* Of a source, once more: nothing has been set since. */
int migration_check_again(struct migration *m, unsigned int downtime_limit_ms, struct err *e);
/* Is x-ignore-shared on? */
int migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e);
/* Of a destination: has nothing been loaded since? One that runs would lose its RAM. */
int migration_check_waits(struct qmp *q, struct err *e);
/* QEMU's own reasons not to migrate this VM (devices, cache modes of disks): GW_VM_STATE. QEMU before 6.0 tells none. */
int migration_check_blockers(struct qmp *q, struct err *e);
/* The same, and that no migration is under way: GW_VM_STATE. */
int migration_check_idle(struct qmp *q, struct err *e);
/*
 * What to set, as QEMU is set now: others may have changed it. Before migration_configure(). saved: of a destination, what
 * comes is a device state that was saved.
 */
int migration_plan(struct migration *m, bool incoming, bool saved, unsigned int downtime_limit_ms, struct err *e);
/* Sets capabilities and parameters. QEMU refuses that while anybody's migration is under way. */
int migration_configure(struct migration *m, struct err *e);
/* A destination's, as they were. A source's are undone by the journal (txn/journal.h). */
void migration_restore(struct migration *m);
/* `migrate` or `migrate-incoming`, into a socket pair; m->stream is our end. */
int migration_start(struct migration *m, bool incoming, struct err *e);
/*
 * The source stands in pre-switchover: let it write the device state. Its answer is not waited for: QEMU can begin to write,
 * holding its big lock, before its main loop has answered, and then does not until somebody reads the stream.
 */
int migration_continue(struct migration *m, struct err *e);
void migration_hang_up(struct migration *m);
void migration_free(struct migration *m);

/*
 * The guest has just stopped: QEMU takes what it wrote last to devices. KVM keeps writes to some registers, and to a display's
 * text, until QEMU looks at them (coalesced MMIO); to stop a guest does not make it look, and what it has not seen when it
 * saves its devices is lost. It may write guest RAM on that.
 */
int migration_take_writes(struct qmp *q, struct err *e);

/**
 * struct migration_status - of query-migrate
 * @status: "none": there was none yet
 * @under_way: neither ended nor never begun
 * @total_ms: since it began, or that it took; -1: QEMU does not say, as of the next two
 * @downtime_ms, @bytes: of one that has completed
 */
struct migration_status {
	char status[64];
	bool under_way;
	long long total_ms, downtime_ms, bytes;
};

int migration_query(struct qmp *q, struct migration_status *m, struct err *e);
/* query-status: "running", "paused", "postmigrate", ... */
int migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e);
/* It says "running". */
int migration_running(struct qmp *q, bool *running, struct err *e);

#endif
