/* SPDX-License-Identifier: GPL-2.0-only */
/* A process beside the VMM that maps guest RAM, as a vhost-user backend does: what may write it by that process, unseen? */
#ifndef GODWIT_MAPPER_H
#define GODWIT_MAPPER_H

#include <stdint.h>

#include "err.h"

/**
 * struct mapper
 * @name: "process 12 (spdk_tgt)"
 * @device: what it has open that writes RAM which it has pinned; empty: nothing
 */
struct mapper {
	char name[96];
	char device[320];
};

/*
 * proc: "/proc/PID", or what a test puts in its place. Refuses what writes guest RAM and pins none, and a tracer: GW_PINNED.
 * A process that exits meanwhile is no error.
 */
int mapper_look(const char *proc, struct mapper *m, struct err *e);
/* It has m->device, and this page of guest RAM stays pinned. */
int mapper_refuse(const struct mapper *m, const char *ram, uint64_t page, struct err *e);

#endif
