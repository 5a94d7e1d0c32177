/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One migration a VM. A program that acts on a VM holds the VM's claim from the first change to the
 * last: sender and guardian, receiver, and `godwit resolve`.
 *
 *	- A lock on a file in /run/godwit named by the VMM's process and when that began, a lock on
 *	  that process (process_lock.h), and one on each RAM file. The kernel drops a lock with its
 *	  last holder. The lock on the process also keeps out a godwit in another container, or one
 *	  with another directory for its records; those on the RAM files a receiver for another VM
 *	  that would write into them.
 *	- A mark in a source QEMU, from the first change on: an object of QEMU's that does nothing.
 *	  godwit removes it when it has rolled all back; it stays in a VM that has moved or is in
 *	  doubt. It names the destination.
 */
#ifndef GODWIT_CLAIM_H
#define GODWIT_CLAIM_H

#include "base/err.h"
#include "qmp/qmp.h"
#include "txn/journal.h"
#include "txn/record.h"
#include "vmm/vm.h"

/**
 * struct claim
 * @lock: the file in /run/godwit
 * @process: see process_lock.h; -1: not locked
 */
struct claim {
	struct record lock;
	int process;
};

#define CLAIM_NONE ((struct claim) { .lock = RECORD_NONE, .process = -1 })

/*
 * Takes the locks on the process, before godwit reads any setting of the VM: what another godwit
 * has set, and will undo, must not be taken for the operator's. Waits a moment for a process that
 * is about to end, such as a guardian. Errors: GW_BUSY: another godwit is at work.
 */
int claim_process(struct claim *c, pid_t vmm, struct err *e);
/**
 * claim_take() - take all of the locks
 * @vm: its RAM files are locked through its own descriptors, which a process that forks passes on
 * Errors: GW_BUSY, naming the process that has the lock.
 */
int claim_take(struct claim *c, const struct vm *vm, struct err *e);
/*
 * Drops all locks, also of a claim that was not taken. vm: NULL: no RAM file is locked. A process
 * whose child shares the locks drops them for both.
 */
void claim_drop(struct claim *c, const struct vm *vm);
/* Closes this process's copy only: another process has a copy, and still needs the lock. */
void claim_leave(struct claim *c);

#define CLAIM_FDS_MAX	(2 + WIRE_BLOCKS_MAX)
/* The descriptors that hold the claim. Return: how many. */
unsigned int claim_fds(const struct claim *c, const struct vm *vm, int fds[CLAIM_FDS_MAX]);

/*
 * Has QEMU a mark? GW_VM_STATE: the guest has moved, or its migration is in doubt; GW_INCOMPLETE:
 * it has come, and may lack RAM.
 */
int claim_check_mark(struct qmp *q, struct err *e);
/*
 * Makes the mark. addr: where the guest is sent to. A record in the journal sees to it that the
 * rollback removes this mark, and no other.
 */
int claim_mark(struct qmp *q, struct journal *j, const char *addr, struct err *e);

#endif
