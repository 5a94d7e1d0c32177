// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "dirty/stripes.h"

static_assert(STRIPE_PAGES == DELTA_STRIPE_PAGES, "a stripe's hashes have one writer");

#define STEAL_STRIPES	16u	/* at a time: 4 MiB */

int stripes_init(struct stripes *s, const struct vm *vm, struct err *e)
{
	*s = (struct stripes) { .vm = vm };
	for (unsigned int b = 0; b < vm->nblocks; b++) {
		s->block[b] = calloc(vm->blocks[b].pages / STRIPE_PAGES + 1, sizeof(*s->block[b]));
		if (!s->block[b])
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return 0;
}

void stripes_free(struct stripes *s)
{
	for (unsigned int b = 0; s->vm && b < s->vm->nblocks; b++)
		free(s->block[b]);
	for (unsigned int i = 0; i < WIRE_STREAMS_MAX; i++)
		free(s->queue[i].runs);
	*s = (struct stripes) { .vm = NULL };
}

static struct stripe *stripes_of(const struct stripes *s, unsigned int block, uint64_t page)
{
	return &s->block[block][page / STRIPE_PAGES];
}

static int stripes_queue(struct stripe_queue *q, const struct stripe_run *run, struct err *e)
{
	if (q->first == q->end)
		q->first = q->end = 0;
	if (q->end == q->room) {
		size_t room = q->room ? 2 * q->room : 256;
		struct stripe_run *runs = realloc(q->runs, room * sizeof(*runs));

		if (!runs)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		q->runs = runs;
		q->room = room;
	}
	q->runs[q->end++] = *run;
	return 0;
}

/* Nothing of it is under way that the receiver has not got, or on this stream only. */
static bool stripes_may(const struct stripes *s, const struct stripe *st, unsigned int stream)
{
	return st->round <= atomic_load(&s->acked) || st->stream == stream;
}

int stripes_take(struct stripes *s, unsigned int stream, unsigned int block, const struct run *run,
		 bool hole, struct err *e)
{
	struct stripe *st = stripes_of(s, block, run->first);
	struct stripe_run waits = { .run = *run, .block = block, .bound = st->round, .hole = hole };
	bool mine = stripes_may(s, st, stream);

	if (mine && s->last)
		return 1;
	/*
	 * The other one's in this round, too: no stream may send of it before or beside that one.
	 */
	st->round = s->round;
	if (mine)
		st->stream = stream & 0xf;
	return mine ? 1 : stripes_queue(&s->queue[st->stream], &waits, e);
}

const struct stripe_run *stripes_waiting(const struct stripes *s, unsigned int stream)
{
	const struct stripe_queue *q = &s->queue[stream];

	return q->first < q->end ? &q->runs[q->first] : NULL;
}

void stripes_drop(struct stripes *s, unsigned int stream, uint64_t pages)
{
	struct stripe_queue *q = &s->queue[stream];
	struct run *run = &q->runs[q->first].run;

	run->first += pages;
	run->count -= pages;
	if (!run->count)
		q->first++;
}

/*
 * A stripe goes with all that waits of it, and only if the other stream has sent nothing of it in
 * this round: then what waits first has the round before as @bound.
 */
static int stripes_steal_from(struct stripes *s, unsigned int other, unsigned int stream,
			      struct err *e)
{
	struct stripe_queue *q = &s->queue[other];
	unsigned int stolen = 0;
	size_t kept = q->first;
	int r = 0;

	for (size_t i = q->first; i < q->end; i++) {
		const struct stripe_run run = q->runs[i];
		struct stripe *st = stripes_of(s, run.block, run.run.first);

		if (!r && st->stream != stream && run.bound <= atomic_load(&s->acked) &&
		    stolen < STEAL_STRIPES) {
			st->stream = stream & 0xf;
			stolen++;
		}
		if (!r && st->stream == stream)
			r = stripes_queue(&s->queue[stream], &run, e);
		else
			q->runs[kept++] = run;
	}
	q->end = kept;
	return r ? r : stolen > 0;
}

int stripes_steal(struct stripes *s, unsigned int stream, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < WIRE_STREAMS_MAX && !r; i++)
		if (i != stream)
			r = stripes_steal_from(s, i, stream, e);
	return r;
}

static void stripes_lost_of(struct stripes *s, struct delta *delta, unsigned int block,
			    uint32_t stands, uint64_t *map)
{
	const uint64_t pages = s->vm->blocks[block].pages;

	for (uint64_t first = 0; first < pages; first += STRIPE_PAGES) {
		struct stripe *st = stripes_of(s, block, first);
		uint64_t left = pages - first;

		if (left > STRIPE_PAGES)
			left = STRIPE_PAGES;
		if (st->round > stands)
			bitmap_set(map, first, left);
		if (st->round > stands && delta)
			delta_forget(delta, block, first, left);
		*st = (struct stripe) { .round = 0 };
	}
}

void stripes_lost(struct stripes *s, struct delta *delta, uint32_t stands, uint64_t *const *map)
{
	for (unsigned int b = 0; b < s->vm->nblocks; b++)
		stripes_lost_of(s, delta, b, stands, map[b]);
}
