// SPDX-License-Identifier: GPL-2.0-only
/*
 * No dirty log covers private RAM: the sender keeps a copy and compares. 17 MiB take some 4 ms of
 * the blackout.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "page/page.h"
#include "peer/hello.h"
#include "peer/private_ram_frames.h"

#define CHUNK_PAGES	(WIRE_PRIVATE_MAX / PAGE_BYTES)

/* @pages is aligned as the zero filter needs it. */
struct chunk {
	_Alignas(64) uint8_t pages[WIRE_PRIVATE_MAX];
	uint8_t body[CHUNK_PAGES * WIRE_EXTENT + WIRE_PRIVATE_MAX];
	struct wire_extent extents[WIRE_EXTENTS_MAX];
};

static int frames_no_memory(struct err *e)
{
	return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

static struct chunk *frames_chunk_new(void)
{
	return aligned_alloc(_Alignof(struct chunk), sizeof(struct chunk));
}

/* Adds a page to the last extent if the page continues it, else a new one. Returns how many. */
static unsigned int frames_describe(struct wire_extent *x, unsigned int n, unsigned int block,
				    uint64_t page, enum wire_kind kind)
{
	struct wire_extent *last = n ? &x[n - 1] : NULL;

	if (last && last->kind == kind && last->first + last->pages == page) {
		last->pages++;
		return n;
	}
	x[n] = (struct wire_extent) {
		.block = (uint16_t)block, .kind = kind, .pages = 1, .first = page
	};
	return n + 1;
}

/*
 * Sends c->pages, which are pages of block from first on: those that differ from the copy, or all.
 */
static int frames_send_chunk(struct chunk *c, bool all, unsigned int block, uint64_t first,
			     uint64_t pages, uint8_t *copy, const struct frame_out *to,
			     uint64_t *bytes, struct err *e)
{
	const struct zero_filter *filter = zero_filter_best();
	struct wire_header h = { .type = WIRE_PRIVATE };
	uint8_t *data = c->body + CHUNK_PAGES * WIRE_EXTENT, *start;
	size_t len = 0;

	for (uint64_t i = 0; i < pages; i++) {
		const uint8_t *page = c->pages + i * PAGE_BYTES;
		bool zero;

		if (!all && !memcmp(page, copy + i * PAGE_BYTES, PAGE_BYTES))
			continue;
		memcpy(copy + i * PAGE_BYTES, page, PAGE_BYTES);
		zero = filter->is_zero(page);
		h.arg = frames_describe(c->extents, h.arg, block, first + i,
					zero ? WIRE_ZERO : WIRE_DATA);
		if (!zero) {
			memcpy(data + len, page, PAGE_BYTES);
			len += PAGE_BYTES;
		}
	}
	if (!h.arg)
		return 0;
	/* The frame's body is one piece: the extents go just before the page bytes. */
	start = data - h.arg * WIRE_EXTENT;
	for (uint32_t i = 0; i < h.arg; i++)
		wire_put_extent(start + i * WIRE_EXTENT, &c->extents[i]);
	h.length = (uint32_t)(h.arg * WIRE_EXTENT + len);
	*bytes += h.length;
	return to->send(to->arg, &h, start, e);
}

static uint64_t frames_all_pages(const struct private_ram *ram)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < ram->n; i++)
		sum += ram->b[i].pages;
	return sum;
}

int private_ram_send(struct private_ram_copy *d, const struct frame_out *to, uint64_t *bytes,
		     struct err *e)
{
	struct chunk *c = frames_chunk_new();
	uint8_t *copy;
	int r = 0;

	if (!d->copy)
		d->copy = malloc(frames_all_pages(&d->ram) * PAGE_BYTES);
	if (!c || !d->copy) {
		free(c);
		return frames_no_memory(e);
	}
	copy = d->copy;
	for (unsigned int b = 0; !r && b < d->ram.n; b++) {
		uint64_t end = d->ram.b[b].pages, n;

		for (uint64_t page = 0; !r && page < end; page += n, copy += n * PAGE_BYTES) {
			n = end - page < CHUNK_PAGES ? end - page : CHUNK_PAGES;
			r = private_ram_read(&d->ram, b, page, n, c->pages, e);
			if (!r)
				r = frames_send_chunk(c, !d->whole, b, page, n, copy, to, bytes, e);
		}
	}
	free(c);
	d->whole = !r;
	return r;
}

