/* SPDX-License-Identifier: GPL-2.0-only */
/* Pages and bitmaps, without I/O: is a page zero, where does the next run of set bits begin. */
#ifndef GODWIT_PAGE_H
#define GODWIT_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096u

/**
 * struct zero_filter - a variant of the test whether a page holds only zeros
 * @name: "avx2", "sse2", "scalar"
 * @supported: this CPU, and its OS, can run it
 * @is_zero: @page is PAGE_BYTES long and aligned to 64 bytes
 *
 * The table is sorted, best first; the last variant is scalar and runs everywhere. A variant may
 * test a few words before it reads the page: they settle most pages that are not zero.
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

/* Is all of the page one byte, whichever? Three bytes settle most pages that are not. */
bool page_is_one_byte(const uint8_t *page);

/**
 * struct run - set bits next to each other
 * @first: number of the first bit
 * @count: how many bits, at least 1
 */
struct run {
	uint64_t first;
	uint64_t count;
};

#define BITMAP_WORD_RUNS	32u	/* the most runs that begin in one word */

/**
 * struct bitmap_scan - a variant of the search for runs of set bits
 * @name: "avx2", "scalar"
 * @supported: this CPU, and its OS, can run it
 * @runs: writes the next runs at or after *from and below @nbits, in order, to @out, at most @room,
 *	which is 2 * BITMAP_WORD_RUNS or more. Returns how many, 0 only if there is none; *from
 *	becomes the place to go on.
 *
 * Bit n is bit n % 64 of word n / 64. Bits at and beyond @nbits may have any value; no variant
 * reports them.
 */
struct bitmap_scan {
	const char *name;
	bool (*supported)(void);
	unsigned int (*runs)(const uint64_t *map, uint64_t nbits, uint64_t *from, struct run *out,
			     unsigned int room);
};

extern const struct bitmap_scan bitmap_scans[];
extern const unsigned int bitmap_scans_count;
const struct bitmap_scan *bitmap_scan_best(void);

/**
 * struct bitmap_runs - a walk over the runs of a map, with bitmap_scan_best()
 * @map, @nbits: the caller sets them before the first call; all else is 0 then
 *
 * The walk finds up to 128 runs ahead at a time: it does not see bits that change there afterwards.
 */
struct bitmap_runs {
	const uint64_t *map;
	uint64_t nbits;
	uint64_t found;			/* all runs below are in runs[], or were */
	unsigned int next, n;
	struct run runs[4 * BITMAP_WORD_RUNS];
};

/*
 * The next run of set bits at or after @from, or the rest of a run that begins before. @from never
 * falls from one call to the next. false: there is none.
 */
bool bitmap_runs_next(struct bitmap_runs *it, uint64_t from, struct run *out);
/* Sets or clears bits [first, first + count). */
void bitmap_set(uint64_t *map, uint64_t first, uint64_t count);
void bitmap_clear(uint64_t *map, uint64_t first, uint64_t count);
/* Are all of bits [first, first + count) set? Of none: yes. */
bool bitmap_all(const uint64_t *map, uint64_t first, uint64_t count);
/*
 * For a map whose words several threads change: sets bits [first, first + count); finds the first
 * bit in [from, end) that is set, or returns end.
 */
void bitmap_set_shared(uint64_t *map, uint64_t first, uint64_t count);
uint64_t bitmap_next_shared(const uint64_t *map, uint64_t from, uint64_t end);
/*
 * The end, at a word or @nbits, of a range that begins at @from and has about @count set bits: it
 * counts whole words, so @count should be so large that the bits of one word do not matter.
 */
uint64_t bitmap_past(const uint64_t *map, uint64_t nbits, uint64_t from, uint64_t count);

#endif
