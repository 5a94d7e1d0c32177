// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "dirty/maps.h"
#include "dirty/stripes.h"
#include "dirty/zeros.h"

static_assert(STRIPE_PAGES % 64 == 0, "two streams would write one word");

int zeros_init(struct zeros *z, const struct vm *vm, struct err *e)
{
	z->vm = vm;
	for (unsigned int b = 0; b < vm->nblocks; b++) {
		if (vm->blocks[b].page_size / PAGE_BYTES < 64)
			continue;
		z->map[b] = calloc((vm->blocks[b].pages + 63) / 64, sizeof(uint64_t));
		if (!z->map[b])
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return 0;
}

void zeros_free(struct zeros *z)
{
	dirty_maps_free(z->map);
}

/* One huge page: so many words. */
static uint64_t zeros_in(const uint64_t *zero, const uint64_t *dirty, uint64_t words)
{
	uint64_t n = 0;

	for (uint64_t w = 0; w < words; w++) {
		if (dirty[w] != UINT64_MAX)
			return 0;
		n += (uint64_t)__builtin_popcountll(zero[w]);
	}
	return n;
}

uint64_t zeros_dirty(const struct zeros *z, uint64_t *const *dirty)
{
	uint64_t n = 0;

	for (unsigned int b = 0; b < WIRE_BLOCKS_MAX; b++) {
		const uint64_t words = z->map[b] ? z->vm->blocks[b].page_size / PAGE_BYTES / 64 : 0;
		const uint64_t end = words ? z->vm->blocks[b].pages / 64 : 0;

		for (uint64_t at = 0; at + words <= end && words; at += words)
			n += zeros_in(z->map[b] + at, dirty[b] + at, words);
	}
	return n;
}
