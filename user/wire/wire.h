/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wire protocol, version 6. This header is its specification; wire/extent.h has how pages lie
 * in frames, wire/blocks.h how RAM blocks do, and wire/owed.h and wire/reuse.h have two features.
 *
 * One TCP connection, the control connection, carries frames in both directions. One to
 * WIRE_STREAMS_MAX more, the streams, carry guest RAM from the sender to the receiver, and behind
 * it the device state: TCP has their windows open at the switchover, while that of the control
 * connection, which had little to carry, would open in some round trips only. A frame is a 24-byte
 * header and a body of `length` bytes. All numbers are little-endian. A page is 4 KiB, whatever
 * page size either host maps the RAM with. RAM is addressed by block (the index in the sender's
 * BLOCKS table) and page within the block; the block's address in the guest travels only to be
 * compared, host addresses never.
 *
 *	sender                     receiver
 *	HELLO -------------------> compares magic and version first, then the features, see below
 *	      <------------------- HELLO
 *	ASK_VIEW ----------------> what does a guest see there? The sender compares
 *	      <------------------- VIEW, VIEW, ...
 *	PRIVATE_BLOCKS ----------> only if the sender can use save mode, see below
 *	BLOCKS ------------------> names and sizes must match the receiver's
 *	      <------------------- PONG     with WIRE_EMPTIES, while the receiver empties its RAM
 *	      <------------------- READY    its RAM is empty, QEMU waits; a secret, how many streams
 *	STREAMS -----------------> how many connections to the same address will come, or wait at
 *	                           its listener since BLOCKS
 *	      <------------------- STREAMS  all of them have joined
 *	PING  -------------------> clock comparison, several times; later, a sign of life
 *	      <------------------- PONG     also without a PING, while a round still comes in
 *	ROUND -------------------> one round of pre-copy has been sent
 *	ROUND -------------------> the next one; the sender does not wait
 *	      <------------------- ACK      all of that round is in place
 *	...
 *	SWITCHOVER --------------> the guest may be stopped soon: see below
 *	      <------------------- SWITCHOVER
 *	ROUND (WIRE_ROUND_LAST) -> the VM is stopped, this was the rest; it has no ACK
 *	COMMIT ------------------> from here on the receiver writes no RAM
 *	DEVICE_END --------------> WIRE_RUNS: the guest is to run there
 *	      <------------------- RESUMED  the guest runs at the destination
 *	DONE --------------------> the sender knows that
 *
 * DEVICE_END is the commit point (txn/commit.h). Until it has come, and with it all that it counts
 * on the streams, the receiver keeps the device state to itself, and an ABORT of either peer ends
 * the migration. After it the sender sends nothing but DONE, and an ABORT of the receiver means: it
 * is proved that the guest does not run there.
 *
 * Between the stop of the guest and RESUMED the sender waits for no answer: a round trip may take
 * 200 ms. So DEVICE_END may be on its way while the receiver still lacks RAM, and it may be lost
 * with the sender's link. A receiver that has seen SWITCHOVER therefore keeps its verdict for the
 * sender's questions, however the migration fails there; and the sender sends the last ROUND only
 * when the receiver has answered SWITCHOVER, which costs the guest nothing, as it still runs.
 * With WIRE_LATE rounds of pre-copy may come in between, unless pages will be owed, and the last
 * ROUND may follow before their ACKs; so none of these has to reach the sender.
 *
 * Features are bits in HELLO: a peer uses an optional part if both peers offer it. A peer that
 * needs a feature says so, and the other refuses the connection with a message if it does not offer
 * the feature. The version only grows when nothing else helps.
 *
 * WIRE_VERDICTS: the receiver knows the migration by its token, which is READY's secret. If the
 * connection breaks, the sender or `godwit resolve` may ask the receiver, or one that was started
 * later, with ASK in place of BLOCKS:
 *
 *	ASK ---------------------> how did that migration end?
 *	      <------------------- VERDICT  an enum commit_state; WIRE_NO_VERDICT: it is not known
 *
 * WIRE_OWN_RAM: the sender says first which files its RAM is in: a receiver on the same host, also
 * in another container, refuses to write into the source's own. RAM_FILES comes right after HELLO,
 * before a check too.
 *
 * WIRE_VIEWS: the receiver answers ASK_VIEW, right after HELLO and before anything else, with what
 * a guest sees of its QEMU (fit/compare.h), so that a sender whose guest does not fit there fails
 * before it asks for RAM. With WIRE_BRIEF the receiver may leave out names of vCPU features; if
 * their bits differ the sender asks again, without. With WIRE_GLANCE the answer is only what is
 * plugged in there; the sender asks for that at first and again before the last round, and if the
 * two differ it asks for the rest once more.
 *
 * WIRE_ONE_WAY: rounds and the switchover are as described here. This version needs it.
 *
 * WIRE_RECONNECTS: before the first round, and before any PRIVATE, the sender may send KEEP. If the
 * link is lost after that and before the last ROUND has come, the receiver keeps the RAM that it
 * has, ends all streams, and waits so many seconds for the sender to say, in place of BLOCKS, on a
 * new connection,
 *
 *	RECONNECT ---------------> the token, and the latest round that it has begun
 *	      <------------------- RECONNECT  the latest round that is in place; a secret
 *	STREAMS -----------------> as at the beginning: as many as before, which show that secret
 *	      <------------------- STREAMS
 *
 * From there on it is as it was before SWITCHOVER. The next round has the number after the one that
 * the sender named, and brings again what was sent after the one that the receiver named. Before
 * the first ROUND all of the private RAM may come again (save mode, below). The receiver goes on
 * naming that round until it has got a whole one: its answer may be lost, too. While it waits, ASK
 * with the token ends the migration: the answer is that it is dead. A peer that wants anything else
 * is refused.
 *
 * WIRE_FILL: an extent may be of pages of one repeated byte (WIRE_SAME). WIRE_LZ4, WIRE_ZSTD,
 * WIRE_ZLIB: in place of RAM the sender may send PACKED frames, whose pages are one block of that
 * codec (codec/codec.h). WIRE_LOADS: before a PONG the receiver may say LOAD, once the streams have
 * joined and until the last ROUND has come. WIRE_DELTAS: of a page that it sends again the sender
 * may send only the parts that have changed, in a DELTA frame (codec/delta.h). The receiver refuses
 * parts of a page that has not come before.
 *
 * WIRE_POSTCOPY: the guest may run at the destination before all of its RAM is there. WIRE_EARLY:
 * while it still runs at the source the sender may name what it is going to owe. Both: wire/owed.h.
 * WIRE_LOSSES: after RESUMED the receiver may say ABORT with GW_GUEST_LOST, as its QEMU has exited
 * before all was there. The guest has run: a sender that finds that ABORT and has missed RESUMED
 * must not take it for one that has not. The same ABORT may answer RECOVER; and VERDICT may say
 * WIRE_LOST.
 *
 * WIRE_REUSES: in place of a page the sender may refer to what the receiver has in a file.
 * WIRE_REUSES_SOON: it may ask for that before it has READY. Both: wire/reuse.h.
 *
 * WIRE_EMPTIES: a PONG that answers nothing may come between BLOCKS and READY, about once a second,
 * as long as the receiver takes to empty its RAM. The sender waits on.
 *
 * In migrate mode QEMU's private RAM (displays, flash, ROMs) and the device state come from QEMU's
 * own migration, as bytes of its stream in DEVICE frames: those without WIRE_HELD, which the
 * guest's stop does not wait for, the receiver passes to its QEMU at once, in order; those with it,
 * and all of save mode, it keeps until the commit point. For save mode the sender lists the private
 * blocks in PRIVATE_BLOCKS, and if the receiver has the same and can load such a state its READY
 * has WIRE_SAVE_MODE. Then PRIVATE frames carry the private RAM: all of it before the first ROUND,
 * on the control connection; later, and in the last round, the pages that have changed, on stream
 * 0, so that they stay in order.
 *
 * For a preflight check the sender sends CHECK in place of BLOCKS:
 *
 *	PRIVATE_BLOCKS ----------> only if the sender can use save mode
 *	CHECK -------------------> names and sizes must match the receiver's
 *	      <------------------- CHECKED  they do; how many streams, which QEMU; flags as in READY
 *	PING  -------------------> how long is the round trip?
 *	      <------------------- PONG
 *	PROBE, PROBE, ... -------> how fast is the link? The receiver drops the bytes
 *	PING  -------------------> the receiver has read all of them
 *	      <------------------- PONG
 *
 * and closes the connection. The receiver changes nothing, touches no RAM, and waits for the next
 * connection, also after an error.
 *
 * On each stream:
 *
 *	JOIN --------------------> the secret of READY, or the receiver closes the connection
 *	RAM, RAM, ... ROUND -----> this stream's share of a round, and its end; PACKED, DELTA,
 *				   REFERENCES as RAM
 *	...
 *	ROUND (WIRE_ROUND_LAST) -> no RAM and no PRIVATE comes after it
 *	VERIFY, VERIFY, ... -----> with --verify only: hashes of RAM, to be compared once the last
 *				   round is in place on all streams
 * and anywhere between them
 *	DEVICE, DEVICE, ... -----> parts of QEMU's stream, each with its place in it
 *
 * The receiver acknowledges a round when its ROUND has come on the control connection and on every
 * stream. The streams are not ordered against each other: if a page went out on one stream in this
 * round and on another in the next, the receiver could place the older bytes last. So until a round
 * is acknowledged, what it had of a piece of RAM (dirty/stripes.h) may only be followed by newer
 * bytes on the same stream. Within a round no page is sent twice, but that a hole may come twice.
 *
 * Either peer may send ABORT at any time on the control connection; the text says why. The other
 * answers DONE, and both close: an end of the connection alone does not say that the text was read.
 * Every frame that is not expected in the receiver's state is a protocol error (GW_BAD_PEER).
 *
 * Encode and decode are pure: bytes in, values out, no I/O. Decode trusts nothing: the decoders
 * check lengths, counts, reserved fields and kinds; wire_extent_check() checks block and page
 * ranges against the table that the peers agreed on.
 */
