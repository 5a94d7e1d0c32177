/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The frames of content reuse, with the feature WIRE_REUSES: the receiver has a file with old RAM,
 * and the sender refers to pages of that in place of sending them.
 *
 *	sender                     receiver
 *	REUSE -------------------> on the control connection, once the streams have joined; with
 *				   WIRE_REUSES_SOON also right behind BLOCKS and POSTCOPY, and the
 *				   answer comes behind theirs: that costs no round trip
 *	      <------------------- REUSE    how the file is hashed, with which secret; or that there
 *				   is none
 *	WANT_HASHES -------------> up to so many, from that entry on
 *	      <------------------- HASHES   those that there are by now; WIRE_MORE: it reads the
 *				   file still
 *	...
 *
 * An entry is a page of the file, numbered in the order of HASHES; its hash is of what the page was
 * when the receiver read it. The sender asks for as many as it has memory for, at any time before
 * the last ROUND, and so nothing of this comes that it has no room for. On a stream, in rounds but
 * the last:
 *
 *	REFERENCES --------------> these pages are what those entries are
 *
 * The receiver reads each page from the file at that time, and hashes it again. Only what has the
 * entry's hash now is placed. What has not, it asks for: on the control connection, before the ACK
 * of that round, and before it answers SWITCHOVER,
 *
 *	      <------------------- REFUSED  pages that are not in place
 *
 * and, as with the link a REFUSED may be lost behind its ROUND, all of them once more when the
 * sender has connected again. To the sender these pages are dirty, and it refers to nothing any
 * more: the file is not what it was. It sends no last ROUND before it has the ACK of each round
 * before, and in the last round, which has none, and for pages that are owed, it sends no
 * REFERENCES. So no page is missing that the receiver has refused, and none is refused for ever.
 */
#ifndef GODWIT_WIRE_REUSE_H
#define GODWIT_WIRE_REUSE_H

#include "wire/extent.h"
#include "wire/wire.h"

#define WIRE_ENTRY	16	/* bytes of an entry's hash */
#define WIRE_ENTRIES_FRAME 8192u	/* entries in one HASHES frame */
#define WIRE_ENTRIES_MAX (UINT32_MAX - 1)
#define WIRE_REUSE_SECRET 384	/* bytes */
#define WIRE_REUSE_HEAD	8	/* bytes of a REUSE frame without the secret */
#define WIRE_HASHES_HEAD 24	/* bytes of a HASHES frame without hashes */
#define WIRE_REFERENCE	24	/* bytes */
#define WIRE_REFERENCES_MAX 1024u	/* in one frame */
#define WIRE_REFERRED_MAX 4096u	/* pages of one frame: 16 MiB */
#define WIRE_REFUSED_MAX 512u	/* extents in one frame */

/*
 * @WIRE_REUSE: arg 0 of a check: no secret is wanted, else 1; no body. Of the receiver arg enum
 *	wire_reuse_kind; body: 8 bytes how many entries there will be at most, then, if it was
 *	wanted and there is a file, the secret
 * @WIRE_WANT_HASHES: arg how many, 1 to WIRE_ENTRIES_FRAME; body: 8 bytes the first entry
 * @WIRE_HASHES: arg entries; body: struct wire_hashes, 8 bytes each, then a hash for each entry,
 *	two numbers of 8 bytes; WIRE_MORE: there will be more
 * @WIRE_REFERENCES: arg references; body: for each an extent of WIRE_DATA, then 8 bytes the entry
 *	of its first page: the next page is the next entry
 * @WIRE_REFUSED: arg extents; body: these, WIRE_DATA
 */

/* How pages are hashed. */
enum wire_reuse_kind {
	WIRE_REUSE_NONE,
	WIRE_REUSE_XXH3,	/* XXH3-64 twice, with a half of the secret each: twofold.h */
	WIRE_REUSE_HMAC,	/* the first 16 bytes of HMAC-SHA-256; the secret is the key */
	WIRE_REUSE_KINDS
};

/**
 * struct wire_hashes
 * @first: the first entry of the frame
 * @ns: how long it took so far to read and hash the file
 * @left_out: pages of it that are no entries, as there was no memory for them
 */
struct wire_hashes {
	uint64_t first, ns, left_out;
};

/* @x: pages of RAM; @entry: what the first of them is */
struct wire_reference {
	struct wire_extent x;
	uint64_t entry;
};

/* The decoders: as in wire.h. body is all of the frame's. */

/* *secret: in body; NULL: there is none. */
int wire_get_reuse(const struct wire_header *h, const uint8_t *body, uint64_t *most,
		   const uint8_t **secret);
void wire_put_hashes(uint8_t body[WIRE_HASHES_HEAD], const struct wire_hashes *x);
/* Entries up to WIRE_ENTRIES_MAX. */
int wire_get_hashes(const struct wire_header *h, const uint8_t *body, struct wire_hashes *x);
void wire_put_reference(uint8_t p[WIRE_REFERENCE], const struct wire_reference *ref);
/*
 * h->arg references. entries: how many entries were said. -ERANGE: wire_extent_check(), or a
 * reference to more.
 */
int wire_get_references(const struct wire_header *h, const uint8_t *body,
			const uint64_t *block_pages, unsigned int blocks, uint64_t entries,
			struct wire_reference *ref);
/* h->arg extents. Of more pages than all blocks have: -EPROTO, as a frame names each page once. */
int wire_get_refused(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		     unsigned int blocks, struct wire_extent *x);

#endif
