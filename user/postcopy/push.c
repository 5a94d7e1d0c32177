// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "postcopy/push.h"

void push_init(struct push *p, struct owed *owed)
{
	*p = (struct push) { .owed = owed };
	pthread_mutex_init(&p->lock, NULL);
}

void push_free(struct push *p)
{
	pthread_mutex_destroy(&p->lock);
}

/* So many pages, in units of that block; at least 1. */
static uint64_t push_units(const struct push *p, unsigned int block, uint32_t pages)
{
	uint32_t unit = p->owed->block[block].unit;

	return pages > unit ? pages / unit : 1;
}

/* The trail that this unit is on, or shortly ahead of, or just behind. PUSH_TRAILS: none. */
static unsigned int push_trail_of(const struct push *p, unsigned int block, uint64_t unit)
{
	uint64_t near = push_units(p, block, PUSH_NEAR), back = push_units(p, block, PUSH_STRIPE);

	for (unsigned int i = 0; i < p->nr; i++) {
		const struct push_trail *t = &p->trail[i];

		if (t->block == block && unit + back >= t->at && unit < t->at + near)
			return i;
	}
	return PUSH_TRAILS;
}

void push_fault(struct push *p, unsigned int block, uint64_t unit)
{
	struct push_trail newest = { .block = block, .at = unit };
	unsigned int i;

	newest.at -= unit % push_units(p, block, PUSH_STRIPE);
	pthread_mutex_lock(&p->lock);
	i = push_trail_of(p, block, unit);
	/* The oldest one is forgotten. */
	if (i == PUSH_TRAILS)
		i = p->nr < PUSH_TRAILS ? p->nr++ : PUSH_TRAILS - 1;
	memmove(&p->trail[1], &p->trail[0], i * sizeof(p->trail[0]));
	p->trail[0] = newest;
	p->turn = 0;
	p->given = 0;
	pthread_mutex_unlock(&p->lock);
}

/* Takes what it can from [*at, end of the block); *at becomes the place to go on. */
static bool push_take_from(struct push *p, unsigned int block, uint64_t *at, uint32_t pages,
			   struct wire_extent *x)
{
	const struct owed_block *b = &p->owed->block[block];
	uint64_t most = push_units(p, block, pages), from;

	while ((from = owed_next(p->owed, block, *at, b->units)) < b->units) {
		uint64_t to = from;

		/* What was asked for in between is another's. */
		while (to < b->units && to - from < most &&
		       owed_take(p->owed, block, to) == OWED_MINE)
			to++;
		*at = to > from ? to : from + 1;
		if (to == from)
			continue;
		*x = owed_extent(p->owed, block, to - 1);
		x->pages += (uint32_t)(x->first - from * b->unit);
		x->first = from * b->unit;
		return true;
	}
	return false;
}

static void push_next_turn(struct push *p)
{
	p->turn = p->nr ? (p->turn + 1) % p->nr : 0;
	p->given = 0;
}

static bool push_take_trail(struct push *p, uint32_t pages, struct wire_extent *x)
{
	while (p->nr) {
		struct push_trail *t = &p->trail[p->turn];

		if (push_take_from(p, t->block, &t->at, pages, x)) {
			p->given += x->pages;
			if (p->given >= PUSH_TURN)
				push_next_turn(p);
			return true;
		}
		/* It has come to the end of its block. */
		p->nr--;
		memmove(t, t + 1, (p->nr - p->turn) * sizeof(*t));
		if (p->turn >= p->nr)
			p->turn = 0;
		p->given = 0;
	}
	return false;
}

void push_stop(struct push *p)
{
	pthread_mutex_lock(&p->lock);
	p->over = true;
	pthread_mutex_unlock(&p->lock);
}

bool push_take(struct push *p, uint32_t pages, struct wire_extent *x)
{
	bool took;

	pthread_mutex_lock(&p->lock);
	took = !p->over && push_take_trail(p, pages, x);
	while (!took && !p->over && p->block < p->owed->blocks) {
		took = push_take_from(p, p->block, &p->at, pages, x);
		if (!took) {
			p->block++;
			p->at = 0;
		}
	}
	pthread_mutex_unlock(&p->lock);
	return took;
}
