/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of a round share. All of it under its lock. */
#ifndef GODWIT_ROUND_INTERNAL_H
#define GODWIT_ROUND_INTERNAL_H

#include "round/round.h"

/* A new walk over the block's map: bits have changed that the last one had found. */
void round_walk_anew(struct round *rd);
/* The dirty pages of a block below it have been cleared in the source. */
uint64_t *round_cleared(struct round *rd, unsigned int block);
/*
 * Clears in the source the pages that are read next. The fewer they are, the fewer of them the
 * guest writes again before they are read. ROUND_WAITS: not now.
 */
int round_clear_ahead(struct round *rd, unsigned int block, uint64_t first, struct err *e);
/*
 * With @rewritten it is to be found before a page is read whether the guest has written it again:
 * clears some more of the pages ahead, as long as they are not too many.
 */
int round_watch_ahead(struct round *rd, struct err *e);

#endif
