/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The frames of post-copy, with the feature WIRE_POSTCOPY. docs/architecture/postcopy.md has the
 * argument why no page is lost, old, or zeros.
 *
 *	sender                     receiver
 *	POSTCOPY ----------------> behind BLOCKS: may pages be owed here?
 *	      <------------------- POSTCOPY behind READY: the unit of each block; or CANNOT: no,
 *				   and why. The sender may go on without post-copy, or give up
 *	STREAMS -----------------> one more than there are streams: the last to JOIN is the request
 *				   connection
 *	SWITCHOVER (WIRE_OWING) -> the last round will leave pages owed
 *	      <------------------- SWITCHOVER
 *
 * With WIRE_EARLY the sender may go on, as often as it likes, before it stops the guest, with
 *
 *	OWED, OWED, ... ---------> on the control connection: what is likely to be owed, and worth
 *				   nothing at the receiver, as the guest has changed it since
 *	SWITCHOVER (WIRE_OWING) ->
 *	      <------------------- SWITCHOVER all of that is taken away
 *
 * and on the streams, in the last round: OWED, each page once. What is owed are whole units; zeros
 * that RAM frames of that round bring for pages of them do not count. When each stream has ended
 * the last round the receiver takes the old bytes away. From then on each stream may bring RAM,
 * PACKED (not DELTA, as no page is there to change) and DEVICE, in any order, of owed pages only;
 * and the request connection:
 *
 *	      <------------------- WANT     units that a fault waits for
 *	RAM ---------------------> their pages: at once, whatever is pushed
 *
 * The pages of a unit come one after the other, in frames between which no other pages come on
 * that connection. The sender pushes each unit on one stream, once, and says ROUND, with the number
 * after the last, when that stream pushes no more; a unit that is asked for as well goes on the
 * request connection, too. The receiver asks for a unit once, and for WIRE_WANTED_MAX at a time at
 * most. All else is a protocol error. Then:
 *
 *	      <------------------- RESUMED
 *	DONE --------------------> the sender knows that; it goes on answering PINGs
 *	      <------------------- FAULTS   what the guest has waited for so far: once a second, and
 *				   before
 *	      <------------------- COMPLETE nothing is owed any more
 *	DONE -------------------->
 *
 * If the link is lost after DEVICE_END, and the guest runs, the sender connects again, as long as
 * it takes. The RAM of the source is at rest, so any page of it may be sent any number of times:
 *
 *	HELLO, RECOVER, BLOCKS --> the same RAM
 *	      <------------------- POSTCOPY, OWED, OWED, ...: all that is missing
 *	      <------------------- RECOVER; or COMPLETE: nothing is; or ABORT with GW_GUEST_LOST:
 *				   the QEMU there has exited
 *	STREAMS -----------------> as before, and on with what is owed
 */
#ifndef GODWIT_WIRE_OWED_H
#define GODWIT_WIRE_OWED_H

#include "wire/extent.h"
#include "wire/wire.h"

#define WIRE_UNIT	4	/* bytes of a unit's size */
#define WIRE_FAULTS_BYTES	48
#define WIRE_UNIT_MAX	(1u << 18)	/* pages: 1 GiB */
#define WIRE_OWED_WORDS	8192u	/* 64-bit words of one OWED frame */
#define WIRE_WANT_MAX	64u	/* units in one WANT frame */
#define WIRE_WANTED_MAX	256u	/* units that are asked for at a time */

/*
 * @WIRE_POSTCOPY_ASK: arg 0, no body; of the receiver arg blocks, body: 4 bytes a block, the pages
 *	of a unit: a power of two, WIRE_UNIT_MAX at most
 * @WIRE_CANNOT: as ABORT
 * @WIRE_OWED: arg words; body: one extent: WIRE_ZERO: all of its pages are owed, and there are no
 *	words; WIRE_DATA: those whose bits are set in the words, bit n % 64 of word n / 64 for the
 *	n-th of them; bits behind the extent are 0
 * @WIRE_WANT: arg units; body: an extent of WIRE_DATA for each, one unit long (less at the end of
 *	a block)
 * @WIRE_COMPLETE: no body
 * @WIRE_FAULTS: arg 0, body: struct wire_faults, 8 bytes each
 * @WIRE_RECOVER: arg the number of the latest round that the sender has begun, body: the token; of
 *	the receiver arg how many streams may join, body: the secret for JOIN, as READY's
 */

/**
 * struct wire_faults - of all receivers of this migration that the last one knows of
 * @seen: page faults; @zeros: of these, of pages that were not owed; @asked: units that the sender
 *	was asked for
 * @mean_ns, @p99_ns, @worst_ns: how long these took to come
 */
struct wire_faults {
	uint64_t seen, zeros, asked, mean_ns, p99_ns, worst_ns;
};

/* The decoders: as in wire.h. body is all of the frame's. */
int wire_get_units(const struct wire_header *h, const uint8_t *body, uint32_t *unit,
		   unsigned int blocks);
void wire_put_faults(uint8_t body[WIRE_FAULTS_BYTES], const struct wire_faults *f);
void wire_get_faults(const uint8_t body[WIRE_FAULTS_BYTES], struct wire_faults *f);
void wire_put_units(uint8_t *body, const uint32_t *unit, unsigned int blocks);
/* *words: the first of them, in body; NULL: there are none. -ERANGE: wire_extent_check(). */
int wire_get_owed(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		  unsigned int blocks, struct wire_extent *x, const uint8_t **words);
/* h->arg extents. unit: of each block. */
int wire_get_want(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		  const uint32_t *unit, unsigned int blocks, struct wire_extent *x);

#endif
