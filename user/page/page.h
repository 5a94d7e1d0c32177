/* SPDX-License-Identifier: GPL-2.0-only */
/* What can be said of pages and bitmaps without I/O: is it zero, where is the next run. */
#ifndef GODWIT_PAGE_H
#define GODWIT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096u

/**
 * struct zero_filter - one way to see whether a page holds only zeros
 * @name: "avx2", "sse2", "scalar"
 * @supported: this CPU, and its OS, can run it
 * @is_zero: @page is PAGE_BYTES long and aligned to 64 bytes
 *
 * The table is sorted, best first; the last one is scalar and runs everywhere. A variant may look
 * at a few words before it reads the page: most pages that are not zero say so at once.
 */
struct zero_filter {
	const char *name;
	bool (*supported)(void);
	bool (*is_zero)(const void *page);
};

extern const struct zero_filter zero_filters[];
extern const unsigned int zero_filters_count;

/* The best variant that this CPU supports; chosen once, never NULL. */
const struct zero_filter *zero_filter_best(void);

/**
 * struct run - set bits next to each other
 * @first: number of the first one
 * @count: how many, at least 1
 */
struct run {
	uint64_t first;
	uint64_t count;
};

#define BITMAP_WORD_RUNS	32u	/* as many can begin in a word */

/**
 * struct bitmap_scan - one way to find runs of set bits
 * @name: "avx2", "scalar"
 * @supported: this CPU can run it
 * @runs: the next runs at or after *from and below @nbits, in order, into @out, at most @room, which is 2 BITMAP_WORD_RUNS or
 *        more. Returns how many, 0 only when there is none; *from is where to go on.
 *
 * Bit n is bit n % 64 of word n / 64. Bits at and beyond @nbits may be anything and are not reported.
 */
struct bitmap_scan {
	const char *name;
	bool (*supported)(void);
	unsigned int (*runs)(const uint64_t *map, uint64_t nbits, uint64_t *from, struct run *out, unsigned int room);
};

extern const struct bitmap_scan bitmap_scans[];
extern const unsigned int bitmap_scans_count;
const struct bitmap_scan *bitmap_scan_best(void);

/**
 * struct bitmap_runs - a walk over the runs of a map, with bitmap_scan_best()
 * @map: @nbits: what to set before the first call; all else is 0 then
 *
 * Some hundred bits ahead are found at a time: what is set or cleared there after that is not seen.
 */
struct bitmap_runs {
	const uint64_t *map;
	uint64_t nbits;
	uint64_t found;			/* all below is in runs[], or was */
	unsigned int next, n;
	struct run runs[4 * BITMAP_WORD_RUNS];
};

/* The next run of set bits at or after @from, which never falls, or what is left of it there. false: there is none. */
bool bitmap_runs_next(struct bitmap_runs *it, uint64_t from, struct run *out);
/* Set or clear bits [first, first + count). */
void bitmap_set(uint64_t *map, uint64_t first, uint64_t count);
void bitmap_clear(uint64_t *map, uint64_t first, uint64_t count);
/* Set where other threads set other bits of the same words, and the first bit in [from, end) that is set there, or end. */
void bitmap_set_shared(uint64_t *map, uint64_t first, uint64_t count);
uint64_t bitmap_next_shared(const uint64_t *map, uint64_t from, uint64_t end);
/*
 * Where a range from @from on ends that has about @count set bits, to the next word: at most @nbits. So many that the bits
 * of the last word do not matter.
 */
uint64_t bitmap_past(const uint64_t *map, uint64_t nbits, uint64_t from, uint64_t count);

#endif
