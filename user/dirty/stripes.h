/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which stream sends what, so that rounds need not wait for each other.
 *
 * TCP keeps the order of a stream's bytes, and of no two streams. If a page went out on stream 1 in
 * round 4, and again on stream 2 in round 5 while the receiver still lacks bytes of round 4, the
 * older content could be placed last. So RAM is divided into stripes of STRIPE_PAGES pages, and
 *
 *	a stripe that a round has sent belongs to the stream that sent it until the receiver has
 *	acknowledged that round, and no other stream sends any page of it.
 *
 * Before that and after it any stream may take it: the streams share the work as it comes, and a
 * slow one holds nothing for longer than it takes to deliver. What a stream finds that belongs to
 * another one it leaves in that one's queue.
 *
 * The ACK of a round says that every stream has delivered that round to its end, so of a stripe
 * that was last sent in it, or before it, nothing is under way. Within a round a stripe belongs to
 * one stream from its first page on, also its holes. In the last round each page goes once and
 * nothing follows it, so there a stripe of which nothing is under way belongs to no stream.
 */
#ifndef GODWIT_STRIPES_H
#define GODWIT_STRIPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "codec/delta.h"
#include "page/page.h"
#include "vmm/vm.h"
#include "wire/wire.h"

#define STRIPE_PAGES	64u	/* one frame; 4 bytes of memory each, 16 KiB a GiB of guest RAM */

/**
 * struct stripe - which stream sends it
 * @round: in which round that stream has, or will have, sent of it last; 0: none
 */
struct stripe {
	uint32_t round : 28;
	uint32_t stream : 4;
};

/**
 * struct stripe_run - pages of one stripe that wait for the stream that it belongs to
 * @bound: the round for which it belongs to that stream: once that is acknowledged, nothing of the
 *	stripe is under way
 * @hole: see struct round_piece
 */
struct stripe_run {
	struct run run;
	unsigned int block;
	uint32_t bound;
	bool hole;
};

struct stripe_queue {
	struct stripe_run *runs;
	size_t first, end, room;
};

/**
 * struct stripes - not locked, but for @acked: the round that takes from it is (round.h)
 * @round: the number of the round under way, from 1 on
 * @acked: the latest round that the receiver has acknowledged
 * @last: that is the last one (round_begin() says so): none follows, so it binds no stripe to a
 *	stream
 */
struct stripes {
	const struct vm *vm;
	struct stripe *block[WIRE_BLOCKS_MAX];
	struct stripe_queue queue[WIRE_STREAMS_MAX];
	uint32_t round;
	bool last;
	atomic_uint acked;
};

/* GW_INTERNAL: no memory. stripes_free() also then, and a struct of zeros is fine for it. */
int stripes_init(struct stripes *s, const struct vm *vm, struct err *e);
void stripes_free(struct stripes *s);
/*
 * These pages, all of one stripe, are to be sent in this round, and this stream has found them.
 * Return: 1: it is to send them, and no other stream sends anything of the stripe in this round; 0:
 * they wait for the stream that the stripe belongs to. GW_INTERNAL: no memory.
 */
int stripes_take(struct stripes *s, unsigned int stream, unsigned int block, const struct run *run,
		 bool hole, struct err *e);
/* The first pages that wait for this stream. NULL: there are none. */
const struct stripe_run *stripes_waiting(const struct stripes *s, unsigned int stream);
/* Drops so many of them from the front: they are sent, or put back. */
void stripes_drop(struct stripes *s, unsigned int stream, uint64_t pages);
/*
 * For a stream that has nothing left to do: lets some of what waits for another stream wait for
 * this one, if it has become free. 1, 0: there is nothing; GW_INTERNAL: no memory.
 */
int stripes_steal(struct stripes *s, unsigned int stream, struct err *e);
/**
 * stripes_lost() - all connections are gone: marks again what may have been lost with them
 * @delta: forgets what was sent of that; may be NULL
 * @stands: the latest round that the receiver has completely. It reads none of the old connections
 *	any more
 * @map: the source's; no round is under way, and what was taken and not given to a stream is in it
 *	again (round_drop())
 *
 * A page whose bit was cleared was given to a stream by stripes_take(), which noted the round in
 * the page's stripe, and a note is never of an older round than the one before. So of a stripe
 * whose note is not later than @stands no page was sent after that round, and the receiver has the
 * newest bytes of all of it: each stream's end of that round came behind them. Of any other stripe
 * any page may be lost, wholly or in part, and is marked, those that were not sent as well: that
 * costs some bytes, and a page too few costs the guest. It does not matter whether the receiver has
 * got some of them: what the next round brings is newer, and nothing old follows it.
 *
 * Afterwards no stripe belongs to a stream, as nothing is under way. A later call with the same
 * @stands, as no round was completed since, marks what was sent in between. What the first call has
 * marked was sent since, or is marked still.
 *
 * So it is with @delta: it has hashes of bytes that the receiver has, or, of a stripe that is
 * marked, none. The marked pages go whole.
 */
void stripes_lost(struct stripes *s, struct delta *delta, uint32_t stands, uint64_t *const *map);

#endif