#ifndef GODWIT_WIRE_H
#define GODWIT_WIRE_H

#include <stdint.h>

#define WIRE_MAGIC	0x54575447u	/* "GTWT" */
#define WIRE_VERSION	6

#define WIRE_HEADER	24	/* bytes */
#define WIRE_HELLO_BODY	16	/* bytes */
#define WIRE_BOOT_ID	16	/* bytes */
#define WIRE_FILE	16	/* bytes */
#define WIRE_LOAD_MAX	1000u
#define WIRE_HASH	8	/* bytes of a page's hash in a VERIFY frame */
#define WIRE_HASHES_MAX	8192	/* page hashes in one VERIFY frame */
#define WIRE_VERIFY_HOLE 16384u	/* pages without hashes in one VERIFY frame */
#define WIRE_TEXT_MAX	1000	/* bytes of an ABORT's text */
#define WIRE_DEVICE_MAX	(128u << 10)	/* bytes of QEMU's stream in one DEVICE frame */
#define WIRE_PLACE	8	/* bytes of a place in that stream, or of its length */
#define WIRE_STREAMS_MAX 16
#define WIRE_SECRET	16	/* bytes */
#define WIRE_PROBE_MAX	(256u << 10)	/* bytes in one PROBE frame */
#define WIRE_VIEW_MAX	(256u << 10)	/* bytes in one VIEW frame */
#define WIRE_KEEP_MAX	3600u	/* seconds that a receiver waits for a sender that lost the link */
#define WIRE_ROUND_MAX	((1u << 28) - 1)	/* of a RECONNECT: as seconds, 8 years */

