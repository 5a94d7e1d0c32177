/* SPDX-License-Identifier: GPL-2.0-only */
/* Where RAM lies in the guest: to compare both ends, and to ask where it is in QEMU. */
#ifndef GODWIT_MTREE_H
#define GODWIT_MTREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "qmp/qmp.h"
#include "vmm/vm.h"

/*
 * Searches text, the output of "info mtree", for the RAM block of the backend @name. *address:
 * where it begins. false: the text does not say.
 */
bool mtree_address(const char *text, const char *name, uint64_t *address);
/*
 * Asks QEMU for the addresses of all blocks. Errors: those of qmp_call(), but not GW_QMP: then all
 * addresses become WIRE_NO_ADDRESS.
 */
int mtree_query(struct qmp *q, struct vm *vm, struct err *e);
/**
 * struct mtree_range - a line of "info mtree -f": what the guest sees at [@first, @last]
 * @offset: of @first in the region
 * @name: the region's, which for RAM is its block's without the device's address
 */
struct mtree_range {
	uint64_t first;
	uint64_t last;
	uint64_t offset;
	char name[WIRE_NAME_MAX + 1];
};

/* In text, the output of "info mtree -f": what follows the title of the guest's memory, or NULL. */
const char *mtree_memory(const char *text);
/* The next range of it; *at moves on. Leaves out names with blanks, which no RAM block has. */
bool mtree_next(const char **at, struct mtree_range *range);

#define MTREE_LINE	64

/* The line that asks the monitor where QEMU has what the guest sees at this address. */
void mtree_ask_hva(char line[MTREE_LINE], uint64_t address);
/*
 * In text, the answer, or NULL: where that is, and in name, of WIRE_NAME_MAX + 1 bytes, of which
 * region. false: no memory is there.
 */
bool mtree_told_hva(const char *text, uint64_t address, char *name, uint64_t *hva);
/*
 * GW_QMP: a block without a known address has the size of another block, so the destination could
 * have the two swapped, unnoticed.
 */
int mtree_check(const struct vm *vm, struct err *e);

#endif
