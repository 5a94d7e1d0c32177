/* SPDX-License-Identifier: GPL-2.0-only */
/* A bit for each page of a VM's RAM, by block. */
#ifndef GODWIT_DIRTY_MAPS_H
#define GODWIT_DIRTY_MAPS_H

#include "base/err.h"
#include "vmm/vm.h"

/* All clear. GW_INTERNAL: no memory, and what there is of them is still to be freed. */
int dirty_maps_new(uint64_t *map[WIRE_BLOCKS_MAX], const struct vm *vm, struct err *e);
/* Those that are NULL are fine. */
void dirty_maps_free(uint64_t *map[WIRE_BLOCKS_MAX]);

#endif
