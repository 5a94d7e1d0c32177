/* SPDX-License-Identifier: GPL-2.0-only */
/* A session of godwit.ko that only measures. */
#ifndef GODWIT_SESSION_H
#define GODWIT_SESSION_H

#include "dirty/source.h"
#include "txn/foreign.h"

/**
 * struct session
 * @source: what the module reports
 * @lease: NULL: QEMU cannot be asked
 */
struct session {
	const struct vm *vm;
	struct dirty_source *source;
	struct lease *lease;
	struct foreign_watch watch;
};

/*
 * q: the VM's QEMU, which is asked for migrations of its own (txn/foreign.h). NULL: no QEMU is
 * asked, and a migration of its own meanwhile may lose writes.
 */
int session_open(struct session *s, const struct vm *vm, struct qmp *q, struct err *e);
/*
 * The log is off again on return. Waits for a migration of QEMU's own that needs it. s: zeros if it
 * was not opened.
 */
void session_close(struct session *s);

#endif
