// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "page/page.h"
#include "peer/verify.h"

#define READ_PAGES	64u
#define FRAME_HASHES	1024u	/* 4 MiB of RAM: between two frames the sender looks around */

/* @frames: sent so far; @body: room for the largest */
struct verify_out {
	const struct frame_out *to;
	uint32_t frames;
	uint8_t body[WIRE_EXTENT + FRAME_HASHES * WIRE_HASH];
};

/* Writes the hashes of the pages [first, first + n), little-endian, to out. */
static int verify_hash_pages(const struct ram_block *b, uint64_t first, uint32_t n, uint8_t *out,
			     struct err *e)
{
	static _Thread_local uint8_t buf[READ_PAGES * PAGE_BYTES];

	while (n) {
		uint32_t now = n < READ_PAGES ? n : READ_PAGES;
		int r = ram_ops(b)->read(b, first, now, buf, e);

		if (r)
			return r;
		for (uint32_t i = 0; i < now; i++, out += WIRE_HASH)
			wire_put_u64(out, XXH3_64bits(buf + i * PAGE_BYTES, PAGE_BYTES));
		first += now;
		n -= now;
	}
	return 0;
}

static int verify_send_extent(struct verify_out *out, const struct wire_extent *x,
			      uint32_t hashes, struct err *e)
{
	struct wire_header h = { .type = WIRE_VERIFY,
				 .arg = hashes,
				 .length = WIRE_EXTENT + hashes * WIRE_HASH };

	wire_put_extent(out->body, x);
	out->frames++;
	return out->to->send(out->to->arg, &h, out->body, e);
}

static int verify_send_data(const struct vm *vm, struct verify_out *out, unsigned int block,
			    uint64_t first, uint64_t count, struct err *e)
{
	int r = 0;

	while (count && !r) {
		uint32_t n = count < FRAME_HASHES ? (uint32_t)count : FRAME_HASHES;
		struct wire_extent x = {
			.block = (uint16_t)block, .kind = WIRE_DATA, .pages = n, .first = first
		};

		r = verify_hash_pages(&vm->blocks[block], first, n, out->body + WIRE_EXTENT, e);
		if (!r)
			r = verify_send_extent(out, &x, n, e);
		first += n;
		count -= n;
	}
	return r;
}

static int verify_send_hole(struct verify_out *out, unsigned int block, uint64_t first,
			    uint64_t end, struct err *e)
{
	int r = 0;

	while (first < end && !r) {
		uint32_t n = end - first < WIRE_VERIFY_HOLE ? (uint32_t)(end - first) :
								WIRE_VERIFY_HOLE;
		struct wire_extent x = {
			.block = (uint16_t)block, .kind = WIRE_ZERO, .pages = n, .first = first
		};

		r = verify_send_extent(out, &x, 0, e);
		first += n;
	}
	return r;
}

static int verify_send_block(const struct vm *vm, struct dirty_source *s, struct verify_out *out,
			     unsigned int b, struct err *e)
{
	uint64_t end = vm->blocks[b].pages, from = 0, first, count;
	int r;

	while ((r = s->ops->next_data(s, b, from, end, false, &first, &count, e)) > 0) {
		r = verify_send_hole(out, b, from, first, e);
		if (!r)
			r = verify_send_data(vm, out, b, first, count, e);
		if (r)
			return r;
		from = first + count;
	}
	return r ? r : verify_send_hole(out, b, from, end, e);
}

int verify_send(const struct vm *vm, struct dirty_source *s, const struct frame_out *to,
		uint32_t *frames, struct err *e)
{
	struct verify_out *out = malloc(sizeof(*out));
	int r = 0;

	if (!out)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	out->to = to;
	out->frames = 0;
	for (unsigned int b = 0; b < vm->nblocks && !r; b++)
		r = verify_send_block(vm, s, out, b, e);
	*frames = out->frames;
	free(out);
	return r;
}