void private_ram_copy_free(struct private_ram_copy *d)
{
	free(d->copy);
	d->copy = NULL;
	private_ram_free(&d->ram);
}

static void frames_match(struct private_ram *ours, const struct wire_block *theirs, bool *same,
			 struct err *why)
{
	for (unsigned int i = 0; *same && i < ours->n; i++) {
		unsigned int j = i;

		while (j < ours->n && strcmp(ours->b[j].name, theirs[i].name))
			j++;
		*same = j < ours->n && ours->b[j].pages == theirs[i].pages;
		if (j == ours->n) {
			err_set(why, GW_RAM_DIFFERS, EINVAL, "the source has private RAM \"%s\" and this QEMU has none of that name",
				theirs[i].name);
		} else if (!*same) {
			err_set(why, GW_RAM_DIFFERS, EINVAL, "private RAM \"%s\" has %llu KiB at the source and %llu KiB in this QEMU",
				theirs[i].name, (unsigned long long)theirs[i].pages * 4,
				(unsigned long long)ours->b[j].pages * 4);
		} else {
			struct private_block b = ours->b[i];

			ours->b[i] = ours->b[j];
			ours->b[j] = b;
		}
	}
}

int private_ram_compare(struct channel *ch, const struct wire_header *h, struct private_ram *ours,
			bool *same, struct err *why, struct err *e)
{
	struct wire_block *theirs;
	int r = hello_read_table(ch, h, "private RAM", &theirs, e);

	*same = !r && ours->has_addresses && ours->n == h->arg;
	if (!r && !ours->has_addresses)
		err_set(why, GW_QMP, EOPNOTSUPP, "it is not known where this QEMU's private RAM is, as %s: use QEMU 8.0 or newer", ours->why);
	else if (!r && !*same)
		err_set(why, GW_RAM_DIFFERS, EINVAL, "the source has %u blocks of private RAM and this QEMU %u", h->arg, ours->n);
	frames_match(ours, theirs, same, why);
	free(theirs);
	return r;
}

static int frames_place(const struct private_ram *ours, const struct wire_extent *x,
			const uint8_t *data, struct chunk *c, struct err *e)
{
	static const uint8_t zeros[WIRE_PRIVATE_MAX];
	int r = 0;

	if (x->kind == WIRE_DATA)
		return private_ram_write(ours, x->block, x->first, x->pages, data, e);
	/* QEMU may have loaded a ROM there. Zeros are not written over zeros, to take no memory. */
	for (uint64_t done = 0, n; !r && done < x->pages; done += n) {
		n = x->pages - done < CHUNK_PAGES ? x->pages - done : CHUNK_PAGES;
		r = private_ram_read(ours, x->block, x->first + done, n, c->pages, e);
		if (!r && memcmp(c->pages, zeros, n * PAGE_BYTES))
			r = private_ram_write(ours, x->block, x->first + done, n, zeros, e);
	}
	return r;
}

int private_ram_frame(struct channel *ch, const struct wire_header *h,
		      const struct private_ram *ours, struct err *e)
{
	uint64_t pages[WIRE_BLOCKS_MAX];
	struct chunk *c = frames_chunk_new();
	uint8_t *body = malloc(h->length);
	const uint8_t *data = body + h->arg * WIRE_EXTENT;
	int r = body && c ? channel_body(ch, body, h->length, e) : frames_no_memory(e);

	for (unsigned int i = 0; i < ours->n; i++)
		pages[i] = ours->b[i].pages;
	if (!r && wire_get_ram(h, body, h->arg * WIRE_EXTENT, pages, ours->n, c->extents))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed PRIVATE frame");
	for (uint32_t i = 0; !r && i < h->arg; i++) {
		r = frames_place(ours, &c->extents[i], data, c, e);
		if (c->extents[i].kind == WIRE_DATA)
			data += c->extents[i].pages * PAGE_BYTES;
	}
	free(body);
	free(c);
	return r;
}
