// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codec/delta.h"
#include "codec/twofold.h"
#include "wire/blocks.h"

/**
 * struct delta_stripe - 64 pages
 * @known: the pages that have hashes
 * @room: there is memory for them
 */
struct delta_stripe {
	uint64_t known;
	bool room;
};

/**
 * struct delta_block
 * @hashes: of each page. Reserved for all of the block, and backed by memory where a stripe has
 *	@room: a stripe's are one page of memory
 */
struct delta_block {
	struct delta_stripe *stripes;
	uint64_t (*hashes)[WIRE_PAGE_PARTS];
	size_t bytes;
};

/**
 * struct delta
 * @left: stripes that may still get room
 */
struct delta {
	struct twofold twofold;
	_Atomic uint64_t left;
	unsigned int blocks;
	struct delta_block block[WIRE_BLOCKS_MAX];
};

_Static_assert(DELTA_STRIPE_BYTES == PAGE_BYTES, "a stripe's hashes are one page");

int delta_parse(const char *text, enum delta_wish *out, struct err *e)
{
	static const char *const words[] = {
		[DELTA_AUTO] = "auto", [DELTA_ON] = "on", [DELTA_OFF] = "off",
	};

	for (unsigned int i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(text, words[i])) {
			*out = (enum delta_wish)i;
			return 0;
		}
	return err_set(e, GW_USAGE, EINVAL, "--delta takes auto, on or off, not \"%.40s\"", text);
}

static bool delta_open_block(struct delta_block *b, uint64_t pages)
{
	const uint64_t stripes = (pages + DELTA_STRIPE_PAGES - 1) / DELTA_STRIPE_PAGES;
	void *hashes;

	b->stripes = calloc(stripes, sizeof(*b->stripes));
	b->bytes = stripes * DELTA_STRIPE_BYTES;
	hashes = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (hashes == MAP_FAILED)
		return false;
	b->hashes = hashes;
	/* A huge page would be the memory of 512 stripes. */
	madvise(hashes, b->bytes, MADV_NOHUGEPAGE);
	madvise(hashes, b->bytes, MADV_DONTDUMP);
	return b->stripes;
}

struct delta *delta_new(const uint64_t *pages, unsigned int blocks, uint64_t memory)
{
	struct delta *d = calloc(1, sizeof(*d));
	bool ok = d && twofold_random(&d->twofold);

	for (unsigned int i = 0; i < blocks && ok; i++) {
		ok = delta_open_block(&d->block[i], pages[i]);
		d->blocks++;
	}
	if (!ok) {
		delta_free(d);
		return NULL;
	}
	atomic_init(&d->left, memory / DELTA_STRIPE_BYTES);
	return d;
}

void delta_free(struct delta *d)
{
	for (unsigned int i = 0; d && i < d->blocks; i++) {
		if (d->block[i].hashes)
			munmap(d->block[i].hashes, d->block[i].bytes);
		free(d->block[i].stripes);
	}
	free(d);
}

/* Several threads ask for it, each for stripes of its own. */
static bool delta_make_room(struct delta *d, struct delta_stripe *s)
{
	uint64_t left = atomic_load_explicit(&d->left, memory_order_relaxed);

	while (left && !s->room)
		s->room = atomic_compare_exchange_weak(&d->left, &left, left - 1);
	return s->room;
}

bool delta_takes(struct delta *d, unsigned int block, uint64_t page, bool make)
{
	struct delta_stripe *s = &d->block[block].stripes[page / DELTA_STRIPE_PAGES];

	if (s->known >> page % DELTA_STRIPE_PAGES & 1)
		return true;
	return make && (s->room || delta_make_room(d, s));
}

static uint64_t delta_hash(const struct delta *d, const uint8_t *part)
{
	uint64_t hash[2];

	twofold_hash(&d->twofold, part, WIRE_PART, hash);
	return hash[0] ^ hash[1];
}

unsigned int delta_changed(struct delta *d, unsigned int block, uint64_t page, const uint8_t *bytes,
			   bool note)
{
	struct delta_stripe *s = &d->block[block].stripes[page / DELTA_STRIPE_PAGES];
	const uint64_t bit = (uint64_t)1 << page % DELTA_STRIPE_PAGES;
	uint64_t *hashes = d->block[block].hashes[page];
	unsigned int changed = 0;

	for (unsigned int i = 0; i < WIRE_PAGE_PARTS; i++) {
		uint64_t hash = delta_hash(d, bytes + i * WIRE_PART);

		if (!(s->known & bit) || hashes[i] != hash)
			changed |= 1u << i;
		if (note)
			hashes[i] = hash;
	}
	if (note)
		s->known |= bit;
	return changed;
}

void delta_forget(struct delta *d, unsigned int block, uint64_t first, uint64_t count)
{
	const uint64_t end = first + count;

	while (first < end) {
		struct delta_stripe *s = &d->block[block].stripes[first / DELTA_STRIPE_PAGES];
		const uint64_t at = first % DELTA_STRIPE_PAGES;
		uint64_t n = DELTA_STRIPE_PAGES - at;

		if (n > end - first)
			n = end - first;
		s->known &= ~(UINT64_MAX >> (DELTA_STRIPE_PAGES - n) << at);
		first += n;
	}
}
