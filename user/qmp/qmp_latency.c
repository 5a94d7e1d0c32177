// SPDX-License-Identifier: GPL-2.0-only
#include "base/clock.h"
#include "qmp/qmp_latency.h"

#define AT_A_TIME	3

int qmp_latency_measure(struct qmp_latency *t, struct qmp *q, struct err *e)
{
	json_t *status = NULL;
	int r = 0;

	for (unsigned int i = 0; i < AT_A_TIME && !r; i++) {
		uint64_t begin = now_ns();

		r = qmp_call(q, "query-status", NULL, &status, e);
		json_decref(status);
		status = NULL;
		t->ns[t->taken++ % QMP_LATENCY_KEPT] = now_ns() - begin;
	}
	return r;
}

uint64_t qmp_latency_median(const struct qmp_latency *t)
{
	unsigned int n = t->taken < QMP_LATENCY_KEPT ? t->taken : QMP_LATENCY_KEPT;
	uint64_t sorted[QMP_LATENCY_KEPT];

	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = i;

		for (; at && sorted[at - 1] > t->ns[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = t->ns[i];
	}
	return n ? sorted[n / 2] : 0;
}
