// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/sock.h"
#include "send/ram_frame.h"

void round_count_add(struct round_count *sum, const struct round_count *more)
{
	sum->data_pages += more->data_pages;
	sum->zero_pages += more->zero_pages;
	sum->same_pages += more->same_pages;
	sum->page_bytes += more->page_bytes;
	for (unsigned int i = 0; i < CODECS; i++)
		sum->packed_pages[i] += more->packed_pages[i];
	sum->delta_pages += more->delta_pages;
	sum->delta_bytes += more->delta_bytes;
	sum->unchanged_pages += more->unchanged_pages;
	sum->reused_pages += more->reused_pages;
	sum->reused_bytes += more->reused_bytes;
}

void round_count_subtract(struct round_count *from, const struct round_count *part)
{
	from->data_pages -= part->data_pages;
	from->zero_pages -= part->zero_pages;
	from->same_pages -= part->same_pages;
	from->page_bytes -= part->page_bytes;
	from->delta_pages -= part->delta_pages;
	from->delta_bytes -= part->delta_bytes;
	from->unchanged_pages -= part->unchanged_pages;
	from->reused_pages -= part->reused_pages;
	from->reused_bytes -= part->reused_bytes;
	for (unsigned int i = 0; i < CODECS; i++)
		from->packed_pages[i] -= part->packed_pages[i];
}

double round_count_page(const struct round_count *c)
{
	const uint64_t pages = c->data_pages + c->unchanged_pages;

	if (!pages)
		return 0;
	return (double)(c->page_bytes ? c->page_bytes : 1) / (double)pages;
}

void ram_packing_begin(struct ram_packing *p, uint32_t wish)
{
	const struct codec_wish w = codec_word_wish(wish);

	p->wish = wish;
	codec_chooser_init(&p->chooser, &w, p->features);
}

void ram_packing_free(struct ram_packing *p)
{
	codec_states_free(&p->states);
	free(p->gathered);
	p->gathered = NULL;
	reuse_hasher_close(&p->hasher);
}

/* The pages one behind the other, where nothing else writes. NULL: no memory. */
static const uint8_t *ram_frame_gather(const struct ram_frame *frame, struct ram_packing *p)
{
	uint8_t *at = frame->iov[0].iov_base;

	if (frame->nr_iov == 1 && at >= frame->buf && at < frame->buf + FRAME_BYTES)
		return at;
	if (!p->gathered)
		p->gathered = malloc(FRAME_BYTES);
	at = p->gathered;
	for (unsigned int i = 0; at && i < frame->nr_iov; i++)
		at = mempcpy(at, frame->iov[i].iov_base, frame->iov[i].iov_len);
	return p->gathered;
}

static void ram_frame_pack(struct ram_frame *frame, struct ram_packing *p,
			   const struct codec_choice *choice)
{
	const uint8_t *in;
	size_t n;

	thread_slots_take(p->slots);
	in = ram_frame_gather(frame, p);
	n = in ? codec_pack(&p->states, choice, in, frame->bytes, frame->packed,
			    codec_worth(frame->bytes)) : 0;
	thread_slots_give(p->slots);
	if (!n)
		return;
	frame->codec = choice->codec->number;
	frame->packed_bytes = (uint32_t)n;
}

/* The frame is ready, of so many bytes; made_ns: how long it took to pack it. */
static void ram_framer_look(const struct ram_framer *f, const struct ram_frame *frame,
			    uint32_t bytes, uint64_t made_ns)
{
	struct ram_packing *p = f->packing;
	const uint64_t load = atomic_load_explicit(p->load, memory_order_relaxed);
	struct codec_seen seen = {
		.now_ns = now_ns(), .pages = frame->pages, .made_ns = made_ns,
		.bytes = bytes, .paced_ns = p->paced_ns, .loads = load >> RAM_LOAD_BITS,
		.load = load & ((1u << RAM_LOAD_BITS) - 1),
	};

	if (codec_chooser_asks(&p->chooser, channel_queued(f->ch), seen.pages, bytes)) {
		const struct sock_progress tcp = sock_progress(channel_fd(f->ch));

		seen.acked = tcp.acked;
		seen.waiting = channel_queued_bytes(f->ch) + tcp.waiting;
	}
	codec_choose(&p->chooser, &seen);
}

