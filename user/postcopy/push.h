/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order in which the source pushes what it owes: from the last faults on. A guest that has
 * just touched a page mostly touches its neighbours next, so each fault begins a *trail*: from the
 * beginning of its stripe forward. Streams take turns of the newest trail first, then of the
 * others, in the order of their age; a fault on a trail, or near its head, moves that head there
 * and makes the trail the newest. Where no trail leads, the pages go in the order of addresses.
 */
#ifndef GODWIT_PUSH_H
#define GODWIT_PUSH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "postcopy/owed.h"

#define PUSH_TRAILS	8u
#define PUSH_STRIPE	64u	/* pages: a trail begins at a multiple of these */
#define PUSH_NEAR	512u	/* pages: so far ahead of a trail a fault belongs to it */
#define PUSH_TURN	256u	/* pages that one trail gives before the next has its turn */

/* @at: the unit from which on it goes */
struct push_trail {
	unsigned int block;
	uint64_t at;
};

/**
 * struct push - one for the source
 * @owed: the same at both ends; here a unit is taken when it is pushed, or has been asked for
 * @lock: protects what follows
 * @trail: the newest first, @nr of them
 * @turn: whose turn it is; @given: pages of it so far
 * @block, @at: where the order of addresses is
 * @over: nothing more is to be pushed
 */
struct push {
	struct owed *owed;
	pthread_mutex_t lock;
	struct push_trail trail[PUSH_TRAILS];
	unsigned int nr, turn;
	uint64_t given;
	unsigned int block;
	uint64_t at;
	bool over;
};

void push_init(struct push *p, struct owed *owed);
void push_free(struct push *p);
/* A fault waits for this unit, which is answered by another path. */
void push_fault(struct push *p, unsigned int block, uint64_t unit);
/* The destination needs no more. */
void push_stop(struct push *p);
/*
 * Takes the next units to push, one after the other, of at most so many pages, but one unit at
 * least: *x is all of their pages. false: nothing is left to push.
 */
bool push_take(struct push *p, uint32_t pages, struct wire_extent *x);

#endif
