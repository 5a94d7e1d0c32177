/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's own migration, as far as godwit uses it. QEMU writes, or reads, the device state and its
 * small private RAM at one end of a socket pair; godwit holds the other end. QEMU leaves shared RAM
 * out (capability x-ignore-shared), and the source QEMU stops before the device state and waits for
 * migration_continue() (pause-before-switchover).
 */
#ifndef GODWIT_MIGRATION_H
#define GODWIT_MIGRATION_H

#include <stdbool.h>

#include "base/err.h"
#include "qmp/qmp.h"

/**
 * struct migration_status - as query-migrate reports it
 * @status: "none": no migration has begun yet
 * @under_way: a migration has begun and has not ended
 * @total_ms: since the migration began, or how long it took; -1: QEMU does not say, as with the
 *	next two
 * @downtime_ms: of a migration that has completed
 * @bytes: of a migration that has completed
 */
struct migration_status {
	char status[64];
	bool under_way;
	long long total_ms, downtime_ms, bytes;
};

/**
 * struct migration - the QEMU of the source, or that of the destination
 * @was_running: the guest ran at the last migration_check()
 * @save_mode: of a destination: the device state comes in save mode (save.h), not in migrate mode,
 *	and x-ignore-shared stays off
 * @caps: capabilities that migration_configure() sets; NULL: none
 * @old_caps: the same with the values that QEMU had
 * @given: QEMU was told to take them back, and is not known to have refused; they may have been
 *	changed since, which is not ours to undo
 * @params: parameters that migration_configure() sets; NULL: none
 * @old_params: the same with the values that QEMU had
 * @stream: our end of the socket pair, non-blocking; -1: not open
 */
struct migration {
	struct qmp *qmp;
	bool was_running;
	bool save_mode;
	json_t *caps, *old_caps;
	bool given;
	json_t *params, *old_params;
	int stream;
};

/*
 * Checks whether this QEMU can be a source (incoming false: running or paused, no migration under
 * way) or a destination (-incoming defer, nothing loaded yet), and plans what to set. Changes
 * nothing. GW_VM_STATE: QEMU is in another state; the message says what to do.
 */
int migration_check(struct migration *m, struct qmp *q, bool incoming,
		    unsigned int downtime_limit_ms, struct err *e);
/* The same once more, of a source. The caller has set nothing since. */
int migration_check_again(struct migration *m, unsigned int downtime_limit_ms, struct err *e);
/* Is x-ignore-shared on? */
int migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e);
/*
 * Of a destination: does it still wait, with nothing loaded? A destination whose guest runs already
 * would lose the guest's RAM. GW_VM_STATE.
 */
int migration_check_waits(struct qmp *q, struct err *e);
/*
 * GW_VM_STATE: QEMU reports a migration blocker (a device, the cache mode of a disk). QEMU before
 * 6.0 reports none.
 */
int migration_check_blockers(struct qmp *q, struct err *e);
/* The same, and GW_VM_STATE if a migration is under way. *last: what QEMU reports of its last. */
int migration_check_idle(struct qmp *q, struct migration_status *last, struct err *e);
/*
 * Plans what to set from QEMU's settings now, which other clients may have changed since
 * migration_check(). Call it before migration_configure(). save_mode: see struct migration.
 */
int migration_plan(struct migration *m, bool incoming, bool save_mode,
		   unsigned int downtime_limit_ms, struct err *e);
/* Sets capabilities and parameters. QEMU refuses that while any migration is under way. */
int migration_configure(struct migration *m, struct err *e);
/*
 * Sets a destination's capabilities as they were (but see @given), or says that they may stay, also
 * where there is no @qmp. A source's, and its parameters: see txn/journal.h.
 */
void migration_restore(struct migration *m);
/*
 * The capabilities alone, and does not wait for the reply: QEMU may wait for a page. Whoever reads
 * that QEMU refused (GW_QMP of qmp_event()) clears @given.
 */
void migration_restore_begin(struct migration *m);
/* `migrate` or `migrate-incoming`, with a socket pair; m->stream becomes our end. */
int migration_start(struct migration *m, bool incoming, struct err *e);
/*
 * The source QEMU waits in pre-switchover: lets it write the device state. Does not wait for the
 * reply: QEMU can begin to write, holding its big lock, before its main loop has replied, and then
 * does not reply until the sender reads the stream.
 */
int migration_continue(struct migration *m, struct err *e);
void migration_close_stream(struct migration *m);
void migration_free(struct migration *m);

/*
 * Call it when the guest has just stopped: makes QEMU take what the guest wrote last to devices.
 * KVM keeps writes to some registers, and to a display's text, until QEMU reads them (coalesced
 * MMIO). Stopping a guest does not make QEMU read them, and writes that it has not read when it
 * saves its devices are lost. QEMU may write guest RAM when it handles them.
 */
int migration_take_writes(struct qmp *q, struct err *e);

/* Without success: it can come to nothing else any more. */
bool migration_has_ended(const char *status);
int migration_query(struct qmp *q, struct migration_status *m, struct err *e);
/* From what query-migrate has returned. */
void migration_read_status(const json_t *info, struct migration_status *m);
/* query-status: "running", "paused", "postmigrate", ... */
int migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e);
/* Does query-status say "running"? */
int migration_running(struct qmp *q, bool *running, struct err *e);

#endif
