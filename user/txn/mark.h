/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A mark in QEMU that outlives its maker: an object of type "secret" (which does nothing by itself) whose data says who made it
 * and where the guest was sent to. QEMU refuses a second one of its name, so of two makers one fails.
 */
#ifndef GODWIT_MARK_H
#define GODWIT_MARK_H

#include "err.h"
#include "vmm/qmp.h"

#define MARK_ID		"godwit-migration"
#define MARK_TOKEN	16	/* hex digits */
#define MARK_MAX	256u

/* 1: there is one, and says: where the guest was sent to; 0: none; -errno. */
int mark_read(struct qmp *q, char says[MARK_MAX], struct err *e);
/* GW_QMP: there is one already. */
int mark_make(struct qmp *q, const char *token, const char *addr, struct err *e);
/* That of this token. 0 also if there is none, or another's. */
int mark_remove(struct qmp *q, const char *token, struct err *e);

#endif
