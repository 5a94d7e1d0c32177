// SPDX-License-Identifier: GPL-2.0-only
/*
 * Finds where runs of set bits begin and end. In a scattered map the next bit is anywhere, so the
 * CPU mispredicts every branch on it. The scan makes masks of the beginnings and of the ends in
 * each word, and writes out a fixed number of bits of each before it tests how many there are; the
 * next word's bits overwrite what was too many. (simdjson finds a document's structure in that way:
 * Langdale and Lemire, "Parsing Gigabytes of JSON per Second".) The scan skips words that are all
 * zeros outside a run, and words that are all ones inside one.
 *
 * It reads no word that holds no bit below nbits.
 */
#include <immintrin.h>
#include <stdatomic.h>

#include "page/page.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define WORD_BITS	64
#define STEP_WORDS	16	/* two cache lines */
#define UNTESTED	2u	/* with 1 % of the bits set, 1 word in 40 has more beginnings */

/* Returns the first word from i on that may be other than all zeros (ones), or words. */
typedef uint64_t skip_fn(const uint64_t *map, uint64_t words, uint64_t i);

static inline __attribute__((always_inline)) uint64_t scan_lowest(uint64_t w)
{
	return (uint64_t)__builtin_ctzll(w | UINT64_C(1) << 63); /* w 0: result is overwritten */
}

/*
 * Writes the bit numbers of mask to every other uint64_t from out on, which are one field of each
 * run. Returns how many.
 */
static inline __attribute__((always_inline)) unsigned int scan_put(uint64_t *out, uint64_t base,
								   uint64_t mask)
{
	const unsigned int n = (unsigned int)__builtin_popcountll(mask);

	_Static_assert(sizeof(struct run) == 2 * sizeof(*out), "two fields");
	for (unsigned int i = 0; i < UNTESTED; i++, mask &= mask - 1)
		out[2 * i] = base + scan_lowest(mask);
	for (unsigned int i = UNTESTED; __builtin_expect(i < n, 0); i++, mask &= mask - 1)
		out[2 * i] = base + scan_lowest(mask);
	return n;
}

/* Inlined into each variant, for its target. A run's @count holds its end until all are found. */
static inline __attribute__((always_inline)) unsigned int
scan_find(const uint64_t *map, uint64_t nbits, uint64_t *from, struct run *out, unsigned int room,
	  skip_fn *zeros, skip_fn *ones)
{
	const uint64_t words = nbits / WORD_BITS + (nbits % WORD_BITS != 0);
	uint64_t i = *from / WORD_BITS, keep = UINT64_MAX << (*from % WORD_BITS);
	uint64_t next_skip = i + 1, open = 0;
	unsigned int begun = 0, ended = 0;

	for (; i < words && begun + BITMAP_WORD_RUNS <= room; i++) {
		uint64_t w, before;

		if (i == next_skip) {
			i = (open ? ones : zeros)(map, words, i);
			next_skip = i + STEP_WORDS;
			if (i == words)
				break;
		}
		w = map[i] & keep;
		if (i == nbits / WORD_BITS)
			w &= ~(UINT64_MAX << (nbits % WORD_BITS));
		before = w << 1 | open;
		begun += scan_put(&out[begun].first, i * WORD_BITS, w & ~before);
		ended += scan_put(&out[ended].count, i * WORD_BITS, ~w & before);
		open = w >> (WORD_BITS - 1);
		keep = UINT64_MAX;
	}
	*from = i < words ? i * WORD_BITS : nbits;
	if (open && i < words)
		*from = out[ended].first;	/* the next call finds all of this run */
	else if (open)
		out[ended++].count = nbits;
	for (unsigned int r = 0; r < ended; r++)
		out[r].count -= out[r].first;
	return ended;
}

static bool scan_scalar_supported(void)
{
	return true;
}

static uint64_t scalar_zeros(const uint64_t *map, uint64_t words, uint64_t i)
{
	while (i < words && !map[i])
		i++;
	return i;
}

static uint64_t scalar_ones(const uint64_t *map, uint64_t words, uint64_t i)
{
	while (i < words && map[i] == UINT64_MAX)
		i++;
	return i;
}

static unsigned int scalar_runs(const uint64_t *map, uint64_t nbits, uint64_t *from,
				struct run *out, unsigned int room)
{
	return scan_find(map, nbits, from, out, room, scalar_zeros, scalar_ones);
}

/* The builtin also tests the OS (XGETBV). */
static bool scan_avx2_supported(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
	       __builtin_cpu_supports("popcnt");
}

__attribute__((target("avx2")))
static uint64_t avx2_zeros(const uint64_t *map, uint64_t words, uint64_t i)
{
	for (; words - i >= STEP_WORDS; i += STEP_WORDS) {
		const __m256i_u *v = (const __m256i_u *)(map + i);
		__m256i any = (v[0] | v[1]) | (v[2] | v[3]);

		if (!_mm256_testz_si256(any, any))
			break;
	}
	return i;
}

__attribute__((target("avx2")))
static uint64_t avx2_ones(const uint64_t *map, uint64_t words, uint64_t i)
{
	const __m256i ones = _mm256_set1_epi64x(-1);

	for (; words - i >= STEP_WORDS; i += STEP_WORDS) {
		const __m256i_u *v = (const __m256i_u *)(map + i);
		__m256i all = (v[0] & v[1]) & (v[2] & v[3]);

		if (!_mm256_testc_si256(all, ones))
			break;
	}
	return i;
}

__attribute__((target("avx2,bmi,popcnt"))) static unsigned int avx2_runs(
	const uint64_t *map, uint64_t nbits, uint64_t *from, struct run *out, unsigned int room)
{
	return scan_find(map, nbits, from, out, room, avx2_zeros, avx2_ones);
}

const struct bitmap_scan bitmap_scans[] = {
	{ .name = "avx2", .supported = scan_avx2_supported, .runs = avx2_runs },
	{ .name = "scalar", .supported = scan_scalar_supported, .runs = scalar_runs },
};
const unsigned int bitmap_scans_count = ARRAY_SIZE(bitmap_scans);

const struct bitmap_scan *bitmap_scan_best(void)
{
	/* No lock: threads that race choose the same variant. */
	static const struct bitmap_scan *_Atomic chosen;
	const struct bitmap_scan *s = atomic_load_explicit(&chosen, memory_order_relaxed);

	if (!s) {
		for (s = bitmap_scans; !s->supported(); s++)
			;
		atomic_store_explicit(&chosen, s, memory_order_relaxed);
	}
	return s;
}
