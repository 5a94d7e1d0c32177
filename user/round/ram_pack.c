// SPDX-License-Identifier: GPL-2.0-only
/* A frame becomes one block of a codec, if that makes it shorter (codec/choose.h). */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/sock.h"
#include "round/ram_frame_internal.h"

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

void ram_framer_pack(struct ram_framer *f, struct ram_frame *frame)
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
