/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of a check: check.c (order, the VM), host.c (this host), peer.c (the other one). */
#ifndef GODWIT_CHECK_INTERNAL_H
#define GODWIT_CHECK_INTERNAL_H

#include "check/check.h"
#include "vmm/look.h"

/* A new row; printf format. */
void check_add(struct check *c, const char *name, enum check_result result, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A row that says no. */
void check_refuse(struct check *c, const char *name, const struct err *e);

/* Kernel, module, io_uring, memlock limit, zero filter. */
void check_host(const struct look *l, struct check *c);
/* Is this kernel one that godwit is made for? release: as uname says it. */
void check_kernel(const char *release, struct check *c);
/* err: what setting up a ring said, 0 or -errno. limit: RLIMIT_MEMLOCK in bytes, UINT64_MAX: none. */
void check_io_uring(int err, uint64_t limit, struct check *c);
/* What the receiver says, and the way to it. */
void check_peer(const struct check_options *o, const struct look *l, struct check *c);

#endif
