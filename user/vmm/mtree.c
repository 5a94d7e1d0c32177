// SPDX-License-Identifier: GPL-2.0-only
/*
 * No command for programs tells it for more than DIMMs. "info mtree" has a line for each backend:
 *
 *	    0000000008000000-000000000fffffff (prio 0, ram): ram1
 *
 * Parts of one that are mapped to several places are aliases, which are lines of another form. A backend that is part of such a
 * whole (NUMA nodes) has its address in it, as in QEMU's own comparison.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/mtree.h"
#include "vmm/ramblocks.h"

/* The name at the end of a line for RAM, or NULL. */
static const char *ram_line(const char *line, uint64_t *address)
{
	uint64_t last;
	int prio, name = 0;

	/* Indented by what it is part of. */
	if (sscanf(line, "%16" SCNx64 "-%16" SCNx64 " (prio %d, ram): %n", address, &last, &prio, &name) != 3 || !name)
		return NULL;
	return line + name;
}

bool mtree_address(const char *text, const char *name, uint64_t *address)
{
	char line[WIRE_NAME_MAX + 256];

	for (const char *at = text; *at; at += strspn(at, "\r\n")) {
		size_t n = strcspn(at, "\r\n");
		const char *found = NULL;

		if (n < sizeof(line)) {
			memcpy(line, at, n);
			line[n] = '\0';
			found = ram_line(line, address);
		}
		if (found && ramblocks_is(found, name))
			return true;
		at += n;
	}
	return false;
}

int mtree_query(struct qmp *q, struct vm *vm, struct err *e)
{
	char *text;
	int r = qmp_monitor(q, "info mtree", &text, e);

	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		if (!text || !mtree_address(text, vm->blocks[i].name, &vm->blocks[i].address))
			vm->blocks[i].address = WIRE_NO_ADDRESS;
	free(text);
	return r;
}

int mtree_check(const struct vm *vm, struct err *e)
{
	const struct ram_block *b = vm->blocks;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		for (unsigned int j = 0; j < vm->nblocks; j++)
			if (i != j && b[i].pages == b[j].pages && b[i].address == WIRE_NO_ADDRESS)
				return err_set(e, GW_QMP, EOPNOTSUPP,
					       "this QEMU does not say where RAM \"%s\" lies in the guest (info mtree), and another block has its size: use memory-backend-file and --device-state migrate",
					       b[i].name);
	return 0;
}
