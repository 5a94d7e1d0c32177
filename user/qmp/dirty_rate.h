/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's own dirty rate measurements: one mode takes bits from KVM's log that no harvest has read.
 */
#ifndef GODWIT_DIRTY_RATE_H
#define GODWIT_DIRTY_RATE_H

#include <stdbool.h>

#include "base/err.h"
#include "qmp/qmp.h"

/**
 * struct dirty_rate - the last measurement, as query-dirty-rate reports it
 * @known: this QEMU has modes; an older one never uses the log
 * @by_log: mode dirty-bitmap
 * @over: no measurement is under way
 * @start_s: when it began, whole seconds of QEMU's clock; 0: there was none
 */
struct dirty_rate {
	bool known;
	bool by_log;
	bool over;
	long long start_s;
};

/*
 * Before godwit uses the log: GW_VM_STATE if a measurement uses it. dirty_rate_check() recognises a
 * later measurement by comparing with *last.
 */
int dirty_rate_begin(struct qmp *q, struct dirty_rate *last, struct err *e);
/*
 * GW_VM_STATE: what the log reported since the check before cannot be trusted. guest_stopped: this
 * is the last check; QEMU may have been migrating since the one before.
 */
int dirty_rate_check(struct qmp *q, struct dirty_rate *last, bool guest_stopped, struct err *e);

#endif
