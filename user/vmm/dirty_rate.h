/* SPDX-License-Identifier: GPL-2.0-only */
/* QEMU's own measurements of the dirty rate, one mode of which takes from KVM's log what we have not read. */
#ifndef GODWIT_DIRTY_RATE_H
#define GODWIT_DIRTY_RATE_H

#include <stdbool.h>

#include "err.h"
#include "vmm/qmp.h"

/**
 * struct dirty_rate - the last measurement, as query-dirty-rate told of it
 * @known: this QEMU has modes; an older one never uses the log
 * @by_log: mode dirty-bitmap
 * @over: nothing is under way
 * @start_s: when it began, whole seconds of QEMU's clock; 0: there was none
 */
struct dirty_rate {
	bool known;
	bool by_log;
	bool over;
	long long start_s;
};

/* Before the log is used: GW_VM_STATE if it is in use. What is measured from then on shows against *last. */
int dirty_rate_begin(struct qmp *q, struct dirty_rate *last, struct err *e);
/*
 * GW_VM_STATE: what the log said since the look before is not to be trusted. guest_stopped: the last look; QEMU may have been
 * migrating since the one before.
 */
int dirty_rate_check(struct qmp *q, struct dirty_rate *last, bool guest_stopped, struct err *e);

#endif
