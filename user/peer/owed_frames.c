// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "peer/owed_frames.h"
#include "wire/owed.h"

#define CHUNK_WORDS	512u	/* of one OWED frame: 32768 pages */
#define CHUNK_PAGES	(CHUNK_WORDS * 64)

/* The bits of pages [first, first + count), a bit a page. How many are set? */
static uint32_t owed_frame_words(const struct owed_block *b, uint64_t first, uint32_t count,
				 uint8_t *words)
{
	uint32_t set = 0;

	memset(words, 0, (count / 64 + !!(count % 64)) * 8u);
	for (uint32_t i = 0; i < count;) {
		uint64_t unit = (first + i) / b->unit;
		uint32_t end = (uint32_t)((unit + 1) * b->unit - first);
		bool owed = atomic_load(&b->owed[unit / 64]) >> unit % 64 & 1;

		if (end > count)
			end = count;
		for (; i < end; i++) {
			words[i / 8] |= (uint8_t)(owed << i % 8);
			set += owed;
		}
	}
	return set;
}

static int owed_frames_block(const struct owed *o, unsigned int block, const struct frame_out *to,
			     uint64_t *sum, struct err *e)
{
	uint8_t body[WIRE_EXTENT + CHUNK_WORDS * 8];
	const struct owed_block *b = &o->block[block];
	int r = 0;

	for (uint64_t first = 0; first < b->pages && !r; first += CHUNK_PAGES) {
		uint32_t n = b->pages - first < CHUNK_PAGES ? (uint32_t)(b->pages - first) :
			     CHUNK_PAGES;
		uint32_t set = owed_frame_words(b, first, n, body + WIRE_EXTENT);
		struct wire_extent x = {
			.block = (uint16_t)block, .kind = set == n ? WIRE_ZERO : WIRE_DATA,
			.pages = n, .first = first,
		};
		struct wire_header h = { .type = WIRE_OWED };

		*sum += set;
		if (!set)
			continue;
		h.arg = set == n ? 0 : n / 64 + !!(n % 64);
		h.length = WIRE_EXTENT + h.arg * 8;
		wire_put_extent(body, &x);
		r = to->send(to->arg, &h, body, e);
	}
	return r;
}

int owed_frames_send(const struct owed *o, const struct frame_out *to, uint64_t *pages,
		     struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int i = 0; i < o->blocks && !r; i++)
		r = owed_frames_block(o, i, to, pages, e);
	return r;
}

int owed_frame_receive(struct owed *o, struct channel *ch, const struct wire_header *h,
		       struct err *e)
{
	static _Thread_local uint8_t body[WIRE_EXTENT + WIRE_OWED_WORDS * 8];
	uint64_t pages[WIRE_BLOCKS_MAX];
	const uint8_t *words;
	struct wire_extent x;
	int r = channel_body(ch, body, h->length, e);

	if (r)
		return r;
	for (unsigned int i = 0; i < o->blocks; i++)
		pages[i] = o->block[i].pages;
	r = wire_get_owed(h, body, pages, o->blocks, &x, &words);
	if (!r)
		r = owed_add_words(o, &x, words);
	return r ? err_set(e, GW_BAD_PEER, -r, "the peer sent a malformed OWED frame") : 0;
}
