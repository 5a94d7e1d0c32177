/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guardian is a small process that outlives a sender that is killed, or that cannot reach QEMU
 * any more. It has the sender's undo journal (journal.h), and when the sender's end of a pipe
 * closes without a word, it undoes what is recorded. It tries again until that is done, or until
 * QEMU has gone. Without it, kill -9 between pre-switchover and migrate-continue would leave the
 * guest stopped for ever.
 *
 * It also holds the session of godwit.ko, so that KVM's dirty log outlives a sender that is killed:
 * the log must stay on while QEMU has a migration of its own under way (foreign.h). If the guardian
 * is killed as well, the kernel ends the session, and no process is left that could ask QEMU.
 */
#ifndef GODWIT_GUARDIAN_H
#define GODWIT_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "dirty/lease.h"
#include "txn/journal.h"

#define GUARDIAN_HELD_MAX	80u

/**
 * struct guardian
 * @at_work: it outlives the sender, and needs what it holds
 * @left: it has undone all, and left the guest as it stands (struct journal)
 * @died: it was killed before it had
 */
struct guardian {
	pid_t pid;
	int pipe;
	bool at_work, left, died;
};

/**
 * struct ward - what the guardian looks after
 * @at: where that QEMU's monitor is, and not who has its path when the guardian is needed
 * @pidfd: of QEMU's process
 * @pid: of that process: the guardian removes its note of a doubt (record.h) when all is undone
 * @vm_fd: of its KVM VM, to hurry what the module has still to undo; -1: none
 * @session: of godwit.ko; -1: none
 * @lease: under which the sender clears the VM's log, in shared memory; NULL: it clears none
 * @lock: a file that the guardian removes when all is undone; "": none
 * @held: descriptors whose locks keep others from this VM until the rollback is complete; at most
 *	GUARDIAN_HELD_MAX
 * @control: a socket's path, which the guardian removes when the sender dies; "": none
 * @timeout_ms: for each of QEMU's answers
 */
struct ward {
	struct qmp_place at;
	int pidfd;
	pid_t pid;
	int vm_fd;
	int session;
	const struct lease *lease;
	const char *lock;
	const int *held;
	unsigned int nheld;
	const char *control;
	unsigned int timeout_ms;
};

/*
 * Forks the guardian. The caller has no ring open yet, and no bitmap of the module's mapped: the
 * guardian keeps no descriptor but the pipe and those of the ward, so that QEMU and the peer see
 * the sender's end at once. j: empty; it passes all records to the guardian from now on.
 */
int guardian_start(struct guardian *g, const struct ward *w, struct journal *j, struct err *e);
/*
 * The destination may run from now on: the guardian undoes settings only. Called before DEVICE_END
 * leaves.
 */
void guardian_stand_down(struct guardian *g);
/*
 * It is proved that the destination does not run: the guardian undoes everything again. Called
 * before the sender begins to undo.
 */
void guardian_stand_up(struct guardian *g);
/* The sender has undone all that was recorded. */
void guardian_undone(struct guardian *g);
/* Nothing is left to undo, whatever the outcome: ends the guardian, and waits for its end. */
void guardian_dismiss(struct guardian *g);
/*
 * The sender cannot finish: it could not undo everything, or does not wait for the end of QEMU's
 * own migration. The sender has closed its monitor. Waits for up to ms until the guardian has
 * done it; the guardian goes on afterwards.
 * Return: it is done, or QEMU has gone. false: at_work, or died.
 */
bool guardian_take_over(struct guardian *g, unsigned int ms);

#endif
