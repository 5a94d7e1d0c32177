// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "dirty/maps.h"

int dirty_maps_new(uint64_t *map[WIRE_BLOCKS_MAX], const struct vm *vm, struct err *e)
{
	for (unsigned int b = 0; b < vm->nblocks; b++) {
		map[b] = calloc((vm->blocks[b].pages + 63) / 64, sizeof(uint64_t));
		if (!map[b])
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return 0;
}

bool dirty_maps_move(const struct vm *vm, uint64_t *const from[WIRE_BLOCKS_MAX],
		     uint64_t *const to[WIRE_BLOCKS_MAX])
{
	bool any = false;

	for (unsigned int b = 0; b < vm->nblocks; b++)
		for (uint64_t w = 0; w < (vm->blocks[b].pages + 63) / 64; w++) {
			if (!from[b][w])
				continue;
			to[b][w] |= from[b][w];
			from[b][w] = 0;
			any = true;
		}
	return any;
}

void dirty_maps_free(uint64_t *map[WIRE_BLOCKS_MAX])
{
	for (unsigned int b = 0; b < WIRE_BLOCKS_MAX; b++)
		free(map[b]);
}
