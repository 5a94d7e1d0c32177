/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A mark in QEMU that outlives its maker: an object of type "secret" (which does nothing by itself)
 * whose data names its maker and the address that the guest was sent to. QEMU refuses a second
 * object of that name, so of two makers one fails. In post-copy the destination has one, too, as
 * long as RAM is missing there.
 */
#ifndef GODWIT_MARK_H
#define GODWIT_MARK_H

#include "base/err.h"
#include "qmp/qmp.h"

#define MARK_ID		"godwit-migration"
#define MARK_TOKEN	16	/* hex digits */
#define MARK_MAX	256u
#define MARK_HERE	"-"	/* in place of an address: the guest came, not yet all of its RAM */

/* 1: QEMU has a mark; target: where the guest was sent to. 0: none. -errno. */
int mark_read(struct qmp *q, char target[MARK_MAX], struct err *e);
/* GW_QMP: QEMU has a mark already. */
int mark_make(struct qmp *q, const char *token, const char *addr, struct err *e);
/* Removes the mark of this token. 0 also if there is none, or one of another token. */
int mark_remove(struct qmp *q, const char *token, struct err *e);

#endif
