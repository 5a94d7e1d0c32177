// SPDX-License-Identifier: GPL-2.0-only
#include "io/sock.h"
#include "migrate/turns.h"
#include "vmm/migration.h"

#define AT_A_TIME	3

int turns_measure(struct turns *t, struct qmp *q, struct err *e)
{
	bool running;
	int r = 0;

	for (unsigned int i = 0; i < AT_A_TIME && !r; i++) {
		uint64_t begin = now_ns();

		r = migration_running(q, &running, e);
		t->ns[t->taken++ % TURNS_KEPT] = now_ns() - begin;
	}
	return r;
}

uint64_t turns_median(const struct turns *t)
{
	unsigned int n = t->taken < TURNS_KEPT ? t->taken : TURNS_KEPT;
	uint64_t sorted[TURNS_KEPT];

	for (unsigned int i = 0; i < n; i++) {
		unsigned int at = i;

		for (; at && sorted[at - 1] > t->ns[i]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = t->ns[i];
	}
	return n ? sorted[n / 2] : 0;
}
