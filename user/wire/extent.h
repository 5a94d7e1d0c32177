/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The pages in frames: extents, and the RAM, PACKED, DELTA and PRIVATE frames that are made of
 * them. wire.h says which of these may come when.
 */
#ifndef GODWIT_WIRE_EXTENT_H
#define GODWIT_WIRE_EXTENT_H

#include <stddef.h>
#include <stdint.h>

#include "page/page.h"

#define WIRE_EXTENT	16	/* bytes */
#define WIRE_EXTENTS_MAX 512	/* extents in one RAM frame */
#define WIRE_RAM_MAX	(1u << 20)	/* page bytes in one RAM frame */
#define WIRE_SAME_MAX	4096u	/* pages of one byte in one frame */
#define WIRE_PRIVATE_MAX (128u << 10)	/* page bytes in one PRIVATE frame */
#define WIRE_PACKED_HEAD 8	/* bytes of a PACKED frame's codec number */
#define WIRE_PACKED_MAX	(256u << 10)	/* page bytes in one PACKED frame, unpacked */
#define WIRE_PART	512u	/* bytes of a part of a page */
#define WIRE_PAGE_PARTS	(PAGE_BYTES / WIRE_PART)
#define WIRE_PARTS_MAX	(WIRE_PACKED_MAX / WIRE_PART)	/* pages in parts in one DELTA frame */

/* How the pages of an extent travel: the low byte of its kind. */
enum wire_kind {
	WIRE_DATA = 0,		/* 4096 bytes a page follow */
	WIRE_ZERO = 1,		/* every byte is 0; nothing follows */
	WIRE_SAME = 2,		/* not PRIVATE: every byte is the kind's high byte, not 0 */
	WIRE_PARTS = 3,		/* DELTA: parts of each page follow, the others are as they were */
	WIRE_KINDS
};
#define WIRE_SAME_OF(byte)	((uint16_t)(WIRE_SAME | (byte) << 8))
#define WIRE_IS_SAME(kind)	(((kind) & 0xff) == WIRE_SAME)
#define WIRE_SAME_BYTE(kind)	((uint8_t)((kind) >> 8))

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

struct wire_header;

/* The decoders: as in wire.h. */
void wire_put_extent(uint8_t p[WIRE_EXTENT], const struct wire_extent *x);
/* Checks kind (WIRE_DATA or WIRE_ZERO) and pages > 0 and that first + pages does not wrap. */
int wire_get_extent(const uint8_t p[WIRE_EXTENT], struct wire_extent *x);
/* 0, or -ERANGE: the block does not exist or the run leaves it. */
int wire_extent_check(const struct wire_extent *x, const uint64_t *block_pages,
		      unsigned int blocks);

/*
 * The extents of a RAM, PACKED, DELTA or PRIVATE frame: decodes h->arg of them from p (len bytes
 * are h->arg * WIRE_EXTENT), checks each against the blocks, and that the bytes of the WIRE_DATA
 * ones sum up to the rest of h->length; in a PACKED one, to more than the block has, and
 * WIRE_PACKED_MAX at most; in a DELTA one, that this rest may hold what is decoded next. Rejects a
 * frame that names more pages than all blocks have, or more than WIRE_SAME_MAX of one byte. -ERANGE
 * as above.
 */
int wire_get_ram(const struct wire_header *h, const uint8_t *p, size_t len,
		 const uint64_t *block_pages, unsigned int blocks, struct wire_extent *x);
/*
 * How many pages the WIRE_PARTS extents have; of a frame that wire_get_ram() took, 1 to
 * WIRE_PARTS_MAX in a DELTA and 0 in any other.
 */
uint32_t wire_parts(const struct wire_extent *x, unsigned int n);
/* How many bytes of a page follow: of a WIRE_PARTS page's byte. */
uint32_t wire_part_bytes(uint8_t parts);
/*
 * What follows the extents in a DELTA frame: the codec's number and the pages' bytes, len is
 * WIRE_PACKED_HEAD + wire_parts(). *bytes: what the rest of the frame is, or unpacks to.
 */
int wire_get_delta(const struct wire_header *h, const struct wire_extent *x, const uint8_t *p,
		   size_t len, uint64_t *codec, uint32_t *bytes);

#endif
