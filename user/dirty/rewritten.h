/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the guest writes again before a round has come to it. Where post-copy follows the round
 * anyway, such a page goes after the guest, whether the round has sent it or not: so the round
 * leaves it out. The log is told of writes far ahead of where the round reads, and is asked again
 * and again while the round goes on.
 *
 * No write is missed by that. A page leaves the source's map in two ways only: a stream takes it,
 * as in any round; or it is held here, and comes back into the map when the round is over. And
 * whatever a harvest finds of pages that the log was told of in this round is held: what was
 * written since. It does not matter how long ago the page was cleared in the log when it is read:
 * what is written after the clear is found, now or by the harvest behind the round. Nor does a page
 * that is held matter, which is not cleared again: the log finds it again and again.
 *
 * A guest that has written some pages of a piece of RAM writes others there soon. So what is left
 * of such a piece is postponed: it comes back into the map when the round has nothing else to send,
 * and by then most of it is held. That changes the order in which pages are read, and nothing else.
 */
#ifndef GODWIT_REWRITTEN_H
#define GODWIT_REWRITTEN_H

#include "base/err.h"
#include "dirty/source.h"

/**
 * struct rewritten - of one round, over all of its parts
 * @cleared: of each block, the pages below it were cleared in the source for this round: a multiple
 *	of 64, or all
 * @held: of each block, a bit a page: taken out of the source's map until rewritten_release()
 * @postponed: of each block, a bit a page: cleared and not sent; out of the source's map until
 *	rewritten_resume() or rewritten_release()
 * @postpones: there may be such pages
 * @ahead: the map, while a harvest writes another
 * @left_out: pages that were still to be sent, and are held
 */
struct rewritten {
	const struct vm *vm;
	uint64_t cleared[WIRE_BLOCKS_MAX];
	uint64_t *held[WIRE_BLOCKS_MAX];
	uint64_t *postponed[WIRE_BLOCKS_MAX];
	bool postpones;
	uint64_t *ahead[WIRE_BLOCKS_MAX];
	uint64_t left_out;
};

/* GW_INTERNAL: no memory. */
int rewritten_init(struct rewritten *w, const struct vm *vm, struct err *e);
void rewritten_free(struct rewritten *w);	/* a struct of zeros is fine */
/*
 * A harvest: holds what was written since it was cleared. No page is taken or cleared meanwhile;
 * afterwards a walk over the map begins anew. An error is the harvest's, and loses nothing.
 */
int rewritten_find(struct rewritten *w, struct dirty_source *s, struct err *e);
/*
 * Nothing else is left to send: what was postponed is in the map again, without what no walk takes
 * (holes), which would be looked for again each time: that is held. true: there was some.
 */
bool rewritten_resume(struct rewritten *w, struct dirty_source *s);
/* The round is over: what was held or postponed is dirty, and nothing is cleared for another. */
void rewritten_release(struct rewritten *w, struct dirty_source *s);

#endif
