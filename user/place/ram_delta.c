// SPDX-License-Identifier: GPL-2.0-only
/*
 * DELTA frames: of pages that are here already, the parts that have changed since.
 *
 * A part is only right over the page that the sender means. The sender's streams keep the order
 * (codec/delta.h), and the receiver makes sure of what it can: that the page has come before. Parts
 * that are written before the link is lost in the middle of a frame harm nothing: all that the
 * receiver has not acknowledged comes again, and whole.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "place/ram_write_internal.h"

static int ram_check_placed(const struct ram_writer *p, const struct wire_extent *x, struct err *e)
{
	for (uint64_t page = x->first; page < x->first + x->pages; page++)
		if (bitmap_next_shared(p->placed[x->block], page, page + 1) != page)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent parts of page %llu of RAM \"%s\", which has not come before",
				       (unsigned long long)page, p->vm->blocks[x->block].name);
	return 0;
}

/* Parts of a page that follow each other, from byte @skip of it on. */
static int ram_write_run(struct ram_writer *p, const struct ram_scratch *s,
			 const struct ram_part *part, size_t skip, size_t len, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[part->block];
	int r;

	if (p->base[part->block])
		return ram_copy_mapped(p, s, part, skip, len, e);
	r = ram_ops(b)->patch(b, part->first * PAGE_BYTES + skip, len, part->bytes);
	return r ? ram_write_failed(b, "write", -r, e) : 0;
}

/* The parts of one page, whose bytes are at *at, which moves on. */
static int ram_write_parts_of(struct ram_writer *p, const struct ram_scratch *s,
			      struct ram_part *part, uint8_t parts, uint8_t **at, struct err *e)
{
	unsigned int first = 0, end;
	int r = 0;

	while (!r && first < WIRE_PAGE_PARTS) {
		for (end = first; end < WIRE_PAGE_PARTS && parts >> end & 1; end++)
			;
		if (end > first) {
			part->bytes = *at;
			*at += (end - first) * WIRE_PART;
			r = ram_write_run(p, s, part, first * WIRE_PART, (end - first) * WIRE_PART,
					  e);
		}
		first = end + 1;
	}
	return r;
}

/* Pages of an extent. A file takes one thread at a time, see ram_write_parts(). */
static int ram_write_changed(struct ram_writer *p, const struct wire_extent *x,
			     const struct ram_scratch *s, const uint8_t *parts, uint8_t **at,
			     struct err *e)
{
	bool file = !p->base[x->block] && !p->vm->blocks[x->block].hva;
	int r = ram_check_placed(p, x, e);

	if (r)
		return r;
	if (file)
		pthread_mutex_lock(&p->file_lock[x->block]);
	for (uint32_t i = 0; i < x->pages && !r; i++) {
		struct ram_part part = { .first = x->first + i, .pages = 1, .block = x->block };

		r = ram_write_parts_of(p, s, &part, parts[i], at, e);
	}
	if (file)
		pthread_mutex_unlock(&p->file_lock[x->block]);
	return r;
}

/* Receives the bytes of a DELTA frame into the buffer. */
static int ram_receive_changed(struct ram_writer *p, struct channel *ch,
			       const struct wire_header *h, const struct wire_extent *x,
			       struct ram_scratch *s, uint8_t *parts, struct err *e)
{
	uint8_t head[WIRE_PACKED_HEAD + WIRE_PARTS_MAX];
	const uint32_t pages = wire_parts(x, h->arg), len = WIRE_PACKED_HEAD + pages;
	uint64_t number;
	uint32_t bytes;
	int r;

	r = channel_body(ch, head, len, e);
	if (r)
		return r;
	if (wire_get_delta(h, x, head, len, &number, &bytes))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed DELTA frame");
	memcpy(parts, head + WIRE_PACKED_HEAD, pages);
	if (!number)
		return channel_body(ch, s->buf, bytes, e);
	return ram_unpack(p, ch, number, h->length - h->arg * WIRE_EXTENT - len, s, bytes, e);
}

int ram_write_delta(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		    const struct wire_extent *x, struct ram_scratch *s, struct err *e)
{
	uint8_t parts[WIRE_PARTS_MAX], *part = parts, *at = s->buf;
	int r;

	if (!(p->features & WIRE_DELTAS))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent parts of pages, which was not agreed on");
	r = ram_receive_changed(p, ch, h, x, s, parts, e);
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		if (x[i].kind == WIRE_DATA) {
			r = ram_write_extent(p, &x[i], s, at, e);
			at += (size_t)x[i].pages * PAGE_BYTES;
		} else if (x[i].kind == WIRE_PARTS) {
			r = ram_write_changed(p, &x[i], s, part, &at, e);
			part += x[i].pages;
		}
	}
	return r;
}