/**
 * enum wire_type - the frames: arg, body, and the flags that each may have
 * @WIRE_HELLO: arg version; body: 8 bytes of features offered, 8 bytes of features needed
 * @WIRE_BLOCKS: arg count; body: count block records
 * @WIRE_READY: arg streams, at most; body: WIRE_SECRET random bytes; WIRE_SAVE_MODE
 * @WIRE_PING: arg serial; body: 8 bytes sender's CLOCK_REALTIME, ns
 * @WIRE_PONG: arg serial; body: 8 bytes receiver's CLOCK_REALTIME, ns
 * @WIRE_RAM: arg extents; body: the extents, then the pages of the WIRE_DATA ones
 * @WIRE_ROUND: arg round number; no body; WIRE_ROUND_LAST
 * @WIRE_ACK: arg round number; no body
 * @WIRE_VERIFY: arg hashes; body: one extent, then (WIRE_DATA) a hash for each page
 * @WIRE_SWITCHOVER: no body; WIRE_OWING
 * @WIRE_COMMIT: no body
 * @WIRE_DEVICE: body: 8 bytes where in QEMU's migration stream the rest of the body, 1 to
 *	WIRE_DEVICE_MAX bytes, begins; WIRE_HELD
 * @WIRE_DEVICE_END: arg how many VERIFY frames there are on all streams; body: 8 bytes length of
 *	QEMU's migration stream; WIRE_RUNS
 * @WIRE_RESUMED: body: 8 bytes CLOCK_REALTIME of the destination's RESUME, ns
 * @WIRE_ABORT: arg enum gw_exit; body: text, no NUL
 * @WIRE_STREAMS: arg count, at most what READY allowed, both ways; no body
 * @WIRE_JOIN: arg number of the stream, from 0; body: the secret
 * @WIRE_CHECK: as BLOCKS
 * @WIRE_CHECKED: arg, flags as in READY; body: 8 bytes QEMU's version, major * 10000 + minor * 100
 *	+ micro
 * @WIRE_PROBE: body: any bytes
 * @WIRE_PRIVATE_BLOCKS: as BLOCKS
 * @WIRE_PRIVATE: as RAM, of the blocks in PRIVATE_BLOCKS; on the control connection
 * @WIRE_DONE: no body
 * @WIRE_ASK: body: the token
 * @WIRE_VERDICT: arg enum commit_state, or WIRE_NO_VERDICT; WIRE_OWING: the guest runs, and may
 *	lack RAM that only the source has (wire/owed.h); WIRE_LOST: it ran, and its QEMU has exited
 *	before that RAM was there; body: as RESUMED's, 0 unless it runs
 * @WIRE_RAM_FILES: arg count; body: WIRE_BOOT_ID bytes of the host's boot id, then for each file 8
 *	bytes device, 8 bytes inode
 * @WIRE_ASK_VIEW: no body; WIRE_BRIEF or WIRE_GLANCE
 * @WIRE_VIEW: body: a part of a JSON object, see fit/compare.h; WIRE_MORE
 * @WIRE_KEEP: arg seconds, 1 to WIRE_KEEP_MAX; no body
 * @WIRE_RECONNECT: arg round number; body: of the sender the token, of the receiver a new secret
 * @WIRE_PACKED: arg extents; body: the extents, 8 bytes codec's number, then one block that unpacks
 *	to the pages of the WIRE_DATA ones, and is shorter
 * @WIRE_POSTCOPY_ASK: @WIRE_CANNOT: @WIRE_OWED: @WIRE_WANT: @WIRE_COMPLETE: @WIRE_FAULTS: see
 *	wire/owed.h
 * @WIRE_REUSE: @WIRE_WANT_HASHES: @WIRE_HASHES: @WIRE_REFERENCES: @WIRE_REFUSED: see wire/reuse.h
 * @WIRE_LOAD: arg per mille of the frames of RAM since the last LOAD at whose beginning the stream
 *	had more to read already: at WIRE_LOAD_MAX the receiver, not the link, is what is slow; no
 *	body
 * @WIRE_DELTA: arg extents, one at least WIRE_PARTS; body: these, 8 bytes codec's number or 0, a
 *	byte for each page of the WIRE_PARTS ones, in which bit n says that its part n follows, as
 *	one at least does, then one block that unpacks to the bytes of the WIRE_DATA and WIRE_PARTS
 *	ones, at most WIRE_PACKED_MAX, and is shorter; with 0 these bytes as they are
 */
