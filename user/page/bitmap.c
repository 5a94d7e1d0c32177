// SPDX-License-Identifier: GPL-2.0-only
/* Finds, sets and clears whole runs of bits. */
#include <string.h>

#include "page/page.h"

#define WORD_BITS	64

bool bitmap_runs_next(struct bitmap_runs *it, uint64_t from, struct run *out)
{
	const struct run *run;
	uint64_t end;

	for (;; it->next++) {
		if (it->next == it->n) {
			it->found = it->found > from ? it->found : from;
			it->n = bitmap_scan_best()->runs(it->map, it->nbits, &it->found, it->runs,
							 sizeof(it->runs) / sizeof(it->runs[0]));
			it->next = 0;
			if (!it->n)
				return false;
		}
		run = &it->runs[it->next];
		end = run->first + run->count;
		if (end > from)
			break;
	}
	out->first = run->first > from ? run->first : from;
	out->count = end - out->first;
	return true;
}

/* The bits of word number i that lie in [first, end). */
static inline uint64_t bitmap_mask(uint64_t i, uint64_t first, uint64_t end)
{
	uint64_t m = UINT64_MAX;

	if (i == first / WORD_BITS)
		m &= UINT64_MAX << (first % WORD_BITS);
	if (i == end / WORD_BITS)
		m &= ~(UINT64_MAX << (end % WORD_BITS));
	return m;
}

void bitmap_set(uint64_t *map, uint64_t first, uint64_t count)
{
	uint64_t end = first + count;
	uint64_t i;

	if (!count)
		return;
	for (i = first / WORD_BITS; i <= (end - 1) / WORD_BITS; i++)
		map[i] |= bitmap_mask(i, first, end);
}

void bitmap_set_shared(uint64_t *map, uint64_t first, uint64_t count)
{
	uint64_t end = first + count;

	for (uint64_t i = first / WORD_BITS; count && i <= (end - 1) / WORD_BITS; i++)
		__atomic_fetch_or(&map[i], bitmap_mask(i, first, end), __ATOMIC_RELAXED);
}

uint64_t bitmap_next_shared(const uint64_t *map, uint64_t from, uint64_t end)
{
	while (from < end) {
		uint64_t word = __atomic_load_n(&map[from / WORD_BITS], __ATOMIC_RELAXED);

		word >>= from % WORD_BITS;
		if (word) {
			from += (uint64_t)__builtin_ctzll(word);
			break;
		}
		from += WORD_BITS - from % WORD_BITS;
	}
	return from < end ? from : end;
}

void bitmap_clear(uint64_t *map, uint64_t first, uint64_t count)
{
	uint64_t end = first + count;
	uint64_t i;

	if (!count)
		return;
	for (i = first / WORD_BITS; i <= (end - 1) / WORD_BITS; i++)
		map[i] &= ~bitmap_mask(i, first, end);
}

bool bitmap_all(const uint64_t *map, uint64_t first, uint64_t count)
{
	uint64_t end = first + count;

	for (uint64_t i = first / WORD_BITS; i * WORD_BITS < end; i++)
		if (~map[i] & bitmap_mask(i, first, end))
			return false;
	return true;
}

uint64_t bitmap_past(const uint64_t *map, uint64_t nbits, uint64_t from, uint64_t count)
{
	uint64_t w = from / 64, seen = 0;

	while (seen < count && w * 64 < nbits)
		seen += (uint64_t)__builtin_popcountll(map[w++]);
	return w * 64 < nbits ? w * 64 : nbits;
}
