/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wire protocol, version 6. This header is its specification.
 *
 * One TCP connection, the control connection, carries frames in both directions. One to WIRE_STREAMS_MAX more, the
 * streams, carry guest RAM from the sender to the receiver, and nothing else: the device state never queues
 * behind RAM. A frame is a 24-byte header and a body of `length` bytes. All numbers are little-endian. A page
 * is 4 KiB, whatever page size either host maps the RAM with. RAM is addressed by block (the index in the sender's
 * BLOCKS table) and page within the block; where a block lies in the guest travels only to be compared, host addresses never.
 *
 *	sender                                   receiver
 *	HELLO ---------------------------------> version and magic are compared first, then the features, see below
 *	      <--------------------------------- HELLO
 *	ASK_VIEW ------------------------------> what can a guest see there? The sender compares
 *	      <--------------------------------- VIEW, VIEW, ...
 *	PRIVATE_BLOCKS ------------------------> only if the device state could be saved, see below
 *	BLOCKS --------------------------------> names and sizes must match its own
 *	      <--------------------------------- READY   its RAM is empty, QEMU is waiting; a secret, how many streams
 *	STREAMS -------------------------------> so many connections to the same address will come
 *	      <--------------------------------- STREAMS all of them have joined
 *	PING  ---------------------------------> clock comparison, several times; later, a sign of life
 *	      <--------------------------------- PONG    also unasked, while a round is still coming in
 *	ROUND ---------------------------------> one round of pre-copy has been sent
 *	      <--------------------------------- ACK     all of the round is in place
 *	...
 *	DEVICE, DEVICE, ... -------------------> QEMU's private RAM, until the VM is stopped
 *	ROUND (WIRE_ROUND_LAST) ---------------> the VM is stopped, this was the rest
 *	      <--------------------------------- ACK
 *	VERIFY, ... VERIFY_END ----------------> with --verify only
 *	      <--------------------------------- VERIFIED
 *	COMMIT --------------------------------> from here the receiver writes no RAM
 *	DEVICE, ... DEVICE_END ----------------> the device state; WIRE_RUNS: the guest is to run there
 *	      <--------------------------------- RESUMED the guest runs at the destination
 *	DONE ----------------------------------> the sender knows that
 *
 * DEVICE_END is the point of no return (txn/commit.h). Until it has come, the receiver keeps the device state to itself, and
 * an ABORT of either side ends the migration. Behind it the sender says nothing but DONE, and an ABORT of the
 * receiver's means: it is proved that the guest does not run there.
 *
 * Features are bits that both ends know: what is optional is used when both offer it. An end that cannot do without one
 * says so, and the other refuses it in words if it does not offer that. The version only grows when nothing else helps.
 *
 *	WIRE_VERDICTS	the receiver knows the migration by its token, which is READY's secret. If the connection
 *			breaks, somebody may ask it, also when it was started again, with ASK in place of BLOCKS:
 *
 *	ASK -----------------------------------> how did that migration end?
 *	      <--------------------------------- VERDICT an enum commit_state, or WIRE_NO_VERDICT: no such migration is known
 *
 *	WIRE_OWN_RAM	the sender says first which files its RAM is in: a receiver on the same host, also in another container,
 *			refuses to write into the source's own. RAM_FILES comes right after HELLO, before a check too.
 *
 *	WIRE_VIEWS	the receiver answers ASK_VIEW, right after HELLO and before anything else, with what its QEMU is to a guest
 *			(fit/compare.h), so that a sender whose guest would not fit there says so before RAM is asked for. With
 *			WIRE_BRIEF names of vCPU features may be left out; if their bits differ the sender asks again, without. With
 *			WIRE_GLANCE the answer is only what is plugged in there; asked for at first and again before the last round,
 *			it says whether anything was changed since, and if so the sender asks for the rest once more.
 *
 * QEMU's private RAM (displays, flash, ROMs) and the device state come from QEMU's own migration, unless both sides can do
 * without it: the sender lists the private blocks in PRIVATE_BLOCKS, and if the receiver has the same its READY has
 * WIRE_SAVED. Then PRIVATE frames carry that RAM: all of it before the first ROUND, later what has changed, the
 * last time before the last ROUND, whose ACK is theirs, too. No DEVICE comes before COMMIT.
 *
 * Whoever only wants to know whether a migration would be possible sends CHECK in place of BLOCKS:
 *
 *	PRIVATE_BLOCKS ------------------------> only if the device state could be saved
 *	CHECK ---------------------------------> names and sizes must match its own
 *	      <--------------------------------- CHECKED they do; how many streams, which QEMU; flags as in READY
 *	PING  ---------------------------------> how long is the way?
 *	      <--------------------------------- PONG
 *	PROBE, PROBE, ... ---------------------> how much does the link carry? It is read and forgotten
 *	PING  ---------------------------------> all of that has been read
 *	      <--------------------------------- PONG
 *
 * and closes. Nothing is changed, no RAM is touched, and the receiver waits for the next connection, also after an error.
 *
 * On each stream:
 *
 *	JOIN ----------------------------------> the secret of READY: whoever does not know it is hung up on
 *	RAM, RAM, ... ROUND -------------------> this stream's share of a round, and its end
 *	...
 *	RAM, ... ROUND (WIRE_ROUND_LAST) ------> nothing comes after it
 *
 * The receiver acknowledges a round when its ROUND has come on the control connection and on every stream, and the
 * sender begins the next one after that. The streams know nothing of each other: if a page went out on one stream in this
 * round and on another in the next, without that wait, the older bytes could be the last to be placed. Within
 * a round no page is sent twice.
 *
 * Either side may send ABORT at any time on the control connection and close; the text says why. Every frame that is
 * not expected in the receiver's state is a protocol error (GW_BAD_PEER).
 *
 * Encode and decode are pure: bytes in, values out, no I/O. Decode trusts nothing: lengths,
 * counts, reserved fields and kinds are checked here; block and page ranges are checked by
 * wire_extent_check() against the table that was agreed.
 */
