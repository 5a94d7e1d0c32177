/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QMP latency: how long QEMU's main loop takes to answer a command that does nothing (struct
 * blackout).
 */
#ifndef GODWIT_QMP_LATENCY_H
#define GODWIT_QMP_LATENCY_H

#include <stdint.h>

#include "qmp/qmp.h"

#define QMP_LATENCY_KEPT	9	/* samples, the latest ones; their median counts */

struct qmp_latency {
	uint64_t ns[QMP_LATENCY_KEPT];
	unsigned int taken;
};

/* Takes a few more samples. */
int qmp_latency_measure(struct qmp_latency *t, struct qmp *q, struct err *e);
/* Nanoseconds; 0: there is no sample yet. */
uint64_t qmp_latency_median(const struct qmp_latency *t);

#endif
