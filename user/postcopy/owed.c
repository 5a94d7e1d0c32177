// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "postcopy/owed.h"
#include "wire/wire.h"

#define WORD_BITS	64

static uint64_t owed_bit(uint64_t n)
{
	return (uint64_t)1 << n % WORD_BITS;
}

static bool owed_test(const _Atomic uint64_t *map, uint64_t n)
{
	return atomic_load(&map[n / WORD_BITS]) & owed_bit(n);
}

/* Was it set before? */
static bool owed_set(_Atomic uint64_t *map, uint64_t n)
{
	return atomic_fetch_or(&map[n / WORD_BITS], owed_bit(n)) & owed_bit(n);
}

int owed_init(struct owed *o, const uint64_t *pages, const uint32_t *unit, unsigned int blocks,
	      struct err *e)
{
	memset(o, 0, sizeof(*o));
	for (unsigned int i = 0; i < blocks; i++) {
		struct owed_block *b = &o->block[i];
		size_t words;

		o->blocks = i + 1;
		b->pages = pages[i];
		b->unit = unit[i];
		b->units = pages[i] / unit[i] + !!(pages[i] % unit[i]);
		words = b->units / WORD_BITS + 1;
		b->owed = calloc(words, sizeof(*b->owed));
		b->taken = calloc(words, sizeof(*b->taken));
		b->asked = calloc(words, sizeof(*b->asked));
		if (!b->owed || !b->taken || !b->asked)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return 0;
}

void owed_free(struct owed *o)
{
	for (unsigned int i = 0; i < o->blocks; i++) {
		free((void *)o->block[i].owed);
		free((void *)o->block[i].taken);
		free((void *)o->block[i].asked);
	}
	o->blocks = 0;
}

/* *news: units that were not owed before; *all: how many these pages are. */
static void owed_add_units(struct owed *o, unsigned int block, uint64_t first, uint64_t count,
			   uint64_t *news, uint64_t *all)
{
	struct owed_block *b = &o->block[block];

	*news = *all = 0;
	for (uint64_t n = first / b->unit; n * b->unit < first + count; n++) {
		*news += !owed_set(b->owed, n);
		++*all;
	}
	atomic_fetch_add(&o->left, *news);
}

int owed_add(struct owed *o, unsigned int block, uint64_t first, uint64_t count)
{
	const struct owed_block *b = &o->block[block];
	uint64_t end = first + count, news, all;

	if (first % b->unit || (end % b->unit && end != b->pages))
		return -EINVAL;
	owed_add_units(o, block, first, count, &news, &all);
	return news == all ? 0 : -EEXIST;
}

bool owed_add_new(struct owed *o, unsigned int block, uint64_t first, uint64_t count)
{
	uint64_t news, all;

	owed_add_units(o, block, first, count, &news, &all);
	return news > 0;
}

/* The end of the run of equal bits that begins with bit @from of the words. */
static uint32_t owed_same_until(const uint8_t *words, uint32_t from, uint32_t end, bool *set)
{
	uint64_t word = wire_get_u64(words + (size_t)(from / WORD_BITS) * 8);

	*set = word & owed_bit(from);
	while (from < end) {
		uint64_t other;

		if (from % WORD_BITS == 0)
			word = wire_get_u64(words + (size_t)(from / WORD_BITS) * 8);
		other = (*set ? ~word : word) >> from % WORD_BITS;
		if (other)
			return from + (uint32_t)__builtin_ctzll(other) < end ?
				       from + (uint32_t)__builtin_ctzll(other) : end;
		if (end - from <= WORD_BITS - from % WORD_BITS)
			return end;
		from += WORD_BITS - from % WORD_BITS;
	}
	return end;
}

int owed_add_words(struct owed *o, const struct wire_extent *x, const uint8_t *words)
{
	int r = 0;

	if (!words)
		return owed_add(o, x->block, x->first, x->pages);
	for (uint32_t at = 0, end; at < x->pages && !r; at = end) {
		bool set;

		end = owed_same_until(words, at, x->pages, &set);
		if (set)
			r = owed_add(o, x->block, x->first + at, end - at);
	}
	return r;
}

void owed_again(struct owed *o)
{
	for (unsigned int i = 0; i < o->blocks; i++) {
		struct owed_block *b = &o->block[i];

		for (uint64_t word = 0; word <= b->units / WORD_BITS; word++) {
			const uint64_t owed = atomic_load(&b->owed[word]);

			atomic_fetch_and(&b->taken[word], ~owed);
			atomic_fetch_and(&b->asked[word], ~owed);
		}
	}
}

enum owed_take owed_take(struct owed *o, unsigned int block, uint64_t unit)
{
	struct owed_block *b = &o->block[block];

	/* What is not owed any more was taken before, and stays so. */
	if (!owed_test(b->owed, unit))
		return owed_test(b->taken, unit) ? OWED_GONE : OWED_NEVER;
	return owed_set(b->taken, unit) ? OWED_GONE : OWED_MINE;
}

bool owed_arrived(struct owed *o, unsigned int block, uint64_t unit)
{
	struct owed_block *b = &o->block[block];
	bool asked;

	atomic_fetch_and(&b->owed[unit / WORD_BITS], ~owed_bit(unit));
	asked = owed_test(b->asked, unit);
	atomic_fetch_sub(&o->left, 1);
	return asked;
}

enum owed_fault owed_fault(struct owed *o, unsigned int block, uint64_t unit)
{
	struct owed_block *b = &o->block[block];
	bool asked = owed_set(b->asked, unit);

	if (!owed_test(b->owed, unit))
		return OWED_HERE;
	return asked ? OWED_WAIT : OWED_ASK;
}

bool owed_want(struct owed *o, unsigned int block, uint64_t unit)
{
	struct owed_block *b = &o->block[block];

	if (!owed_test(b->owed, unit) || owed_set(b->asked, unit))
		return false;
	owed_set(b->taken, unit);
	return true;
}

/* Of word number i: what is owed and not taken. */
static uint64_t owed_word(const struct owed_block *b, uint64_t i)
{
	return atomic_load(&b->owed[i]) & ~atomic_load(&b->taken[i]);
}

uint64_t owed_next(const struct owed *o, unsigned int block, uint64_t from, uint64_t end)
{
	const struct owed_block *b = &o->block[block];

	while (from < end) {
		uint64_t word = owed_word(b, from / WORD_BITS) >> from % WORD_BITS;

		if (word) {
			from += (uint64_t)__builtin_ctzll(word);
			break;
		}
		from += WORD_BITS - from % WORD_BITS;
	}
	return from < end ? from : end;
}

uint64_t owed_end(const struct owed *o, unsigned int block, uint64_t from)
{
	const struct owed_block *b = &o->block[block];

	while (from < b->units) {
		uint64_t other = ~owed_word(b, from / WORD_BITS) >> from % WORD_BITS;

		if (other) {
			from += (uint64_t)__builtin_ctzll(other);
			break;
		}
		from += WORD_BITS - from % WORD_BITS;
	}
	return from < b->units ? from : b->units;
}

struct wire_extent owed_extent(const struct owed *o, unsigned int block, uint64_t unit)
{
	const struct owed_block *b = &o->block[block];
	uint64_t first = unit * b->unit, left = b->pages - first;

	return (struct wire_extent) {
		.block = (uint16_t)block, .kind = WIRE_DATA, .first = first,
		.pages = left < b->unit ? (uint32_t)left : b->unit,
	};
}
