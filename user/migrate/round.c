// SPDX-License-Identifier: GPL-2.0-only
#include "migrate/round.h"

#define TAKE_PAGES	1024u	/* 4 MiB */
#define TAKE_LAST_PAGES	64u	/* one frame */

/* What was found in the maps is forgotten: bits may have come since. */
static void begin_block(struct round *rd, unsigned int block)
{
	rd->block = block;
	rd->at = rd->cleared_end = 0;
	rd->data = (struct run) { 0, 0 };
	if (block < rd->vm->nblocks)
		rd->written = (struct bitmap_runs) { .map = rd->source->map[block], .nbits = rd->vm->blocks[block].pages };
}

void round_begin(struct round *rd, const struct vm *vm, struct dirty_source *s, enum round_kind kind, struct hot *hot)
{
	*rd = (struct round) { .vm = vm, .source = s, .kind = kind, .hot = hot };
	pthread_mutex_init(&rd->lock, NULL);
	begin_block(rd, 0);
}

void round_end(struct round *rd)
{
	/* What was not sent is still to be sent: the source does not know it any more. */
	if (rd->hot)
		hot_release(rd->hot, rd->source);
	pthread_mutex_destroy(&rd->lock);
}

uint64_t round_taken(struct round *rd)
{
	uint64_t taken;

	pthread_mutex_lock(&rd->lock);
	taken = rd->taken;
	pthread_mutex_unlock(&rd->lock);
	return taken;
}

void round_cut(struct round *rd)
{
	if (rd->kind == ROUND_PRECOPY)
		atomic_store(&rd->cut, true);
}

/* The next run of pages that count as written and are allocated. 1, 0 at the end, -errno. */
static int next_run(struct dirty_source *s, unsigned int block, uint64_t from, struct bitmap_runs *written, struct run *data,
		    struct run *out, struct err *e)
{
	struct run dirty;
	int r;

	while (bitmap_runs_next(written, from, &dirty)) {
		uint64_t lo, hi;

		/* data is the last run that was found; ask again only beyond it. */
		if (dirty.first >= data->first + data->count) {
			r = s->ops->next_data(s, block, dirty.first, written->nbits, false, &data->first, &data->count, e);
			if (r <= 0)
				return r;
		}
		lo = dirty.first > data->first ? dirty.first : data->first;
		hi = dirty.first + dirty.count < data->first + data->count ? dirty.first + dirty.count :
									     data->first + data->count;
		if (lo < hi) {
			out->first = lo;
			out->count = hi - lo;
			return 1;
		}
		from = data->first;	/* the whole run lies in a hole */
	}
	return 0;
}

/* Tells the source of the next pages that will be read: the fewer, the less is written to them until then. */
static int clear_ahead(struct round *rd, uint64_t first, struct err *e)
{
	uint64_t end = bitmap_past(rd->source->map[rd->block], rd->vm->blocks[rd->block].pages, first, CLEAR_PAGES);
	int r = rd->source->ops->clear(rd->source, rd->block, first, end - first, e);

	if (!r)
		rd->cleared_end = end;
	return r;
}

/* At most so many pages that were written, as the taker's: first the log forgets, then the bit goes (see source.h). */
static int take_written(struct round *rd, uint64_t most, struct run *run, struct err *e)
{
	struct dirty_source *s = rd->source;
	int r = next_run(s, rd->block, rd->at, &rd->written, &rd->data, run, e);

	if (r <= 0)
		return r;
	if (rd->kind == ROUND_PRECOPY && run->first >= rd->cleared_end) {
		r = clear_ahead(rd, run->first, e);
		if (r)
			return r;
	}
	if (rd->kind == ROUND_PRECOPY && run->count > rd->cleared_end - run->first)
		run->count = rd->cleared_end - run->first;
	if (run->count > most)
		run->count = most;
	bitmap_clear(s->map[rd->block], run->first, run->count);
	rd->at = run->first + run->count;
	rd->taken += run->count;
	return 1;
}

/* What counts as written and was not taken is not allocated. */
static int take_written_hole(struct round *rd, struct run *run)
{
	if (!bitmap_runs_next(&rd->written, rd->at, run))
		return 0;
	rd->at = run->first + run->count;
	return 1;
}

static int take_hole(struct round *rd, struct run *run, struct err *e)
{
	uint64_t pages = rd->vm->blocks[rd->block].pages, first = pages, count = 0;
	int r = 1;

	if (!rd->source->unmapped)
		return take_written_hole(rd, run);
	while (rd->at < pages) {
		r = rd->source->ops->next_data(rd->source, rd->block, rd->at, pages, true, &first, &count, e);
		if (r < 0)
			return r;
		if (!r)
			first = pages;
		*run = (struct run) { rd->at, first - rd->at };
		rd->at = first + count;
		if (run->count)
			return 1;
	}
	return 0;
}

static void add_run(struct piece *p, const struct run *run)
{
	struct run *last = &p->runs[p->nr - 1];

	if (p->nr && last->first + last->count == run->first)
		last->count += run->count;
	else
		p->runs[p->nr++] = *run;
}

static int take(struct round *rd, struct piece *p, struct err *e)
{
	uint64_t most = rd->kind == ROUND_LAST ? TAKE_LAST_PAGES : TAKE_PAGES, pages = 0;

	while (p->nr < PIECE_RUNS && (rd->holes || pages < most)) {
		struct run run;
		int r = rd->holes ? take_hole(rd, &run, e) : take_written(rd, most - pages, &run, e);

		if (r < 0)
			return r;
		if (!r)
			break;
		pages += run.count;
		add_run(p, &run);
	}
	return p->nr > 0;
}

/* What has been held back comes after the last block, then the holes. */
static void next_block(struct round *rd)
{
	unsigned int next = rd->block + 1;

	if (next == rd->vm->nblocks) {
		if (rd->hot && hot_release(rd->hot, rd->source))
			next = 0;
		else if (rd->kind == ROUND_LAST && !rd->holes)
			next = 0, rd->holes = true;
		rd->hot = NULL;
	}
	begin_block(rd, next);
}

/* What has been held back is written still. */
static void stop_here(struct round *rd)
{
	if (rd->hot)
		hot_release(rd->hot, rd->source);
	rd->hot = NULL;
	rd->block = rd->vm->nblocks;
}

int round_take(struct round *rd, struct piece *p, struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&rd->lock);
	if (atomic_load(&rd->cut))
		stop_here(rd);
	while (rd->block < rd->vm->nblocks) {
		p->nr = 0;
		p->block = rd->block;
		p->hole = rd->holes;
		r = take(rd, p, e);
		if (r)
			break;
		next_block(rd);
	}
	pthread_mutex_unlock(&rd->lock);
	return r;
}

int round_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		struct bitmap_runs written = { .map = s->map[b], .nbits = vm->blocks[b].pages };
		struct run data = { 0, 0 }, run = { 0, 0 };

		while ((r = next_run(s, b, run.first + run.count, &written, &data, &run, e)) > 0)
			*pages += run.count;
	}
	return r;
}

int round_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		uint64_t from = 0, first, count;

		while ((r = s->ops->next_data(s, b, from, vm->blocks[b].pages, false, &first, &count, e)) > 0) {
			*pages += count;
			from = first + count;
		}
	}
	return r;
}
