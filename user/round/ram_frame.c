// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "round/ram_frame_internal.h"

int ram_framer_keep_pace(struct ram_framer *f, uint64_t bytes, struct err *e)
{
	uint64_t now = now_ns(), at = pace_take(f->pace, bytes, now);

	if (f->packing)
		f->packing->paced_ns = at > now ? at - now : 0;
	return channel_pause(f->ch, at, e);
}

static uint64_t ram_frame_bytes(const struct ram_frame *frame)
{
	uint64_t bytes = WIRE_HEADER + frame->nr * WIRE_EXTENT;

	bytes += frame->codec ? frame->packed_bytes : frame->bytes;
	if (frame->codec || frame->nr_parts)
		bytes += WIRE_PACKED_HEAD + frame->nr_parts;
	return bytes;
}

static int ram_framer_push(struct ram_framer *f, struct err *e)
{
	struct ram_frame *frame = f->frame;
	int r = 0;

	if (!frame)
		return 0;
	f->frame = NULL;
	if (frame->bytes)
		ram_framer_pack(f, frame);
	if (f->pace)
		r = ram_framer_keep_pace(f, ram_frame_bytes(frame), e);
	return r ? r : channel_push(f->ch, frame, e);
}

int ram_framer_flush(struct ram_framer *f, struct err *e)
{
	int r = ram_framer_push(f, e);

	return r ? r : ram_framer_push_references(f, e);
}

/* limit: bytes of the buffer. */
static bool ram_frame_is_full(const struct ram_frame *frame, uint32_t limit)
{
	return frame->nr == WIRE_EXTENTS_MAX || frame->nr_iov == FRAME_PAGES ||
	       frame->used + PAGE_BYTES > limit || frame->same > WIRE_SAME_MAX - FRAME_PAGES;
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
	if (f->frame && ram_frame_is_full(f->frame, limit)) {
		r = ram_framer_push(f, e);
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
	if (*pages > FRAME_PAGES - f->frame->nr_iov)
		*pages = FRAME_PAGES - f->frame->nr_iov;
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

/* Has the page hashes, or is it to get some? In the last round its stripe may be shared: none. */
static bool ram_framer_compares(const struct ram_framer *f, unsigned int block, uint64_t page)
{
	bool make;

	if (!f->delta)
		return false;
	make = !f->last && (f->delta_always || codec_chosen(&f->packing->chooser)->codec);
	return delta_takes(f->delta, block, page, make);
}

/* The page is sent as a byte. */
static void ram_framer_forget(const struct ram_framer *f, unsigned int block, uint64_t page)
{
	if (f->delta && !f->last)
		delta_forget(f->delta, block, page, 1);
}

/* Page bytes in a frame, behind those that it has. used: of its buffer, with them. */
static void ram_frame_put(struct ram_frame *frame, uint8_t *bytes, uint32_t n, uint32_t used)
{
	struct iovec *iov = frame->nr_iov ? &frame->iov[frame->nr_iov - 1] : NULL;

	frame->pages++;
	frame->bytes += n;
	frame->used = used;
	if (iov && (uint8_t *)iov->iov_base + iov->iov_len == bytes)
		iov->iov_len += n;
	else
		frame->iov[frame->nr_iov++] = (struct iovec) { bytes, n };
}

/*
 * A page as what has changed of it. It is copied to where the frame's buffer is free: forward from
 * further behind there, or out of a mapping, where the guest may write to it meanwhile. What is
 * hashed is the copy, as that is sent.
 */
static int ram_framer_add_changed(struct ram_framer *f, unsigned int block, uint64_t page,
				  const uint8_t *bytes, struct err *e)
{
	struct ram_frame *frame = f->frame;
	uint8_t *copy = memmove(frame->buf + frame->used, bytes, PAGE_BYTES), *end = copy;
	unsigned int parts = delta_changed(f->delta, block, page, copy, !f->last);
	uint64_t entry;
	uint32_t n;

	if (!parts) {
		f->count.unchanged_pages++;
		return 0;
	}
	/* The copy is what the receiver has then, as of a page that was sent. */
	if (ram_framer_refers(f, copy, &entry))
		return ram_framer_add_reference(f, block, page, entry, e);
	for (unsigned int i = 0; i < WIRE_PAGE_PARTS; i++) {
		if (!(parts >> i & 1))
			continue;
		memmove(end, copy + i * WIRE_PART, WIRE_PART);
		end += WIRE_PART;
	}
	n = (uint32_t)(end - copy);
	f->count.data_pages++;
	ram_frame_extend(frame, block, parts == DELTA_ALL ? WIRE_DATA : WIRE_PARTS, page, 1);
	ram_frame_put(frame, copy, n, frame->used + n);
	if (parts == DELTA_ALL)
		return 0;
	frame->parts[frame->nr_parts++] = (uint8_t)parts;
	f->count.delta_pages++;
	f->count.delta_bytes += n;
	return 0;
}

/* used: how much of the frame's buffer is used once this page is in it. */
static int ram_framer_add(struct ram_framer *f, unsigned int block, uint64_t page, uint8_t *bytes,
			  uint32_t used, struct err *e)
{
	struct ram_frame *frame = f->frame;
	const bool is_zero = zero_filter_best()->is_zero(bytes);
	uint64_t entry;

	if (f->zeros)
		zeros_note(f->zeros, block, page, is_zero);
	if (is_zero) {
		ram_frame_extend(frame, block, WIRE_ZERO, page, 1);
		f->count.zero_pages++;
		ram_framer_forget(f, block, page);
		return 0;
	}
	if (f->packing && f->packing->same && page_is_one_byte(bytes)) {
		/* Read once: from a mapping it may change meanwhile, and must not become zero. */
		uint8_t byte = *(const volatile uint8_t *)bytes;

		if (byte) {
			ram_frame_extend(frame, block, WIRE_SAME_OF(byte), page, 1);
			frame->same++;
			f->count.same_pages++;
			ram_framer_forget(f, block, page);
			return 0;
		}
	}
	if (ram_framer_compares(f, block, page))
		return ram_framer_add_changed(f, block, page, bytes, e);
	if (ram_framer_refers(f, bytes, &entry))
		return ram_framer_add_reference(f, block, page, entry, e);
	ram_frame_extend(frame, block, WIRE_DATA, page, 1);
	f->count.data_pages++;
	ram_frame_put(frame, bytes, PAGE_BYTES, used);
	return 0;
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
		for (uint64_t i = 0; i < n && !r; i++)
			r = ram_framer_add(f, block, run.first + i, at + i * PAGE_BYTES,
					   used + (uint32_t)(i + 1) * PAGE_BYTES, e);
		if (r)
			return r;
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
