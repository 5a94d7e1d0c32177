// SPDX-License-Identifier: GPL-2.0-only
/* Which dirty pages are there to be sent: of all kinds of sources. */
#include "dirty/source.h"
#include "page/page.h"

#define ASK_PAGES	4u	/* to ask about fewer costs as much as to read them */

/*
 * Must the source say what of these pages is allocated? A few pages of a file can be read at once:
 * a hole reads as zeros, and stays one. To read private memory that is not there would make it.
 */
static bool source_must_ask(const struct dirty_source *s, unsigned int block,
			    const struct run *dirty)
{
	return dirty->count >= ASK_PAGES || s->vm->blocks[block].hva;
}

int source_next_dirty(struct dirty_source *s, unsigned int block, uint64_t from,
		      struct bitmap_runs *walk, struct run *data, struct run *out, struct err *e)
{
	struct run dirty;
	int r;

	while (bitmap_runs_next(walk, from, &dirty)) {
		uint64_t lo, hi, dirty_end = dirty.first + dirty.count;

		/* data is the last run that was found; ask again only beyond it. */
		if (dirty.first < data->first + data->count) {
			r = 1;
		} else if (!source_must_ask(s, block, &dirty)) {
			*data = dirty;
			r = 1;
		} else {
			r = s->ops->next_data(s, block, dirty.first, walk->nbits, false,
					      &data->first, &data->count, e);
		}
		if (r <= 0)
			return r;
		lo = dirty.first > data->first ? dirty.first : data->first;
		hi = data->first + data->count;
		if (hi > dirty_end)
			hi = dirty_end;
		if (lo < hi) {
			out->first = lo;
			out->count = hi - lo;
			return 1;
		}
		from = data->first;	/* the whole run lies in a hole */
	}
	return 0;
}

int source_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		struct bitmap_runs walk = { .map = s->map[b], .nbits = vm->blocks[b].pages };
		struct run data = { 0, 0 }, run = { 0, 0 };

		while ((r = source_next_dirty(s, b, run.first + run.count, &walk, &data, &run,
					      e)) > 0)
			*pages += run.count;
	}
	return r;
}

int source_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		uint64_t from = 0, first, count;

		while ((r = s->ops->next_data(s, b, from, vm->blocks[b].pages, false, &first,
					      &count, e)) > 0) {
			*pages += count;
			from = first + count;
		}
	}
	return r;
}
