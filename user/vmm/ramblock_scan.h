/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Searches QEMU's heap for its RAM blocks, for a QEMU that does not say where they are (before
 * 8.0). Pure: a copy of the heap in, addresses out.
 */
#ifndef GODWIT_RAMBLOCK_SCAN_H
#define GODWIT_RAMBLOCK_SCAN_H

#include <stddef.h>

#include "proc/proc.h"
#include "vmm/ramblocks.h"

/**
 * struct scan_found - where the heap says that a block is
 * @hva: 0: nowhere
 * @name_at: bytes from the block's numbers to its name
 * @twice: it says so in two places that differ
 */
struct scan_found {
	uint64_t hva;
	unsigned int name_at;
	bool twice;
};

/* A block takes fewer bytes of the heap: of parts that overlap by these, one has it whole. */
#define SCAN_OVERLAP	1024u

/**
 * ramblock_scan() - search a part of the heap for all blocks
 * @part: aligned as the heap is
 * @maps: of QEMU, by address; what a block has must lie in writable ones
 * @found: for each of all->b; zeros before the first part
 */
void ramblock_scan(const uint8_t *part, size_t len, const struct proc_maps *maps,
		   const struct ramblocks *all, struct scan_found *found);

/**
 * ramblock_scan_judge() - may the addresses that were found be believed?
 * @all: hva of some blocks, as QEMU's monitor tells; takes what was found, if all of it can be
 *	believed
 * Return: true; false: all->why says why not.
 */
bool ramblock_scan_judge(struct ramblocks *all, const struct scan_found *found);

#endif
