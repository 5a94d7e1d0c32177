/* SPDX-License-Identifier: GPL-2.0-only */
/* QEMU's own list of all its RAM, the guest's and that of its devices, and where in QEMU it lies. */
#ifndef GODWIT_RAMBLOCKS_H
#define GODWIT_RAMBLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "vmm/qmp.h"
#include "wire/wire.h"

#define RAMBLOCKS_MAX 512	/* as many can be read: each PCI device with a ROM has one */

/**
 * struct ramblock - a line of the list; what has no name is left out, as it does not migrate
 * @name: the RAM block's, as in QEMU's migration stream
 * @bytes: what is in use of it
 * @hva: where it begins in the VMM
 */
struct ramblock {
	char name[WIRE_NAME_MAX + 1];
	uint64_t bytes;
	uint64_t hva;
};

struct ramblocks {
	unsigned int n;
	struct ramblock b[RAMBLOCKS_MAX];
};

/*
 * The text of "info ramblock". 0; -EOPNOTSUPP: it has no addresses (QEMU before 8.0); -EPROTO: it is something else;
 * -E2BIG: too many. text is cut into pieces.
 */
int ramblocks_parse(char *text, struct ramblocks *all);
/* Names and sizes alone, which every version has. Lines that make no sense are left out. */
void ramblocks_sizes(const char *text, struct ramblocks *all);
/*
 * Asks QEMU. @told: it tells addresses; if not, QEMU is older than 8.0, and leaves all shared RAM out of its own stream.
 * Errors: GW_NOT_QEMU (a list that makes no sense), GW_VM_STATE (too many blocks), and those of qmp_call() but GW_QMP.
 */
int ramblocks_query(struct qmp *q, struct ramblocks *all, bool *told, struct err *e);
/*
 * Its first half: the list as QEMU says it, for free(). The same text is the same RAM, in the same places. "" when QEMU does
 * not know the command.
 */
int ramblocks_text(struct qmp *q, char **text, struct err *e);
/* And its second. */
int ramblocks_read(const char *text, struct ramblocks *all, bool *told, struct err *e);
/* NULL: none of that name. Before machine type 4.0 the name of a backend's block is "/objects/NAME". */
const struct ramblock *ramblocks_find(const struct ramblocks *all, const char *name);
bool ramblocks_is(const char *block, const char *name);

#endif