enum wire_type {
	WIRE_HELLO = 1,
	WIRE_BLOCKS,
	WIRE_READY,
	WIRE_PING,
	WIRE_PONG,
	WIRE_RAM,
	WIRE_ROUND,
	WIRE_ACK,
	WIRE_VERIFY,
	WIRE_SWITCHOVER,
	WIRE_COMMIT = 12,	/* 11 was a frame of older versions */
	WIRE_DEVICE,
	WIRE_DEVICE_END,
	WIRE_RESUMED,
	WIRE_ABORT,
	WIRE_STREAMS,
	WIRE_JOIN,
	WIRE_CHECK,
	WIRE_CHECKED,
	WIRE_PROBE,
	WIRE_PRIVATE_BLOCKS,
	WIRE_PRIVATE,
	WIRE_DONE,
	WIRE_ASK,
	WIRE_VERDICT,
	WIRE_RAM_FILES,
	WIRE_ASK_VIEW,
	WIRE_VIEW,
	WIRE_KEEP,
	WIRE_RECONNECT,
	WIRE_PACKED,
	WIRE_LOAD,
	WIRE_DELTA,
	WIRE_POSTCOPY_ASK,
	WIRE_CANNOT,
	WIRE_OWED,
	WIRE_WANT,
	WIRE_COMPLETE,
	WIRE_RECOVER,
	WIRE_FAULTS,
	WIRE_REUSE,
	WIRE_WANT_HASHES,
	WIRE_HASHES,
	WIRE_REFERENCES,
	WIRE_REFUSED,
	WIRE_TYPES
};

