// SPDX-License-Identifier: GPL-2.0-only
/* A frame of owed pages, extent by extent: the parts of a unit have to come in their order. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "place/ram_write_internal.h"

#define BUFFER_PAGES	(RAM_WRITER_BUFFER / PAGE_BYTES)

/* buf: what goes there; ch: reads into it before, each time; NULL: it stays the same. */
static int ram_lazy_buffers(struct ram_writer *p, struct channel *ch, const struct wire_extent *x,
			    uint8_t *buf, struct ram_scratch *s, struct err *e)
{
	int r = 0;

	for (uint32_t done = 0; done < x->pages && !r;) {
		uint32_t n = x->pages - done < BUFFER_PAGES ? x->pages - done : BUFFER_PAGES;

		r = ch ? channel_body(ch, buf, (size_t)n * PAGE_BYTES, e) : 0;
		if (!r)
			r = lazy_put(p->lazy, x->block, x->first + done, n, buf, &s->part, e);
		done += n;
	}
	return r;
}

static int ram_lazy_same(struct ram_writer *p, const struct wire_extent *x, struct ram_scratch *s,
			 struct err *e)
{
	/* What was packed is unpacked by now. */
	static_assert(WIRE_PACKED_MAX == RAM_WRITER_BUFFER, "both buffers are of one size");
	memset(s->packed, WIRE_SAME_BYTE(x->kind),
	       (size_t)(x->pages < BUFFER_PAGES ? x->pages : BUFFER_PAGES) * PAGE_BYTES);
	return ram_lazy_buffers(p, NULL, x, s->packed, s, e);
}

/* bytes: of WIRE_DATA, unpacked already; NULL: the channel has them. */
static int ram_lazy_extent(struct ram_writer *p, struct channel *ch, const struct wire_extent *x,
			   const uint8_t *bytes, struct ram_scratch *s, struct err *e)
{
	int r = s->answers ? faults_answered(s->answers, x, e) : 0;

	if (r)
		return r;
	if (x->kind == WIRE_ZERO)
		return lazy_put(p->lazy, x->block, x->first, x->pages, NULL, &s->part, e);
	if (x->kind == WIRE_DATA && bytes)
		return lazy_put(p->lazy, x->block, x->first, x->pages, bytes, &s->part, e);
	if (x->kind == WIRE_DATA)
		return ram_lazy_buffers(p, ch, x, s->buf, s, e);
	return ram_lazy_same(p, x, s, e);
}

int ram_lazy_extents(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     const struct wire_extent *x, struct ram_scratch *s,
		     struct ram_writer_count *count, struct err *e)
{
	const uint8_t *bytes = NULL;
	size_t sum = 0;
	int r = 0;

	/* There is no page here for them: what is owed was taken away. */
	if (h->type == WIRE_DELTA)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent parts of pages after the last round");
	for (unsigned int i = 0; i < h->arg; i++)
		sum += x[i].kind == WIRE_DATA ? (size_t)x[i].pages * PAGE_BYTES : 0;
	if (h->type == WIRE_PACKED) {
		r = ram_unpack_pages(p, ch, h, s, sum, e);
		bytes = s->buf;
	}
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		r = ram_lazy_extent(p, ch, &x[i], bytes, s, e);
		if (x[i].kind == WIRE_ZERO)
			count->zero_pages += x[i].pages;
		else
			count->data_pages += x[i].pages;
		if (bytes && x[i].kind == WIRE_DATA)
			bytes += (size_t)x[i].pages * PAGE_BYTES;
	}
	return r;
}