static void ram_framer_pack(struct ram_framer *f, struct ram_frame *frame)
{
	const struct codec_choice *choice;
	uint32_t bytes = frame->bytes;
	uint64_t made_ns = 0;

	if (f->packing) {
		/* A stale word costs nothing: some frame after this one sees the new one. */
		uint32_t wish = atomic_load_explicit(f->packing->compress, memory_order_relaxed);

		if (wish != f->packing->wish)
			ram_packing_begin(f->packing, wish);
		choice = codec_chosen(&f->packing->chooser);
		if (choice->codec) {
			const uint64_t began_ns = now_ns();

			ram_frame_pack(frame, f->packing, choice);
			made_ns = now_ns() - began_ns;
		}
	}
	if (frame->codec) {
		bytes = frame->packed_bytes;
		f->count.packed_pages[frame->codec - 1] += frame->pages;
	}
	f->count.page_bytes += bytes + frame->nr_parts;
	/* With one step there is nothing to choose. */
	if (f->packing && !f->packing->keeps && f->packing->chooser.n > 1)
		ram_framer_look(f, frame, bytes, made_ns);
}

/* bytes: of a frame that is to be sent. */
static int ram_framer_keep_pace(struct ram_framer *f, uint64_t bytes, struct err *e)
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

static int ram_framer_push_references(struct ram_framer *f, struct err *e)
{
	struct ram_frame *frame = f->references;
	uint64_t bytes;
	int r = 0;

	if (!frame)
		return 0;
	bytes = WIRE_HEADER + frame->references * WIRE_REFERENCE;
	f->references = NULL;
	f->count.reused_bytes += bytes;
	if (f->pace)
		r = ram_framer_keep_pace(f, bytes, e);
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

#define FEW_HASHED	65536u	/* 256 MiB */
#define FEW_FOUND	100u

/*
 * Is it worth to hash a page? Not if of so many, with all entries known, not one of a hundred was
 * found: a CPU hashes no faster than a good link sends.
 */
static bool ram_framer_may_refer(const struct ram_framer *f)
{
	if (!f->reuse || !f->reuse->table || f->last || atomic_load(&f->reuse->off) ||
	    !reuse_table_entries(f->reuse->table))
		return false;
	return f->packing->hashed < FEW_HASHED ||
	       f->packing->found >= f->packing->hashed / FEW_FOUND;
}

/* Does the receiver have such a page in its file? Nothing refers to it in the last round. */
static bool ram_framer_refers(struct ram_framer *f, const uint8_t *bytes, uint64_t *entry)
{
	struct reuse_hasher *h;
	uint64_t hash[2];
	bool found;

	if (!ram_framer_may_refer(f))
		return false;
	h = &f->packing->hasher;
	if (!h->key && !reuse_hasher_open(h, reuse_table_key(f->reuse->table))) {
		h->key = NULL;
		return false;
	}
	found = reuse_hash(h, bytes, hash) && reuse_table_find(f->reuse->table, hash, entry);
	if (atomic_load(&f->reuse->complete)) {
		f->packing->hashed++;
		f->packing->found += found;
	}
	return found;
}

static int ram_framer_add_reference(struct ram_framer *f, unsigned int block, uint64_t page,
				    uint64_t entry, struct err *e)
{
	struct wire_reference *ref = &f->reference;
	int r = 0;

	f->count.reused_pages++;
	if (f->references && (f->references->references == WIRE_REFERENCES_MAX ||
			      f->referred == WIRE_REFERRED_MAX))
		r = ram_framer_push_references(f, e);
	if (!r && !f->references) {
		r = channel_frame(f->ch, &f->references, e);
		*ref = (struct wire_reference) { .entry = UINT64_MAX };
		f->referred = 0;
	}
	if (r)
		return r;
	if (ref->x.pages && ref->x.block == block && ref->x.first + ref->x.pages == page &&
	    ref->entry + ref->x.pages == entry) {
		ref->x.pages++;
	} else {
		f->references->references++;
		*ref = (struct wire_reference) {
			.x = {
				.block = (uint16_t)block, .kind = WIRE_DATA, .pages = 1,
				.first = page,
			},
			.entry = entry,
		};
	}
	f->referred++;
	wire_put_reference(f->references->buf +
			   (f->references->references - 1) * WIRE_REFERENCE, ref);
	return 0;
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
	uint64_t entry;

	if (zero_filter_best()->is_zero(bytes)) {
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
