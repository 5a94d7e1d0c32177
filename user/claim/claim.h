/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One migration a VM. Who acts on a VM holds its claim from the first change to the last: sender and guardian, receiver, and
 * `godwit resolve`.
 *
 *	- A lock on a file in /run/godwit named by the VMM's process and when that began, and one on each RAM file. The kernel
 *	  drops them with their last holder. The RAM files' also keep out one in another container, or one who would have
 *	  another VM's receiver write into them.
 *	- A mark in a source QEMU, from the first change on: an object of QEMU's that does nothing. It is taken away when all has
 *	  been put back, and stays in a VM that has moved or is in doubt. It says where to.
 */
#ifndef GODWIT_CLAIM_H
#define GODWIT_CLAIM_H

#include "err.h"
#include "txn/journal.h"
#include "txn/record.h"
#include "vmm/qmp.h"
#include "vmm/vm.h"

struct claim {
	struct record lock;
};

#define CLAIM_NONE ((struct claim) { .lock = RECORD_NONE })

/*
 * The first of the locks, before anything is looked at: what another one has set, and takes back, must not be taken for the
 * operator's. Waits a moment for one that is about to end, such as a guardian. Errors: GW_BUSY: another godwit is at work.
 */
int claim_process(struct claim *c, pid_t vmm, struct err *e);
/**
 * claim_take() - take all of the locks
 * @vm: its RAM files are locked through its own descriptors, which a process that forks passes on
 * Errors: GW_BUSY, naming the process that has the lock.
 */
int claim_take(struct claim *c, const struct vm *vm, struct err *e);
/* Also one that was not taken; vm: NULL: no RAM file is locked. In a process with a child that has it as well: for both. */
void claim_drop(struct claim *c, const struct vm *vm);
/* Closes our copy only: somebody else has one, and still needs it. */
void claim_leave(struct claim *c);

#define CLAIM_FDS_MAX	(1 + WIRE_BLOCKS_MAX)
/* The descriptors that hold it. Return: how many. */
unsigned int claim_fds(const struct claim *c, const struct vm *vm, int fds[CLAIM_FDS_MAX]);

/* GW_VM_STATE: QEMU has a mark: the guest has moved, or it is not known what became of its migration. */
int claim_check_mark(struct qmp *q, struct err *e);
/* addr: where the guest is sent to. With a record in the journal, so that a mark of ours, and no other, is taken away again. */
int claim_mark(struct qmp *q, struct journal *j, const char *addr, struct err *e);

#endif
