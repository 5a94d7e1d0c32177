/* SPDX-License-Identifier: GPL-2.0-only */
/* One round: every page that is dirty and allocated, in pieces, for the streams that take them. */
#ifndef GODWIT_ROUND_H
#define GODWIT_ROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "dirty/hot_pages.h"
#include "dirty/rewritten.h"
#include "dirty/source.h"
#include "dirty/stripes.h"
#include "page/page.h"
#include "postcopy/push.h"

#define ROUND_PIECE_RUNS	64u
#define ROUND_WAITS		2
/*
 * What a stream takes at once on a long link. With headers, and the end of the round behind it, it
 * fits into TCP's first window.
 */
#define SPREAD_BYTES		(12u << 10)
/* 64 MiB: cleared, then read. Of more, some pages would be dirty again before they are read. */
#define CLEAR_PAGES		16384u

/**
 * struct round_piece - pages of one block for the stream that has taken them to send
 * @hole: the pages are not allocated: the stream sends zeros, and must not read them
 */
struct round_piece {
	unsigned int block;
	bool hole;
	unsigned int nr;
	struct run runs[ROUND_PIECE_RUNS];
};

/**
 * enum round_kind - what kind of round
 * @ROUND_PRECOPY: the guest runs. Pages are cleared in the source just before they are read, and
 *	hot pages come last
 * @ROUND_LATE: the guest runs, and is stopped any moment (late_rounds.c). As @ROUND_PRECOPY, but
 *	the hot pages stay dirty, and the pieces are small, as the stop waits for those under way
 * @ROUND_LAST: the guest is stopped. The pieces are small, so that no stream idles while another
 *	one is busy. Holes follow the pages. A hole that is punched (a balloon) is in the ledger
 *	when its pages are unmapped, which is before they read as zeros: if a round has read them
 *	in between, the destination has their old content, and would keep it. So if @unmapped is
 *	set in the source, the round takes all holes, and walks the file for them (10 ms/GiB); else
 *	it takes the dirty pages that are not allocated
 * @ROUND_PUSH: the guest runs at the destination: what is owed, in the order of @push
 */
enum round_kind { ROUND_PRECOPY, ROUND_LATE, ROUND_LAST, ROUND_PUSH };

/**
 * struct round - opaque to all but round.c
 * @cut: no page is taken any more; not under @lock
 * @lock: protects all that follows, the source's maps and the calls of its functions
 * @hot: holds pages back; NULL: none, or they have been released. In a late round until its end
 * @holes: all dirty pages have been taken, and the holes follow
 * @block: the block of which the next piece is taken
 * @at: below it, nothing in @block is left to take
 * @dirty: the walk over the block's map. Only the thread that takes pages clears bits there. Bits
 *	that are set behind the walk are for the next round, and in the last round none are set
 * @data: the last run of allocated pages that the source has found
 * @rewritten: what the guest writes again is left out, and @hot is NULL; NULL: it is sent. Set
 *	before any stream takes of it
 * @stripes: which stream may send what; NULL: any stream all
 * @rest: pages of @block that have been taken, and are still to be given to a stream
 * @cleared_end: the dirty pages of @block below it have been cleared in the source
 * @piece: pages at once, in pre-copy: round_divide()
 * @taken: dirty pages that have been taken
 * @spread: the pieces are of a few pages, and a stream takes no more than its window has room for:
 *	over a long link what a stream cannot send at once waits for a round trip or more, while the
 *	windows of other streams are open. Set before any stream takes of it
 */
struct round {
	const struct vm *vm;
	struct dirty_source *source;
	enum round_kind kind;
	atomic_bool cut;
	pthread_mutex_t lock;
	struct hot_pages *hot;
	bool holes;
	unsigned int block;
	uint64_t at;
	struct bitmap_runs dirty;
	struct run data;
	struct rewritten *rewritten;
	struct stripes *stripes;
	struct run rest;
	uint64_t cleared_end;
	uint64_t piece;
	uint64_t taken;
	bool spread;
	struct push *push;
};

void round_begin(struct round *rd, const struct vm *vm, struct dirty_source *s,
		 enum round_kind kind, struct hot_pages *hot, struct stripes *stripes);
void round_end(struct round *rd);
/*
 * What a stream takes at once in pre-copy, if the round has so many pages: with few of them, as of
 * a guest that writes in one place only, no stream takes all while others have nothing to do.
 * Before any stream takes of it.
 */
void round_divide(struct round *rd, uint64_t pages, unsigned int streams);
/* How many dirty pages have been taken so far. */
uint64_t round_taken(struct round *rd);
/*
 * Cuts a round that goes while the guest runs: pages that no stream has taken yet stay dirty, for a
 * later round. The last round is never cut. Any thread, at any time.
 */
void round_cut(struct round *rd);
/*
 * With @rewritten, while the streams send: asks the source what was written, and leaves it out from
 * now on. The harvest's errors: nothing is lost by them.
 */
int round_look(struct round *rd, struct err *e);
/*
 * The streams have failed while the guest runs, and take no more: what was taken and given to
 * none of them is dirty again. What they got may be lost as well: stripes_lost().
 */
void round_drop(struct round *rd);
/**
 * round_take() - take the next piece for a stream, from any thread. No page is in two pieces
 * @most: so many pages at most that are not holes. 0: none, but is anything left?
 * Return: 1, 0 when nothing is left, ROUND_WAITS when something is, and nothing may be cleared in
 * the source now (its lease is over) or @most is 0: try again soon; or -errno. The pages are
 * cleared, in its map and, in pre-copy, before that in the source: the caller may read them from
 * now on, not before.
 */
int round_take(struct round *rd, unsigned int stream, uint64_t most, struct round_piece *p,
	       struct err *e);

/* Does the guest run in it? Then it goes on writing, and pages are cleared in the source. */
static inline bool round_guest_runs(const struct round *rd)
{
	return rd->kind == ROUND_PRECOPY || rd->kind == ROUND_LATE;
}

/* Does anything wait for a stream? Another one may take it once an ACK has made it free. */
bool round_waits(struct round *rd);

#endif
