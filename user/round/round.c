// SPDX-License-Identifier: GPL-2.0-only
#include "round/round_internal.h"

#define PIECE_PAGES		1024u	/* 4 MiB */
#define PIECE_SMALL_PAGES	64u	/* one frame */
#define PIECES			4u	/* a stream, at least: one may be slower than the others */
#define PIECE_PUSH_PAGES	256u	/* or one unit: the next fault may lead elsewhere */
#define PIECE_SPREAD_PAGES	(SPREAD_BYTES / PAGE_BYTES)

/* Begins a new walk, without the runs that the last one found: bits may have been set since. */
static void round_begin_block(struct round *rd, unsigned int block)
{
	rd->block = block;
	rd->at = rd->cleared_end = 0;
	rd->data = (struct run) { 0, 0 };
	if (block < rd->vm->nblocks)
		round_walk_anew(rd);
}

void round_begin(struct round *rd, const struct vm *vm, struct dirty_source *s,
		 enum round_kind kind, struct hot_pages *hot, struct stripes *stripes)
{
	*rd = (struct round) {
		.vm = vm, .source = s, .kind = kind, .hot = hot, .stripes = stripes,
		.piece = PIECE_PAGES,
	};
	if (stripes)
		stripes->last = kind == ROUND_LAST;
	pthread_mutex_init(&rd->lock, NULL);
	round_begin_block(rd, 0);
}

static uint64_t round_piece_pages(const struct round *rd, uint64_t most)
{
	uint64_t pages = rd->kind == ROUND_PRECOPY ? rd->piece : PIECE_SMALL_PAGES;

	/* What has been taken is sent, even if it is written again. */
	if (rd->rewritten)
		pages = PIECE_SMALL_PAGES;
	if (rd->spread)
		pages = PIECE_SPREAD_PAGES;
	return pages < most ? pages : most;
}

void round_divide(struct round *rd, uint64_t pages, unsigned int streams)
{
	uint64_t share = pages / (streams * PIECES);

	if (share > PIECE_PAGES)
		share = PIECE_PAGES;
	rd->piece = share < PIECE_SMALL_PAGES ? PIECE_SMALL_PAGES : share;
}

void round_end(struct round *rd)
{
	/* Held pages that were not sent stay dirty: the source has reported them already. */
	if (rd->hot)
		hot_pages_release(rd->hot, rd->source);
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
	if (round_guest_runs(rd))
		atomic_store(&rd->cut, true);
}

/* At most so many dirty pages: clears them in the source first, then their bits (see source.h). */
static int round_take_dirty(struct round *rd, uint64_t most, struct run *run, struct err *e)
{
	struct dirty_source *s = rd->source;
	const uint64_t *cleared = round_cleared(rd, rd->block);
	int r = source_next_dirty(s, rd->block, rd->at, &rd->dirty, &rd->data, run, e);

	if (r <= 0)
		return r;
	if (round_guest_runs(rd) && run->first >= *cleared) {
		r = round_clear_ahead(rd, rd->block, run->first, e);
		if (r)
			return r;
	}
	if (round_guest_runs(rd) && run->count > *cleared - run->first)
		run->count = *cleared - run->first;
	if (run->count > most)
		run->count = most;
	bitmap_clear(s->map[rd->block], run->first, run->count);
	rd->at = run->first + run->count;
	rd->taken += run->count;
	return 1;
}

/* The next dirty pages that are not allocated: all other dirty pages have been taken. */
static int round_take_dirty_hole(struct round *rd, struct run *run)
{
	if (!bitmap_runs_next(&rd->dirty, rd->at, run))
		return 0;
	rd->at = run->first + run->count;
	return 1;
}

