/* SPDX-License-Identifier: GPL-2.0-only */
/* A bit for each page of a VM's RAM, by block. */
#ifndef GODWIT_DIRTY_MAPS_H
#define GODWIT_DIRTY_MAPS_H

#include "base/err.h"
#include "vmm/vm.h"

/* All clear. GW_INTERNAL: no memory, and what there is of them is still to be freed. */
int dirty_maps_new(uint64_t *map[WIRE_BLOCKS_MAX], const struct vm *vm, struct err *e);
/* Bits that are set move from one to the other. true: there were any. */
bool dirty_maps_move(const struct vm *vm, uint64_t *const from[WIRE_BLOCKS_MAX],
		     uint64_t *const to[WIRE_BLOCKS_MAX]);
/* Those that are NULL are fine. */
void dirty_maps_free(uint64_t *map[WIRE_BLOCKS_MAX]);

#endif
