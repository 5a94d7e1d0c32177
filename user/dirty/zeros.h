/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which pages were zeros when they were read last. Of a huge page that another process writes the
 * kernel says only that it is dirty, so a page of 1 GiB with a few frames' buffers counts as 262144
 * dirty pages, and as so many pages with data it would fit no downtime limit. What was zeros in it
 * is zeros most likely still: it is read, and next to nothing of it is sent.
 *
 * It is for the prediction alone: each dirty page is read and sent as it is. Where a vCPU has
 * written, by the log of 4 KiB pages, nothing is known of what a page has now, so only huge pages
 * count that are dirty from end to end.
 */
#ifndef GODWIT_ZEROS_H
#define GODWIT_ZEROS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "page/page.h"
#include "vmm/vm.h"

/**
 * struct zeros - for each block on huge pages, one bit a page; of the others nothing is known
 * @map: not locked: a stripe (dirty/stripes.h) is of whole words, and one stream sends it in a
 *	round
 */
struct zeros {
	const struct vm *vm;
	uint64_t *map[WIRE_BLOCKS_MAX];
};

/* GW_INTERNAL: no memory. zeros_free() also then, and a struct of zeros is fine for it. */
int zeros_init(struct zeros *z, const struct vm *vm, struct err *e);
void zeros_free(struct zeros *z);
/* The page has been read, in a round that is not the last. */
static inline void zeros_note(struct zeros *z, unsigned int block, uint64_t page, bool is_zero)
{
	uint64_t *word = z->map[block] ? &z->map[block][page / 64] : NULL;

	if (word && (*word >> page % 64 & 1) != is_zero)
		*word ^= 1ull << page % 64;
}

/* How many there are in huge pages that are all dirty. No round is under way. */
uint64_t zeros_dirty(const struct zeros *z, uint64_t *const *dirty);

#endif
