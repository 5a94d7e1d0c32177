// SPDX-License-Identifier: GPL-2.0-only
/* Frames on their way out: their buffers, and what is put together for the queue. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "net/channel_internal.h"
#include "wire/reuse.h"

static struct slot *free_slot(struct channel *ch)
{
	for (unsigned int i = 0; i < CHANNEL_SLOTS && ch->queued < CHANNEL_FRAMES; i++)
		if (!ch->slots[i].busy && !ch->engine->held[i])
			return &ch->slots[i];
	return NULL;
}

/* Waits for one to become free. */
static int get_slot(struct channel *ch, struct slot **out, struct err *e)
{
	uint64_t deadline = channel_patience(ch);
	int r;

	while (!(*out = free_slot(ch))) {
		const uint64_t sent = ch->sent, released = ch->engine->released;

		r = channel_wait(ch, deadline, e);
		if (r)
			return r;
		if (ch->sent != sent || ch->engine->released != released)
			deadline = channel_patience(ch);
	}
	(*out)->busy = true;
	return 0;
}

/* The vector of the slot is filled in: it is the next to be sent. */
static void enqueue(struct channel *ch, struct slot *slot, size_t nr_iov)
{
	assert(ch->queued < sizeof(ch->queue) / sizeof(ch->queue[0]));
	slot->msg = (struct msghdr) { .msg_iov = slot->iov, .msg_iovlen = nr_iov };
	ch->queue[ch->queued++] = slot;
	channel_start_send(ch);
}

int channel_frame(struct channel *ch, struct ram_frame **out, struct err *e)
{
	struct slot *slot;
	int r = get_slot(ch, &slot, e);

	if (r)
		return r;
	if (!slot->head) {
		void *p = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED) {
			slot->busy = false;
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		}
		slot->head = p;
		slot->frame.buf = slot->head + HEAD_MAPPED;
		slot->frame.packed = slot->frame.buf + FRAME_BYTES;
	}
	slot->frame.nr = slot->frame.nr_iov = slot->frame.bytes = slot->frame.used = 0;
	slot->frame.same = slot->frame.codec = slot->frame.pages = slot->frame.nr_parts = 0;
	slot->frame.references = 0;
	*out = &slot->frame;
	return 0;
}

unsigned int channel_queued(const struct channel *ch)
{
	return ch->queued;
}

uint64_t channel_queued_bytes(const struct channel *ch)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < ch->queued; i++)
		for (size_t k = 0; k < ch->queue[i]->msg.msg_iovlen; k++)
			sum += ch->queue[i]->msg.msg_iov[k].iov_len;
	return sum;
}

int channel_go_on(struct channel *ch, struct err *e)
{
	uint64_t before;
	int r;

	if (!ch->queued)
		return 0;
	do {
		before = ch->sent;
		r = channel_engine_wait(ch, 0, e);
		if (!r)
			r = channel_reap(ch, e);
	} while (!r && ch->sent != before && ch->queued);
	return r;
}

/* Behind the extents stand the codec's number, and what there is of the pages in parts. */
static void channel_put_block(struct slot *slot, struct wire_header *h, size_t *head)
{
	const struct ram_frame *f = &slot->frame;
	uint32_t bytes = f->codec ? f->packed_bytes : f->bytes;

	h->type = f->nr_parts ? WIRE_DELTA : WIRE_PACKED;
	h->length = f->nr * WIRE_EXTENT + WIRE_PACKED_HEAD + f->nr_parts + bytes;
	wire_put_u64(slot->head + *head, f->codec);
	*head += WIRE_PACKED_HEAD;
	memcpy(slot->head + *head, f->parts, f->nr_parts);
	*head += f->nr_parts;
}

static int channel_push_references(struct channel *ch, struct slot *slot, struct err *e)
{
	const struct wire_header h = {
		.type = WIRE_REFERENCES, .arg = slot->frame.references,
		.length = slot->frame.references * WIRE_REFERENCE,
	};

	static_assert(WIRE_REFERENCES_MAX * WIRE_REFERENCE <= FRAME_BYTES, "a buffer has room");
	wire_put_header(slot->head, &h);
	slot->iov[0] = (struct iovec) { slot->head, WIRE_HEADER };
	slot->iov[1] = (struct iovec) { slot->frame.buf, h.length };
	enqueue(ch, slot, 2);
	return channel_go_on(ch, e);
}

int channel_push(struct channel *ch, struct ram_frame *f, struct err *e)
{
	struct slot *slot = (struct slot *)f;	/* its first member */
	struct wire_header h = {
		.type = WIRE_RAM, .arg = f->nr, .length = f->nr * WIRE_EXTENT + f->bytes,
	};
	size_t head = WIRE_HEADER + f->nr * WIRE_EXTENT;

	if (f->references)
		return channel_push_references(ch, slot, e);
	if (!f->nr) {
		slot->busy = false;
		return 0;
	}
	for (unsigned int i = 0; i < f->nr; i++)
		wire_put_extent(slot->head + WIRE_HEADER + i * WIRE_EXTENT, &f->extents[i]);
	if (f->codec || f->nr_parts)
		channel_put_block(slot, &h, &head);
	wire_put_header(slot->head, &h);
	slot->iov[0] = (struct iovec) { slot->head, head };
	if (f->codec)
		slot->iov[1] = (struct iovec) { f->packed, f->packed_bytes };
	else
		memcpy(&slot->iov[1], f->iov, f->nr_iov * sizeof(f->iov[0]));
	enqueue(ch, slot, f->codec ? 2 : f->nr_iov + 1);
	return channel_go_on(ch, e);
}

int channel_flush(struct channel *ch, struct err *e)
{
	uint64_t deadline = channel_patience(ch);
	uint64_t before = ch->sent;
	int r;

	while (ch->queued) {
		/* What could not be sent never will be: nothing would end this wait. */
		r = ch->broken ? channel_lost(ch, EPIPE, e) : channel_wait(ch, deadline, e);
		if (r)
			return r;
		if (ch->sent != before)
			deadline = channel_patience(ch);
		before = ch->sent;
	}
	return 0;
}

int channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e)
{
	struct ram_frame *f;
	struct slot *slot;
	int r;

	/* Where there is always room, no wait ever looks. */
	r = channel_given_up(ch, e);
	if (!r)
		r = channel_flush(ch, e);
	if (!r)
		r = channel_frame(ch, &f, e);
	if (r)
		return r;
	slot = (struct slot *)f;	/* its first member */
	static_assert(WIRE_DEVICE_MAX <= FRAME_BYTES && WIRE_HASHES_MAX * WIRE_HASH < FRAME_BYTES &&
		      WIRE_PRIVATE_MAX + WIRE_EXTENTS_MAX * WIRE_EXTENT <= FRAME_BYTES, "a frame's buffer holds every body");
	wire_put_header(slot->head, h);
	/* A copy: if this is given up in the middle, an ABORT must still follow the rest. */
	if (h->length)
		memcpy(f->buf, body, h->length);
	slot->iov[0] = (struct iovec) { slot->head, WIRE_HEADER };
	slot->iov[1] = (struct iovec) { f->buf, h->length };
	enqueue(ch, slot, h->length ? 2 : 1);
	return channel_flush(ch, e);
}