#ifndef GODWIT_WIRE_H
#define GODWIT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC	0x54575447u	/* "GTWT" */
#define WIRE_VERSION	6
#define WIRE_PAGE	4096u

#define WIRE_HEADER	24	/* bytes */
#define WIRE_HELLO_BODY	16	/* bytes */
#define WIRE_BOOT_ID	16	/* bytes */
#define WIRE_FILE	16	/* bytes */
#define WIRE_EXTENT	16	/* bytes */
#define WIRE_EXTENTS_MAX 512	/* extents in one RAM frame */
#define WIRE_RAM_MAX	(1u << 20)	/* page bytes in one RAM frame */
#define WIRE_NAME_MAX	255	/* bytes of a RAM block's name */
#define WIRE_BLOCKS_MAX	64
#define WIRE_HASH	8	/* bytes of a page's hash in a VERIFY frame */
#define WIRE_HASHES_MAX	8192	/* page hashes in one VERIFY frame */
#define WIRE_TEXT_MAX	1000	/* bytes of an ABORT's text */
#define WIRE_DEVICE_MAX	(256u << 10)	/* bytes in one DEVICE frame */
#define WIRE_BAD_MAX	64	/* page numbers in one VERIFIED frame */
#define WIRE_STREAMS_MAX 16
#define WIRE_SECRET	16	/* bytes */
#define WIRE_PROBE_MAX	(256u << 10)	/* bytes in one PROBE frame */
#define WIRE_VIEW_MAX	(256u << 10)	/* bytes in one VIEW frame */
#define WIRE_PRIVATE_MAX (128u << 10)	/* page bytes in one PRIVATE frame */

enum wire_type {
	WIRE_HELLO = 1,		/* arg = version; body: 8 bytes of features offered, 8 bytes of features needed */
	WIRE_BLOCKS,		/* arg = count; body: count block records */
	WIRE_READY,		/* arg = streams, at most, flags may hold WIRE_SAVED; body: WIRE_SECRET random bytes */
	WIRE_PING,		/* arg = serial; body: 8 bytes sender's CLOCK_REALTIME, ns */
	WIRE_PONG,		/* arg = serial; body: 8 bytes receiver's CLOCK_REALTIME, ns */
	WIRE_RAM,		/* arg = extents; body: the extents, then the pages of WIRE_DATA ones */
	WIRE_ROUND,		/* arg = round number, flags may hold WIRE_ROUND_LAST; no body */
	WIRE_ACK,		/* arg = round number; no body */
	WIRE_VERIFY,		/* arg = hashes; body: one extent, then (WIRE_DATA) a hash for each page */
	WIRE_VERIFY_END,	/* no body */
	WIRE_VERIFIED,		/* arg = listed; body: 8 bytes count of differing pages, then `arg` extents of 1 page */
	WIRE_COMMIT,		/* no body */
	WIRE_DEVICE,		/* body: bytes of QEMU's migration stream */
	WIRE_DEVICE_END,	/* flags may hold WIRE_RUNS; no body */
	WIRE_RESUMED,		/* body: 8 bytes CLOCK_REALTIME of the destination's RESUME, ns */
	WIRE_ABORT,		/* arg = enum gw_exit; body: text, no NUL */
	WIRE_STREAMS,		/* arg = count, at most what READY allowed, both ways; no body */
	WIRE_JOIN,		/* arg = number of the stream, from 0; body: the secret */
	WIRE_CHECK,		/* as BLOCKS */
	WIRE_CHECKED,		/* arg, flags as in READY; body: 8 bytes QEMU's version, major * 10000 + minor * 100 + micro */
	WIRE_PROBE,		/* body: any bytes */
	WIRE_PRIVATE_BLOCKS,	/* as BLOCKS */
	WIRE_PRIVATE,		/* as RAM, of the blocks in PRIVATE_BLOCKS; on the control connection */
	WIRE_DONE,		/* no body */
	WIRE_ASK,		/* body: the token */
	WIRE_VERDICT,		/* arg = enum commit_state, or WIRE_NO_VERDICT; body: as RESUMED's, 0 unless it runs */
	WIRE_RAM_FILES,		/* arg = count; body: WIRE_BOOT_ID bytes of the host's boot id, then per file 8 bytes device, 8 inode */
	WIRE_ASK_VIEW,		/* flags may hold WIRE_BRIEF or WIRE_GLANCE; no body */
	WIRE_VIEW,		/* flags may hold WIRE_MORE; body: a part of a JSON object, see fit/compare.h */
	WIRE_TYPES
};