#define WIRE_ROUND_LAST	(1u << 0)
#define WIRE_SAVE_MODE	(1u << 1)
#define WIRE_RUNS	(1u << 2)
#define WIRE_MORE	(1u << 3)
#define WIRE_BRIEF	(1u << 4)
#define WIRE_GLANCE	(1u << 5)
#define WIRE_HELD	(1u << 6)
#define WIRE_OWING	(1u << 7)
#define WIRE_LOST	(1u << 8)

#define WIRE_VERDICTS	(1ull << 0)	/* features, see above */
#define WIRE_OWN_RAM	(1ull << 1)
#define WIRE_VIEWS	(1ull << 2)
#define WIRE_ONE_WAY	(1ull << 3)
#define WIRE_RECONNECTS	(1ull << 4)
#define WIRE_FILL	(1ull << 5)
#define WIRE_LZ4	(1ull << 6)
#define WIRE_ZSTD	(1ull << 7)
#define WIRE_ZLIB	(1ull << 8)
#define WIRE_LOADS	(1ull << 9)
#define WIRE_DELTAS	(1ull << 10)
#define WIRE_POSTCOPY	(1ull << 11)
#define WIRE_EARLY	(1ull << 12)
#define WIRE_REUSES	(1ull << 13)
#define WIRE_LATE	(1ull << 14)
#define WIRE_LOSSES	(1ull << 15)
#define WIRE_REUSES_SOON (1ull << 16)
#define WIRE_EMPTIES	(1ull << 17)
#define WIRE_NO_VERDICT	255u

/**
 * struct wire_header - the first 24 bytes of each frame
 * On the wire: u32 magic, u16 type, u16 flags, u32 arg, u32 length, u64 reserved (0).
 * @type: enum wire_type
 * @flags: of WIRE_ROUND_LAST, WIRE_SAVE_MODE, WIRE_RUNS, WIRE_MORE, WIRE_BRIEF, WIRE_GLANCE,
 *	WIRE_HELD, WIRE_OWING, WIRE_LOST
 * @arg: see enum wire_type
 * @length: bytes of body that follow
 */
struct wire_header {
	uint16_t type;
	uint16_t flags;
	uint32_t arg;
	uint32_t length;
};

/*
 * All decoders return 0, or -EPROTO (malformed), -EPROTONOSUPPORT (another magic or version; header
 * and hello only), -EMSGSIZE (a limit is exceeded). They read only bytes in [p, p + len).
 */
void wire_put_header(uint8_t p[WIRE_HEADER], const struct wire_header *h);
/* Checks magic, reserved, type, flags, and that length and arg fit the type's limits. */
int wire_get_header(const uint8_t p[WIRE_HEADER], struct wire_header *h);
/* What a header says that was refused, for a message. */
unsigned int wire_header_type(const uint8_t p[WIRE_HEADER]);

void wire_put_u64(uint8_t p[8], uint64_t v);
uint64_t wire_get_u64(const uint8_t p[8]);

const char *wire_type_name(unsigned int type);

#endif
