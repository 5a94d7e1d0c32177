/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guardian is a small process that outlives a sender that is killed, or that cannot reach QEMU any more: it has the
 * sender's undo journal (journal.h), and when the sender's end of a pipe closes without a word, it undoes what is recorded.
 * It tries again until that is done, or until QEMU is gone. Without it, kill -9 between pre-switchover and migrate-continue
 * would leave the guest stopped for ever.
 *
 * It also has the session of godwit.ko, so that KVM's dirty log outlives a sender that is killed:
 * while QEMU has a migration of its own under way it must stay on (foreign.h). If the guardian is
 * killed as well the kernel ends the session, and nobody is left who could ask QEMU.
 */
#ifndef GODWIT_GUARDIAN_H
#define GODWIT_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"
#include "txn/journal.h"

#define GUARDIAN_HELD_MAX	80u

/**
 * struct guardian
 * @at_work: it outlives us, and needs what it holds
 */
struct guardian {
	pid_t pid;
	int pipe;
	bool at_work;
};

/**
 * struct ward - what the guardian looks after
 * @pidfd: of QEMU's process
 * @pid: of that process: its note of a doubt (record.h) goes when all is undone
 * @vm_fd: of its KVM VM, to hurry what the module has still to undo; -1: none
 * @session: of godwit.ko; -1: none
 * @lock: a file that goes when all is undone; "": none
 * @held: descriptors whose locks keep others from this VM until it is put back; at most GUARDIAN_HELD_MAX
 * @control: a socket's path that goes with the sender; "": none
 * @timeout_ms: for each of QEMU's answers
 */
struct ward {
	const char *qmp_path;
	int pidfd;
	pid_t pid;
	int vm_fd;
	int session;
	const char *lock;
	const int *held;
	unsigned int nheld;
	const char *control;
	unsigned int timeout_ms;
};

/*
 * Forks it. Before any ring is open, or bitmap of the module's mapped: it keeps no descriptor but
 * the pipe and these, so that QEMU and the peer see the sender's end at once. j: empty; it is told of
 * all records from now on.
 */
int guardian_start(struct guardian *g, const struct ward *w, struct journal *j, struct err *e);
/* The destination may run from now on: only settings are still undone. Before DEVICE_END leaves. */
void guardian_stand_down(struct guardian *g);
/* It is proved that it does not: all is to be undone again. Before the sender begins with that. */
void guardian_stand_up(struct guardian *g);
/* The sender has undone all that was recorded. */
void guardian_undone(struct guardian *g);
/* All is in order, whatever the outcome: it may go. Waits for it. */
void guardian_dismiss(struct guardian *g);
/*
 * The sender cannot finish: it could not undo all, or does not wait for QEMU's own migration to end.
 * The monitor must be closed. Waits so long for the guardian to do it, which goes on afterwards.
 * Return: is it done, or QEMU gone?
 */
bool guardian_take_over(struct guardian *g, unsigned int ms);

#endif
