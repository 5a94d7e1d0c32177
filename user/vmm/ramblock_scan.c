// SPDX-License-Identifier: GPL-2.0-only
/*
 * QEMU keeps of each RAM block, in a struct RAMBlock:
 *
 *	address, [a word], offset, used length, maximal length, ..., name
 *
 * The three numbers and the name stand in its list of RAM blocks, too, so they find the struct, and
 * with it the address. That is no interface of QEMU's, hence the rules:
 * - every block of the list is found, and none in two places that differ. A guest can have its
 *   bytes copied into the heap (a packet, a sector), and so forge a place, but it cannot take the
 *   true one away: a forger gets a refusal.
 * - the name is at the same distance from the numbers in all of them, and at least one address is
 *   the one that QEMU's monitor tells of that block: this QEMU's struct is as above.
 * - no address contradicts the monitor, none is outside of writable memory, no two blocks overlap.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "page/page.h"
#include "vmm/ramblock_scan.h"

#define NAME_WITHIN	512u	/* bytes from the numbers on */

enum { SCAN_HVA, SCAN_OTHER, SCAN_NUMBERS, SCAN_WORDS = SCAN_NUMBERS + 3 };

static_assert(SCAN_NUMBERS * sizeof(uint64_t) + NAME_WITHIN <= SCAN_OVERLAP, "a block fits");

/* The kernel shows one mapping as several where its attributes differ. */
static bool scan_is_writable(const struct proc_maps *maps, uint64_t start, uint64_t bytes)
{
	uint64_t at = start;

	if (!start || start % PAGE_BYTES || start > UINT64_MAX - bytes)
		return false;
	for (size_t i = 0; i < maps->n && at < start + bytes; i++)
		if (maps->map[i].writable && maps->map[i].start <= at && maps->map[i].end > at)
			at = maps->map[i].end;
	return at >= start + bytes;
}

/* The numbers are b's; len bytes are left from them on. */
static void scan_take(const struct ramblock *b, uint64_t hva, const uint8_t *numbers, size_t len,
		      const struct proc_maps *maps, struct scan_found *found)
{
	const uint8_t *name = memmem(numbers, len < NAME_WITHIN ? len : NAME_WITHIN, b->name,
				     strlen(b->name) + 1);
	unsigned int name_at = name ? (unsigned int)(name - numbers) : 0;

	if (!name || !scan_is_writable(maps, hva, b->max))
		return;
	if (found->hva && (found->hva != hva || found->name_at != name_at))
		found->twice = true;
	found->hva = hva;
	found->name_at = name_at;
}

void ramblock_scan(const uint8_t *part, size_t len, const struct proc_maps *maps,
		   const struct ramblocks *all, struct scan_found *found)
{
	uint64_t word[SCAN_WORDS], bits = 0, used;
	const uint64_t *number = word + SCAN_NUMBERS;

	for (unsigned int i = 0; i < all->n; i++)
		bits |= all->b[i].offset | all->b[i].bytes | all->b[i].max;
	for (size_t at = 0; at + sizeof(word) <= len; at += sizeof(word[0])) {
		size_t numbers_at = at + SCAN_NUMBERS * sizeof(word[0]);

		/* Almost all places end here: numbers of pages have no low bits. */
		memcpy(&used, part + numbers_at + sizeof(word[0]), sizeof(used));
		if (!used || used & ~bits)
			continue;
		memcpy(word, part + at, sizeof(word));
		if ((number[0] | number[2]) & ~bits)
			continue;
		for (unsigned int i = 0; i < all->n; i++) {
			const struct ramblock *b = &all->b[i];

			if (number[0] == b->offset && number[1] == b->bytes && number[2] == b->max)
				scan_take(b, word[SCAN_HVA], part + numbers_at, len - numbers_at,
					  maps, &found[i]);
		}
	}
}

static bool scan_refuse(struct ramblocks *all, unsigned int block, const char *what)
{
	snprintf(all->why, sizeof(all->why), "RAM block \"%.100s\" %s", all->b[block].name, what);
	return false;
}

static bool scan_overlaps(const struct ramblocks *all, const struct scan_found *found,
			  unsigned int i)
{
	for (unsigned int j = 0; j < i; j++)
		if (found[i].hva < found[j].hva + all->b[j].max &&
		    found[j].hva < found[i].hva + all->b[i].max)
			return true;
	return false;
}

bool ramblock_scan_judge(struct ramblocks *all, const struct scan_found *found)
{
	bool proven = false;

	for (unsigned int i = 0; i < all->n; i++) {
		if (!found[i].hva)
			return scan_refuse(all, i, "was not found in QEMU's heap");
		if (found[i].twice)
			return scan_refuse(all, i, "was found in two places in QEMU's heap");
		if (all->b[i].hva && all->b[i].hva != found[i].hva)
			return scan_refuse(all, i, "was found in QEMU's heap, but its monitor (gpa2hva) tells another address");
		if (found[i].name_at != found[0].name_at || scan_overlaps(all, found, i))
			return scan_refuse(all, i, "was found in QEMU's heap in a form that does not fit the others");
		proven |= all->b[i].hva != 0;
	}
	if (!proven) {
		snprintf(all->why, sizeof(all->why),
			 "nothing proves what was found in QEMU's heap: its monitor (gpa2hva) tells no address");
		return false;
	}
	for (unsigned int i = 0; i < all->n; i++)
		all->b[i].hva = found[i].hva;
	return true;
}
