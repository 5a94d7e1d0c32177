/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages that the guest writes all the time. A copy that is sent early in a round is stale before
 * the round ends, so hot pages are sent last: all writes until then go with them. A page is hot in
 * a round when both the last harvest and the one before it found it dirty.
 */
#ifndef GODWIT_HOT_PAGES_H
#define GODWIT_HOT_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

/**
 * struct hot_pages - for each block, one bit a page
 * @before: the pages that the harvest before found dirty
 * @held: taken out of the source's map until hot_pages_release()
 */
struct hot_pages {
	const struct vm *vm;
	uint64_t *before[WIRE_BLOCKS_MAX];
	uint64_t *held[WIRE_BLOCKS_MAX];
};

/* GW_INTERNAL: no memory. */
int hot_pages_init(struct hot_pages *h, const struct vm *vm, struct err *e);
void hot_pages_free(struct hot_pages *h);	/* a struct of zeros is fine */
/* After a harvest, before its round: takes hot pages out of the source's map. */
void hot_pages_hold(struct hot_pages *h, struct dirty_source *s);
/* Puts them back into the map. true: there were any. */
bool hot_pages_release(struct hot_pages *h, struct dirty_source *s);

#endif
