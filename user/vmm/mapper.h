/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process beside the VMM that maps guest RAM, as a vhost-user backend does: which devices may
 * write guest RAM through this process, unseen by godwit.ko?
 */
#ifndef GODWIT_MAPPER_H
#define GODWIT_MAPPER_H

#include <stdint.h>

#include "base/err.h"

/**
 * struct mapper - one such process
 * @name: "process 12 (spdk_tgt)"
 * @device: a device that it has open and that writes the RAM it pins; empty: none
 */
struct mapper {
	char name[96];
	char device[320];
};

/*
 * proc: "/proc/PID", or a test's directory. GW_PINNED: the process has a device that writes guest
 * RAM without pinning it, or a tracer. A process that exits meanwhile is no error.
 */
int mapper_check(const char *proc, struct mapper *m, struct err *e);
/* GW_PINNED: the process has m->device open, and this page of guest RAM stays pinned. */
int mapper_refuse(const struct mapper *m, const char *ram, uint64_t page, struct err *e);

#endif
