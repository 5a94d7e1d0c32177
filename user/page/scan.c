// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where do runs of set bits begin and end? Dirty bitmaps are either sparse or dense, so both scans skip
 * words that say nothing. Scalar takes one word at a time. AVX2 skips 1024 bits at a time, but
 * starts with the scalar look: in a scattered map the answer is in the next word or two.
 *
 * Neither reads a word that holds no bit below nbits.
 */
#include <immintrin.h>
#include <stdatomic.h>

#include "page.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define WORD_BITS	64
#define STEP_WORDS	16	/* two cache lines */
#define LOOK_WORDS	4	/* scalar words before AVX2 pays */

static inline uint64_t words_of(uint64_t nbits)
{
	return nbits / WORD_BITS + (nbits % WORD_BITS != 0);
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * The first bit at or after from that is set in word ^ invert, in words [from / 64, end).
 * UINT64_MAX: there is none.
 */
static inline uint64_t look(const uint64_t *map, uint64_t end, uint64_t from, uint64_t invert)
{
	uint64_t i = from / WORD_BITS;
	uint64_t w;

	if (i >= end)
		return UINT64_MAX;
	w = (map[i] ^ invert) & (UINT64_MAX << (from % WORD_BITS));
	while (!w) {
		if (++i >= end)
			return UINT64_MAX;
		w = map[i] ^ invert;
	}
	return i * WORD_BITS + __builtin_ctzll(w);
}

static bool scalar_supported(void)
{
	return true;
}

static uint64_t scalar_next_set(const uint64_t *map, uint64_t nbits, uint64_t from)
{
	return min_u64(look(map, words_of(nbits), from, 0), nbits);
}

static uint64_t scalar_next_clear(const uint64_t *map, uint64_t nbits, uint64_t from)
{
	return min_u64(look(map, words_of(nbits), from, UINT64_MAX), nbits);
}

/* Inlined into each variant: what a population count costs depends on the target. */
static inline __attribute__((always_inline)) uint64_t weigh(const uint64_t *map, uint64_t nbits)
{
	uint64_t n = 0;
	uint64_t i;

	for (i = 0; i < nbits / WORD_BITS; i++)
		n += __builtin_popcountll(map[i]);
	if (nbits % WORD_BITS)
		n += __builtin_popcountll(map[i] & ~(UINT64_MAX << (nbits % WORD_BITS)));
	return n;
}

static uint64_t scalar_weight(const uint64_t *map, uint64_t nbits)
{
	return weigh(map, nbits);
}

/* The builtin asks the OS as well (XGETBV). */
static bool avx2_supported(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
}

/* From word i, the first step of STEP_WORDS that is not all zeros, or where less than a step is left. */
__attribute__((target("avx2"))) static uint64_t avx2_skip_zeros(const uint64_t *map, uint64_t words, uint64_t i)
{
	for (; words - i >= STEP_WORDS; i += STEP_WORDS) {
		const __m256i_u *v = (const __m256i_u *)(map + i);
		__m256i any = (v[0] | v[1]) | (v[2] | v[3]);

		if (!_mm256_testz_si256(any, any))
			break;
	}
	return i;
}

/* The same for all ones. */
__attribute__((target("avx2"))) static uint64_t avx2_skip_ones(const uint64_t *map, uint64_t words, uint64_t i)
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

static uint64_t avx2_next_set(const uint64_t *map, uint64_t nbits, uint64_t from)
{
	uint64_t words = words_of(nbits);
	uint64_t end = min_u64(words, from / WORD_BITS + LOOK_WORDS);
	uint64_t bit = look(map, end, from, 0);

	if (bit == UINT64_MAX && end < words)
		bit = look(map, words, avx2_skip_zeros(map, words, end) * WORD_BITS, 0);
	return min_u64(bit, nbits);
}

static uint64_t avx2_next_clear(const uint64_t *map, uint64_t nbits, uint64_t from)
{
	uint64_t words = words_of(nbits);
	uint64_t end = min_u64(words, from / WORD_BITS + LOOK_WORDS);
	uint64_t bit = look(map, end, from, UINT64_MAX);

	if (bit == UINT64_MAX && end < words)
		bit = look(map, words, avx2_skip_ones(map, words, end) * WORD_BITS, UINT64_MAX);
	return min_u64(bit, nbits);
}

__attribute__((target("avx2,popcnt"))) static uint64_t avx2_weight(const uint64_t *map, uint64_t nbits)
{
	return weigh(map, nbits);
}

const struct bitmap_scan bitmap_scans[] = {
	{ .name = "avx2", .supported = avx2_supported, .next_set = avx2_next_set,
	  .next_clear = avx2_next_clear, .weight = avx2_weight },
	{ .name = "scalar", .supported = scalar_supported, .next_set = scalar_next_set,
	  .next_clear = scalar_next_clear, .weight = scalar_weight },
};
const unsigned int bitmap_scans_count = ARRAY_SIZE(bitmap_scans);

const struct bitmap_scan *bitmap_scan_best(void)
{
	/* No lock: threads that race choose the same. */
	static const struct bitmap_scan *_Atomic chosen;
	const struct bitmap_scan *s = atomic_load_explicit(&chosen, memory_order_relaxed);

	if (!s) {
		for (s = bitmap_scans; !s->supported(); s++)
			;
		atomic_store_explicit(&chosen, s, memory_order_relaxed);
	}
	return s;
}
