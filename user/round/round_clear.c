// SPDX-License-Identifier: GPL-2.0-only
/* What a round clears in the source before it reads, and what it leaves out. */
#include "dirty/lease.h"
#include "round/round_internal.h"

/* 16 GiB: so far ahead of what is read a round looks for what is written again. */
#define WATCH_PAGES	(1ull << 22)

void round_walk_anew(struct round *rd)
{
	rd->dirty = (struct bitmap_runs) {
		.map = rd->source->map[rd->block], .nbits = rd->vm->blocks[rd->block].pages,
	};
}

uint64_t *round_cleared(struct round *rd, unsigned int block)
{
	return rd->rewritten ? &rd->rewritten->cleared[block] : &rd->cleared_end;
}

int round_clear_ahead(struct round *rd, unsigned int block, uint64_t first, struct err *e)
{
	uint64_t end = bitmap_past(rd->source->map[block], rd->vm->blocks[block].pages, first,
				   CLEAR_PAGES);
	struct lease *lease = rd->source->lease;
	int r;

	if (lease && !lease_begin(lease))
		return ROUND_WAITS;
	r = rd->source->ops->clear(rd->source, block, first, end - first, e);
	if (lease)
		lease_end(lease);
	if (!r)
		*round_cleared(rd, block) = end;
	return r;
}

int round_watch_ahead(struct round *rd, struct err *e)
{
	uint64_t ahead = 0;

	for (unsigned int b = rd->block; b < rd->vm->nblocks && ahead < WATCH_PAGES; b++) {
		const uint64_t cleared = rd->rewritten->cleared[b];
		const uint64_t from = b == rd->block ? rd->at : 0;

		if (cleared < rd->vm->blocks[b].pages && ahead + cleared < from + WATCH_PAGES) {
			int r = round_clear_ahead(rd, b, cleared, e);

			return r == ROUND_WAITS ? 0 : r;
		}
		ahead += cleared > from ? cleared - from : 0;
	}
	return 0;
}

int round_look(struct round *rd, struct err *e)
{
	int r;

	pthread_mutex_lock(&rd->lock);
	r = rewritten_find(rd->rewritten, rd->source, e);
	/* What has been found ahead may be held by now. */
	if (rd->block < rd->vm->nblocks)
		round_walk_anew(rd);
	pthread_mutex_unlock(&rd->lock);
	return r;
}