static int round_take_hole(struct round *rd, struct run *run, struct err *e)
{
	uint64_t pages = rd->vm->blocks[rd->block].pages, first = pages, count = 0;
	int r = 1;

	if (!rd->source->unmapped)
		return round_take_dirty_hole(rd, run);
	while (rd->at < pages) {
		r = rd->source->ops->next_data(rd->source, rd->block, rd->at, pages, true, &first,
					       &count, e);
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

static void round_piece_add(struct round_piece *p, const struct run *run)
{
	struct run *last = &p->runs[p->nr - 1];

	if (p->nr && last->first + last->count == run->first)
		last->count += run->count;
	else
		p->runs[p->nr++] = *run;
}

/* Puts the pages at the beginning of @rest into the piece, or leaves them to another stream. */
static int round_share(struct round *rd, unsigned int stream, struct round_piece *p, uint64_t most,
		       uint64_t *pages, struct err *e)
{
	struct run run = rd->rest;
	int mine = 1;

	if (!rd->holes && run.count > most - *pages)
		run.count = most - *pages;
	if (rd->stripes && run.first % STRIPE_PAGES + run.count > STRIPE_PAGES)
		run.count = STRIPE_PAGES - run.first % STRIPE_PAGES;
	rd->rest.first += run.count;
	rd->rest.count -= run.count;
	if (rd->stripes)
		mine = stripes_take(rd->stripes, stream, rd->block, &run, rd->holes, e);
	if (mine <= 0)
		return mine;
	*pages += run.count;
	round_piece_add(p, &run);
	return 0;
}

/* The run that is given to streams next, in this block. 1; 0: none; ROUND_WAITS; -errno. */
static int round_find_rest(struct round *rd, uint64_t most, struct err *e)
{
	int r = 1;

	if (!rd->rest.count)
		r = rd->holes ? round_take_hole(rd, &rd->rest, e) :
				round_take_dirty(rd, most, &rd->rest, e);
	if (!r || r == ROUND_WAITS)
		rd->rest.count = 0;
	return r;
}

static int round_fill_piece(struct round *rd, unsigned int stream, uint64_t most,
			    struct round_piece *p, struct err *e)
{
	uint64_t pages = 0;
	int waits = 0;

	while (p->nr < ROUND_PIECE_RUNS && (rd->holes || pages < most)) {
		int r = round_find_rest(rd, most - pages, e);

		if (!r || r == ROUND_WAITS) {
			waits = r;
			break;
		}
		if (r > 0)
			r = round_share(rd, stream, p, most, &pages, e);
		if (r < 0)
			return r;
	}
	return p->nr ? 1 : waits;
}

/* What other streams have left to this one. */
static int round_fill_waiting(struct round *rd, unsigned int stream, uint64_t most,
			      struct round_piece *p)
{
	const struct stripe_run *w = stripes_waiting(rd->stripes, stream);
	uint64_t pages = 0;

	p->nr = 0;
	if (!w)
		return 0;
	p->block = w->block;
	p->hole = w->hole;
	while (w && w->block == p->block && w->hole == p->hole && p->nr < ROUND_PIECE_RUNS &&
	       (pages < most || (p->hole && most))) {
		struct run run = w->run;

		if (rd->spread && !p->hole && run.count > most - pages)
			run.count = most - pages;
		pages += run.count;
		round_piece_add(p, &run);
		stripes_drop(rd->stripes, stream, run.count);
		w = stripes_waiting(rd->stripes, stream);
	}
	return 1;
}

/*
 * After the last block come the pages that were postponed or held back, then the holes. A late
 * round has neither: what it holds back is dirty again at its end.
 */
static void round_next_block(struct round *rd)
{
	unsigned int next = rd->block + 1;

	if (next == rd->vm->nblocks && rd->kind != ROUND_LATE) {
		if (rd->rewritten && rewritten_resume(rd->rewritten, rd->source))
			next = 0;
		else if (rd->hot && hot_pages_release(rd->hot, rd->source))
			next = 0;
		else if (rd->kind == ROUND_LAST && !rd->holes)
			next = 0, rd->holes = true;
		rd->hot = NULL;
	}
	round_begin_block(rd, next);
}

/*
 * Of a round of pre-copy, which has no holes: what waits for a stream was taken, and is dirty
 * still.
 */
static void round_put_back(struct round *rd)
{
	const struct stripe_run *w;

	if (rd->rest.count)
		bitmap_set(rd->source->map[rd->block], rd->rest.first, rd->rest.count);
	rd->taken -= rd->rest.count;
	rd->rest.count = 0;
	for (unsigned int i = 0; rd->stripes && i < WIRE_STREAMS_MAX; i++)
		while ((w = stripes_waiting(rd->stripes, i))) {
			bitmap_set(rd->source->map[w->block], w->run.first, w->run.count);
			rd->taken -= w->run.count;
			stripes_drop(rd->stripes, i, w->run.count);
		}
}

/* The pages that are held back, or wait, stay dirty. */
static void round_stop(struct round *rd)
{
	round_put_back(rd);
	if (rd->hot)
		hot_pages_release(rd->hot, rd->source);
	rd->hot = NULL;
	rd->block = rd->vm->nblocks;
}

void round_drop(struct round *rd)
{
	pthread_mutex_lock(&rd->lock);
	round_stop(rd);
	pthread_mutex_unlock(&rd->lock);
}

/* most 0: finds the next run, and leaves it there. */
static int round_walk(struct round *rd, unsigned int stream, uint64_t most, struct round_piece *p,
		      struct err *e)
{
	int r = 0;

	while (rd->block < rd->vm->nblocks) {
		p->nr = 0;
		p->block = rd->block;
		p->hole = rd->holes;
		r = most ? round_fill_piece(rd, stream, most, p, e) :
			   round_find_rest(rd, round_piece_pages(rd, UINT64_MAX), e);
		if (r)
			break;
		round_next_block(rd);
	}
	return r;
}

static int round_take_locked(struct round *rd, unsigned int stream, uint64_t most,
			     struct round_piece *p, struct err *e)
{
	int r = 0;

	if (rd->rewritten && most)
		r = round_watch_ahead(rd, e);
	if (!r && rd->stripes)
		r = round_fill_waiting(rd, stream, most, p);
	if (!r)
		r = round_walk(rd, stream, most, p, e);
	/* The walk may have left pages to this stream, but for itself it takes them at once. */
	if (!r && most && rd->stripes) {
		r = stripes_steal(rd->stripes, stream, e);
		if (r > 0)
			r = round_fill_waiting(rd, stream, most, p);
	}
	return r == 1 && !most ? ROUND_WAITS : r;
}

/* The source's maps mean nothing any more. */
static int round_take_push(struct round *rd, struct round_piece *p)
{
	struct wire_extent x;

	if (!push_take(rd->push, PIECE_PUSH_PAGES, &x))
		return 0;
	p->block = x.block;
	p->hole = false;
	p->nr = 1;
	p->runs[0] = (struct run) { x.first, x.pages };
	pthread_mutex_lock(&rd->lock);
	rd->taken += x.pages;
	pthread_mutex_unlock(&rd->lock);
	return 1;
}

int round_take(struct round *rd, unsigned int stream, uint64_t most, struct round_piece *p,
	       struct err *e)
{
	int r;

	if (rd->kind == ROUND_PUSH)
		return round_take_push(rd, p);
	pthread_mutex_lock(&rd->lock);
	if (atomic_load(&rd->cut))
		round_stop(rd);
	r = round_take_locked(rd, stream, round_piece_pages(rd, most), p, e);
	pthread_mutex_unlock(&rd->lock);
	return r;
}

bool round_waits(struct round *rd)
{
	bool waits = false;

	pthread_mutex_lock(&rd->lock);
	for (unsigned int i = 0; rd->stripes && i < WIRE_STREAMS_MAX; i++)
		waits |= stripes_waiting(rd->stripes, i) != NULL;
	pthread_mutex_unlock(&rd->lock);
	return waits;
}
