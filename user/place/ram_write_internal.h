/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by ram_write.c (zeros, what is said of failures), ram_empty.c (before the first page),
 * ram_data.c (page bytes), ram_delta.c (parts of pages) and ram_reused.c (pages of a file).
 */
#ifndef GODWIT_RAM_WRITE_INTERNAL_H
#define GODWIT_RAM_WRITE_INTERNAL_H

#include "place/ram_write.h"

/**
 * struct ram_part - pages of one extent
 * @unplaced: no data has been put into any of them yet
 * @bytes: their content, if it does not go into the mapping
 */
struct ram_part {
	uint64_t first;
	uint32_t pages;
	uint16_t block;
	bool unplaced;
	uint8_t *bytes;
};

/* Names what is full and how to make it larger. code: the kernel's error. */
int ram_no_room(const struct ram_block *b, int code, struct err *e);
int ram_failed(const struct ram_block *b, const char *what, int code, struct err *e);
/* code: of ram_ops' write or clear. */
int ram_write_failed(const struct ram_block *b, const char *what, int code, struct err *e);
/* Pages [first, first + count) become zeros: a hole, where there can be one. */
int ram_clear(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e);
/*
 * Of a block that is mapped. The kernel writes the zeros: without room it answers EFAULT, a store
 * would end in SIGBUS.
 */
int ram_zero_page(const struct ram_writer *p, unsigned int block, uint64_t page, struct err *e);
/* Receives a block of @len bytes, and unpacks it into the buffer. @bytes: what it unpacks to. */
int ram_unpack(struct ram_writer *p, struct channel *ch, uint64_t number, size_t len,
	       struct ram_scratch *s, size_t bytes, struct err *e);
/* All that stands behind the extents of a PACKED frame. @bytes: of its pages. */
int ram_unpack_pages(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, size_t bytes, struct err *e);
/* The rest of a frame of owed pages, whose extents these are. */
int ram_lazy_extents(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     const struct wire_extent *x, struct ram_scratch *s,
		     struct ram_writer_count *count, struct err *e);
/* A hole stays one. */
int ram_write_zeros(const struct ram_writer *p, const struct wire_extent *x, struct err *e);
/* Pages of an extent, FRAME_PAGES at most, whose bytes are in the buffer from @at on. */
int ram_write_extent(struct ram_writer *p, const struct wire_extent *x, const struct ram_scratch *s,
		     uint8_t *at, struct err *e);
/* Into a mapping: @left bytes of the part, without the first @skip, from @part->bytes on. */
int ram_copy_mapped(const struct ram_writer *p, const struct ram_scratch *s,
		    const struct ram_part *part, size_t skip, size_t left, struct err *e);
/* All of a REFERENCES frame. */
int ram_write_reused(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, struct ram_writer_count *count, struct err *e);
/* What stands behind the extents of a DELTA frame. */
int ram_write_delta(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		    const struct wire_extent *x, struct ram_scratch *s, struct err *e);

#endif
