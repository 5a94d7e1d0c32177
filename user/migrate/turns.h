/* SPDX-License-Identifier: GPL-2.0-only */
/* What a turn of QEMU's main loop costs: the time of a QMP command that does nothing. See struct blackout. */
#ifndef GODWIT_TURNS_H
#define GODWIT_TURNS_H

#include <stdint.h>

#include "vmm/qmp.h"

#define TURNS_KEPT	9	/* the last ones, whose median counts */

struct turns {
	uint64_t ns[TURNS_KEPT];
	unsigned int taken;
};

/* A few more of them. */
int turns_measure(struct turns *t, struct qmp *q, struct err *e);
/* Nanoseconds; 0 when none was measured. */
uint64_t turns_median(const struct turns *t);

#endif
