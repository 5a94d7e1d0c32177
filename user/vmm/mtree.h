/* SPDX-License-Identifier: GPL-2.0-only */
/* Where the guest's RAM lies in the guest: only to be compared with the other side's. */
#ifndef GODWIT_MTREE_H
#define GODWIT_MTREE_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "vmm/qmp.h"
#include "vmm/vm.h"

/* The text of "info mtree": where the RAM block of the backend @name begins. false: it does not say. */
bool mtree_address(const char *text, const char *name, uint64_t *address);
/* Asks QEMU, for all blocks. Errors: those of qmp_call() but GW_QMP, with which no address is known. */
int mtree_query(struct qmp *q, struct vm *vm, struct err *e);
/* GW_QMP: a block could be swapped with another one of its size on the other side, as its address is not known. */
int mtree_check(const struct vm *vm, struct err *e);

#endif
