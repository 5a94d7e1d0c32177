/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guardian is a small process that outlives a sender that is killed: when the sender's end of a pipe closes
 * without a word, it puts the source VM back (cancel, continue, settings), as the sender would have done.
 * Without it, kill -9 between pre-switchover and migrate-continue would leave the guest stopped for ever.
 */
#ifndef GODWIT_GUARDIAN_H
#define GODWIT_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"
#include "vmm/migration.h"

struct guardian {
	pid_t pid;
	int pipe;
};

/*
 * Forks it. m: after migration_check(). Before any ring or device is open: it keeps no descriptor but the pipe, so that
 * QEMU, the module and the peer see the sender's end at once. control: a socket's path that goes with the sender; "": none.
 */
int guardian_start(struct guardian *g, const char *qmp_path, const char *control, unsigned int timeout_ms,
		   const struct migration *m, struct err *e);
/* The destination may run from now on: hands off. Before the last byte of the device state is sent. */
void guardian_stand_down(struct guardian *g);
/* All is in order, whatever the outcome: it may go. Waits for it. */
void guardian_dismiss(struct guardian *g);

#endif