static void verify_add_difference(struct verify_result *v, uint16_t block, uint64_t page)
{
	pthread_mutex_lock(&v->lock);
	v->differ++;
	if (v->nr_listed < VERIFY_LISTED)
		v->listed[v->nr_listed++] = (struct wire_extent) {
			.block = block, .kind = WIRE_DATA, .pages = 1, .first = page
		};
	pthread_mutex_unlock(&v->lock);
}

static int verify_compare_data(const struct vm *vm, const struct wire_extent *x,
			       const uint8_t *theirs, struct verify_result *v, struct err *e)
{
	uint8_t *ours = malloc((size_t)x->pages * WIRE_HASH);
	int r;

	if (!ours)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = verify_hash_pages(&vm->blocks[x->block], x->first, x->pages, ours, e);
	for (uint32_t i = 0; i < x->pages && !r; i++)
		if (memcmp(ours + i * WIRE_HASH, theirs + i * WIRE_HASH, WIRE_HASH))
			verify_add_difference(v, x->block, x->first + i);
	free(ours);
	return r;
}

/* The source has never allocated these pages: they must be holes or zeros here. */
static int verify_compare_hole(const struct vm *vm, const struct wire_extent *x,
			       struct verify_result *v, struct err *e)
{
	static _Thread_local uint8_t page[PAGE_BYTES] __attribute__((aligned(64)));
	const struct ram_block *b = &vm->blocks[x->block];
	uint64_t from = x->first, end = x->first + x->pages, first, count;
	int r;

	while ((r = ram_ops(b)->next_data(b, from, end, false, &first, &count, e)) > 0) {
		for (uint64_t p = first; p < first + count; p++) {
			r = ram_ops(b)->read(b, p, 1, page, e);
			if (r)
				return r;
			if (!zero_filter_best()->is_zero(page))
				verify_add_difference(v, x->block, p);
		}
		from = first + count;
	}
	return r;
}

int verify_frame(const struct vm *vm, struct channel *ch, const struct wire_header *h,
		 const uint64_t *block_pages, struct verify_result *v, struct err *e)
{
	uint8_t *body = malloc(h->length);
	struct wire_extent x;
	int r;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = channel_body(ch, body, h->length, e);
	if (!r && (wire_get_extent(body, &x) || wire_extent_check(&x, block_pages, vm->nblocks) ||
		   h->arg != (x.kind == WIRE_DATA ? x.pages : 0) ||
		   (x.kind == WIRE_ZERO && x.pages > WIRE_VERIFY_HOLE) ||
		   h->length != WIRE_EXTENT + h->arg * WIRE_HASH))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed VERIFY frame");
	if (!r)
		r = x.kind == WIRE_DATA ? verify_compare_data(vm, &x, body + WIRE_EXTENT, v, e)
					: verify_compare_hole(vm, &x, v, e);
	free(body);
	if (r)
		return r;
	pthread_mutex_lock(&v->lock);
	v->frames++;
	pthread_mutex_unlock(&v->lock);
	return 0;
}

static int verify_differ(const struct vm *vm, const struct verify_result *v, struct err *e)
{
	char pages[600] = "";
	size_t len = 0;

	for (unsigned int i = 0; i < v->nr_listed && len + 64 < sizeof(pages); i++)
		len += (size_t)snprintf(pages + len, sizeof(pages) - len, " %.24s:%llu",
					vm->blocks[v->listed[i].block].name,
					(unsigned long long)v->listed[i].first);
	return err_set(e, GW_VERIFY, EILSEQ,
		       "%llu pages differ between the hosts after the last round, and the guest stays at the source; page numbers:%s%s",
		       (unsigned long long)v->differ, pages,
		       v->differ > v->nr_listed ? " ..." : "");
}

int verify_complete(const struct vm *vm, struct verify_result *v, uint32_t frames, struct err *e)
{
	int r;

	pthread_mutex_lock(&v->lock);
	if (v->frames > frames)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent more VERIFY frames than it announced");
	else
		r = v->frames == frames;
	if (r == 1 && v->differ)
		r = verify_differ(vm, v, e);
	pthread_mutex_unlock(&v->lock);
	return r;
}
