// SPDX-License-Identifier: GPL-2.0-only
/*
 * REFERENCES frames: pages that the receiver has in a file.
 *
 * The file may have changed since the sender was told what it has. So each page is read now, hashed
 * again, and placed from the buffer that was hashed. What has another hash, or is not there any
 * more, is refused (wire/reuse.h): the sender sends it again, and whole. Until then the page is
 * what it was. Parts of it that come meanwhile, from a sender that does not know yet, make no page,
 * and are no error: so it counts as placed.
 *
 * A frame is 16 MiB of the file, from anywhere in it: a disk that seeks for each page, or a network
 * file system, may take longer for it than the link would. What has not been read within SLOW_NS is
 * refused as well, and with that the sender refers to nothing any more.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "page/page.h"
#include "place/ram_write_internal.h"

static_assert(REUSE_READ_PAGES * PAGE_BYTES <= RAM_WRITER_BUFFER, "pages are read in one step");
#define SLOW_NS	2000000000ull	/* 8 MiB/s */

static_assert(WIRE_REFERENCES_MAX * WIRE_REFERENCE <= WIRE_PACKED_MAX, "a frame fits the buffer");

int ram_writer_reuse(struct ram_writer *p, struct reuse_index *ix, struct err *e)
{
	for (unsigned int i = 0; i < p->vm->nblocks; i++) {
		p->refused[i] = calloc(p->pages[i] / 64 + 1, sizeof(*p->refused[i]));
		if (!p->refused[i])
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	p->reuse = ix;
	return 0;
}

static void ram_reuse_refuse(struct ram_writer *p, const struct wire_extent *x)
{
	bitmap_set_shared(p->placed[x->block], x->first, x->pages);
	bitmap_set_shared(p->refused[x->block], x->first, x->pages);
	atomic_fetch_add(&p->refused_pages, x->pages);
}

/* Pages in the buffer. good: a bit for each that is what it should be. */
static int ram_place_good(struct ram_writer *p, const struct wire_extent *all, uint64_t good,
			  const struct ram_scratch *s, struct ram_writer_count *count,
			  struct err *e)
{
	unsigned int from = 0, end;
	int r = 0;

	for (; from < all->pages && !r; from = end) {
		const bool is_good = good >> from & 1;
		struct wire_extent x = *all;

		for (end = from + 1; end < all->pages && (good >> end & 1) == is_good; end++)
			;
		x.first += from;
		x.pages = end - from;
		if (is_good) {
			count->reused_pages += x.pages;
			r = ram_write_extent(p, &x, s, s->buf + (size_t)from * PAGE_BYTES, e);
		} else {
			ram_reuse_refuse(p, &x);
		}
	}
	return r;
}

static int ram_write_reference(struct ram_writer *p, const struct wire_reference *ref,
			       uint64_t until, const struct ram_scratch *s,
			       struct ram_writer_count *count, struct err *e)
{
	int r = 0;

	for (uint32_t done = 0; done < ref->x.pages && !r; done += REUSE_READ_PAGES) {
		struct wire_extent x = ref->x;

		x.first += done;
		x.pages -= done;
		if (x.pages > REUSE_READ_PAGES)
			x.pages = REUSE_READ_PAGES;
		if (now_ns() > until) {
			atomic_store(&p->slow, true);
			ram_reuse_refuse(p, &x);
			continue;
		}
		if (s->step)
			s->step(s->step_arg);
		r = ram_place_good(p, &x, reuse_index_read(p->reuse, &s->hasher, ref->entry + done,
							   x.pages, s->buf), s, count, e);
	}
	return r;
}

int ram_write_reused(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, struct ram_writer_count *count, struct err *e)
{
	struct wire_reference refs[WIRE_REFERENCES_MAX];
	/* Frames that are on their way already are not waited for either. */
	const uint64_t until = atomic_load(&p->slow) ? 0 : now_ns() + SLOW_NS;
	int r = channel_body(ch, s->packed, h->length, e);

	if (r)
		return r;
	if (!p->reuse || p->lazy)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender referred to pages of a file, which was not agreed on");
	if (wire_get_references(h, s->packed, p->pages, p->vm->nblocks,
				reuse_index_said(p->reuse), refs))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed REFERENCES frame");
	if (!s->hasher.key && !reuse_hasher_open(&s->hasher, reuse_index_key(p->reuse)))
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < h->arg && !r; i++)
		r = ram_write_reference(p, &refs[i], until, s, count, e);
	return r;
}