#define WIRE_ROUND_LAST	(1u << 0)
#define WIRE_SAVED	(1u << 1)
#define WIRE_RUNS	(1u << 2)
#define WIRE_MORE	(1u << 3)
#define WIRE_BRIEF	(1u << 4)
#define WIRE_GLANCE	(1u << 5)

#define WIRE_VERDICTS	(1ull << 0)	/* features, see above */
#define WIRE_OWN_RAM	(1ull << 1)
#define WIRE_VIEWS	(1ull << 2)
#define WIRE_NO_VERDICT	255u

#define WIRE_NO_ADDRESS	UINT64_MAX

/* How the pages of an extent travel; further page encoders take further numbers. */
enum wire_kind {
	WIRE_DATA = 0,		/* 4096 bytes a page follow */
	WIRE_ZERO = 1,		/* every byte is 0; nothing follows */
	WIRE_KINDS
};

/**
 * struct wire_header - the first 24 bytes of each frame
 * On the wire: u32 magic, u16 type, u16 flags, u32 arg, u32 length, u64 reserved (0).
 * @type: enum wire_type
 * @flags: WIRE_ROUND_LAST, WIRE_SAVED, WIRE_RUNS, WIRE_MORE, WIRE_BRIEF, WIRE_GLANCE, else 0
 * @arg: see enum wire_type
 * @length: bytes of body that follow
 */
struct wire_header {
	uint16_t type;
	uint16_t flags;
	uint32_t arg;
	uint32_t length;
};

/**
 * struct wire_extent - a run of pages in one block
 * On the wire: u16 block, u16 kind, u32 pages, u64 first.
 */
struct wire_extent {
	uint16_t block;
	uint16_t kind;
	uint32_t pages;		/* 1 .. 2^32-1 */
	uint64_t first;		/* page number in the block */
};

/**
 * struct wire_block - one RAM block, in the BLOCKS, PRIVATE_BLOCKS and CHECK frames
 * On the wire: u64 pages, u64 address, u32 page_size, u16 name_len, u16 reserved (0), name.
 * @address: where it begins in the guest, bytes; with a device state that was saved it must be the same at both ends.
 *           WIRE_NO_ADDRESS: not known, as ever in PRIVATE_BLOCKS
 * @pages: 4 KiB pages, at least 1; their bytes fit into 63 bits
 * @page_size: bytes of a native page at the sender (informative)
 * @name: QEMU's RAM block name, NUL-terminated here, printable ASCII
 */
struct wire_block {
	uint64_t pages;
	uint64_t address;
	uint32_t page_size;
	char name[WIRE_NAME_MAX + 1];
};

/*
 * All decoders: 0, or -EPROTO (malformed), -EPROTONOSUPPORT (another magic or version; header
 * and hello only), -EMSGSIZE (a limit above exceeded). They read only bytes in [p, p + len).
 */
void wire_put_header(uint8_t p[WIRE_HEADER], const struct wire_header *h);
/* Checks magic, reserved, type, flags and that length and arg fit the type's limits. */
int wire_get_header(const uint8_t p[WIRE_HEADER], struct wire_header *h);

void wire_put_extent(uint8_t p[WIRE_EXTENT], const struct wire_extent *x);
/* Checks kind and pages > 0 and that first + pages does not wrap. */
int wire_get_extent(const uint8_t p[WIRE_EXTENT], struct wire_extent *x);
/* 0, or -ERANGE: the block does not exist or the run leaves it. */
int wire_extent_check(const struct wire_extent *x, const uint64_t *block_pages, unsigned int blocks);

/*
 * The extents of a RAM or PRIVATE frame: decodes h->arg of them from p (len bytes are h->arg * WIRE_EXTENT) and
 * checks each against the blocks and that the page bytes of the WIRE_DATA ones sum up to the rest of
 * h->length. No frame names more pages than there are. -ERANGE as above.
 */
int wire_get_ram(const struct wire_header *h, const uint8_t *p, size_t len, const uint64_t *block_pages,
		 unsigned int blocks, struct wire_extent *x);

/* Bytes that the records of n blocks take. */
size_t wire_blocks_size(const struct wire_block *b, unsigned int n);
void wire_put_blocks(uint8_t *p, const struct wire_block *b, unsigned int n);
/* Decodes exactly n records from exactly len bytes; names must be non-empty, printable and distinct. */
int wire_get_blocks(const uint8_t *p, size_t len, struct wire_block *b, unsigned int n);

void wire_put_u64(uint8_t p[8], uint64_t v);
uint64_t wire_get_u64(const uint8_t p[8]);

const char *wire_type_name(unsigned int type);

#endif
