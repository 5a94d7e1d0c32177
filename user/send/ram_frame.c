// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "send/ram_frame.h"

int ram_framer_flush(struct ram_framer *f, struct err *e)
{
	struct ram_frame *frame = f->frame;
	uint64_t bytes;
	int r = 0;

	if (!frame)
		return 0;
	f->frame = NULL;
	bytes = WIRE_HEADER + frame->nr * WIRE_EXTENT + frame->bytes;
	if (f->pace)
		r = channel_pause(f->ch, pace_take(f->pace, bytes, now_ns()), e);
	return r ? r : channel_push(f->ch, frame, e);
}

/*
 * How many pages the frame under construction can take at least. If the frame is full it is sent
 * first, and a new one begun.
 */
static int ram_framer_room(struct ram_framer *f, uint64_t *pages, struct err *e)
{
	uint32_t limit = f->pace ? pace_burst(f->pace) : UINT32_MAX;
	int r;

	if (limit > FRAME_BYTES)
		limit = FRAME_BYTES;
	if (f->frame && (f->frame->nr == WIRE_EXTENTS_MAX || f->frame->used >= limit)) {
		r = ram_framer_flush(f, e);
		if (r)
			return r;
	}
	if (!f->frame) {
		r = channel_frame(f->ch, &f->frame, e);
		if (r)
			return r;
	}
	*pages = (limit - f->frame->used) / PAGE_BYTES;
	if (*pages > WIRE_EXTENTS_MAX - f->frame->nr)
		*pages = WIRE_EXTENTS_MAX - f->frame->nr;
	return 0;
}

/* Adds pages that follow each other: to the last extent, if they continue it. */
static void ram_frame_extend(struct ram_frame *frame, unsigned int block, uint16_t kind,
			     uint64_t first, uint32_t pages)
{
	struct wire_extent *x = frame->nr ? &frame->extents[frame->nr - 1] : NULL;

	if (x && x->block == block && x->kind == kind && x->first + x->pages == first &&
	    pages <= UINT32_MAX - x->pages)
		x->pages += pages;
	else
		frame->extents[frame->nr++] = (struct wire_extent) {
			.block = (uint16_t)block, .kind = kind, .pages = pages, .first = first,
		};
}

/* used: how much of the frame's buffer is used once this page is in it. */
static void ram_framer_add(struct ram_framer *f, unsigned int block, uint64_t page, uint8_t *bytes,
			   uint32_t used)
{
	struct ram_frame *frame = f->frame;
	struct iovec *iov = frame->nr_iov ? &frame->iov[frame->nr_iov - 1] : NULL;

	if (zero_filter_best()->is_zero(bytes)) {
		ram_frame_extend(frame, block, WIRE_ZERO, page, 1);
		f->count.zero_pages++;
		return;
	}
	ram_frame_extend(frame, block, WIRE_DATA, page, 1);
	f->count.data_pages++;
	frame->bytes += PAGE_BYTES;
	frame->used = used;
	if (iov && (uint8_t *)iov->iov_base + iov->iov_len == bytes)
		iov->iov_len += PAGE_BYTES;
	else
		frame->iov[frame->nr_iov++] = (struct iovec) { bytes, PAGE_BYTES };
}

/*
 * Are these pages of a mapping in memory? Only then are they read there. The read of a hole would
 * allocate a page, and where the tmpfs is full the kernel would answer with SIGBUS; pread() reads
 * zeros, and allocates nothing.
 */
static bool ram_framer_in_memory(uint8_t *at, uint64_t n)
{
	unsigned char in_memory[FRAME_PAGES];

	if (mincore(at, n * PAGE_BYTES, in_memory))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!(in_memory[i] & 1))
			return false;
	return true;
}

static int ram_framer_send_run(struct ram_framer *f, unsigned int block, struct run run,
			       struct err *e)
{
	const struct ram_block *b = &f->vm->blocks[block];
	uint8_t *base = f->base[block];

	while (run.count) {
		uint32_t used;
		uint64_t n;
		uint8_t *at;
		int r = ram_framer_room(f, &n, e);

		if (r)
			return r;
		if (n > run.count)
			n = run.count;
		used = f->frame->used;
		at = base ? base + run.first * PAGE_BYTES : NULL;
		if (!at || !ram_framer_in_memory(at, n)) {
			at = f->frame->buf + used;
			r = ram_ops(b)->read(b, run.first, n, at, e);
		}
		/* Zeros fill no frame, and an earlier frame may be half sent. */
		if (!r)
			r = channel_go_on(f->ch, e);
		if (r)
			return r;
		for (uint64_t i = 0; i < n; i++)
			ram_framer_add(f, block, run.first + i, at + i * PAGE_BYTES,
				       used + (uint32_t)(i + 1) * PAGE_BYTES);
		run.first += n;
		run.count -= n;
	}
	return 0;
}

static int ram_framer_send_hole(struct ram_framer *f, unsigned int block, struct run run,
				struct err *e)
{
	while (run.count) {
		uint32_t n = run.count < UINT32_MAX ? (uint32_t)run.count : UINT32_MAX;
		uint64_t unused;
		int r = ram_framer_room(f, &unused, e);

		if (r)
			return r;
		ram_frame_extend(f->frame, block, WIRE_ZERO, run.first, n);
		run.first += n;
		run.count -= n;
	}
	return 0;
}

int ram_framer_send(struct ram_framer *f, const struct round_piece *p, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < p->nr && !r; i++)
		r = p->hole ? ram_framer_send_hole(f, p->block, p->runs[i], e) :
			      ram_framer_send_run(f, p->block, p->runs[i], e);
	return r;
}
