/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A migration that ended in doubt: asks its receiver again, and does at the source what the answer
 * allows.
 */
#ifndef GODWIT_RESOLVE_H
#define GODWIT_RESOLVE_H

#include "base/err.h"
#include "doubt/doubt.h"

/**
 * struct resolve_options
 * @qmp_path, @pid: the source VM, as sender_options has it
 * @forget: asks no receiver: the operator decides that the guest is to run here, and it may be sent
 *	again. Removes the mark and the note, and does nothing to the guest
 * @doubt: how to ask; addr: NULL: where the sender sent to; token: ignored
 */
struct resolve_options {
	const char *qmp_path;
	pid_t pid;
	bool forget;
	struct doubt doubt;
};

/**
 * resolve_run() - ask, and act
 * @verdict: COMMIT_RUNS: the guest runs at the destination, the source was left alone.
 *	COMMIT_DEAD: it never will run there, and what the sender did to the source is undone: the
 *	guest runs here
 * Errors: GW_NO_MIGRATION, GW_BUSY: see doubt_read(). GW_UNKNOWN: still in doubt, nothing was
 * changed. GW_RAN_TWICE: the guest has run at both ends. GW_VM_STATE: it was left stopped here.
 * GW_INCOMPLETE, GW_GUEST_LOST: post-copy broke off, nothing was changed. Those of QMP.
 */
int resolve_run(const struct resolve_options *o, enum commit_state *verdict, struct err *e);

#endif
