/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages that are written all the time. What is sent of them early in a round is stale before its end, so they are sent
 * last: all writes until then go with them. A page is hot in a round when the harvest before the last one found it, too.
 */
#ifndef GODWIT_HOT_H
#define GODWIT_HOT_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "source/source.h"

/**
 * struct hot - for each block, one bit a page
 * @before: what was written by the harvest before
 * @held: taken out of the source's map until hot_release()
 */
struct hot {
	const struct vm *vm;
	uint64_t *before[WIRE_BLOCKS_MAX];
	uint64_t *held[WIRE_BLOCKS_MAX];
};

/* GW_INTERNAL: no memory. */
int hot_init(struct hot *h, const struct vm *vm, struct err *e);
void hot_free(struct hot *h);	/* zeros are fine */
/* After a harvest, before its round: hot pages leave the source's map. */
void hot_hold(struct hot *h, struct dirty_source *s);
/* They are back. true: there were any. */
bool hot_release(struct hot *h, struct dirty_source *s);

#endif
