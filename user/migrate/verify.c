// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "migrate/verify.h"
#include "page/page.h"

#define READ_PAGES	256u

/* Hashes of the pages [first, first + n), little-endian, into out. */
static int hash_pages(const struct ram_block *b, uint64_t first, uint32_t n, uint8_t *out, struct err *e)
{
	static uint8_t buf[READ_PAGES * PAGE_BYTES];

	while (n) {
		uint32_t now = n < READ_PAGES ? n : READ_PAGES;
		size_t len = (size_t)now * PAGE_BYTES;

		if (pread(b->fd, buf, len, (off_t)(first * PAGE_BYTES)) != (ssize_t)len)
			return err_set(e, GW_INTERNAL, EIO, "cannot read RAM \"%s\" at page %llu", b->name, (unsigned long long)first);
		for (uint32_t i = 0; i < now; i++, out += WIRE_HASH)
			wire_put_u64(out, XXH3_64bits(buf + i * PAGE_BYTES, PAGE_BYTES));
		first += now;
		n -= now;
	}
	return 0;
}

static int send_extent(struct channel *ch, const struct wire_extent *x, uint8_t *body, uint32_t hashes, struct err *e)
{
	struct wire_header h = { .type = WIRE_VERIFY, .arg = hashes, .length = WIRE_EXTENT + hashes * WIRE_HASH };

	wire_put_extent(body, x);
	return channel_send(ch, &h, body, e);
}

static int send_data(const struct vm *vm, struct channel *ch, unsigned int block, uint64_t first, uint64_t count,
		     uint8_t *body, struct err *e)
{
	int r = 0;

	while (count && !r) {
		uint32_t n = count < WIRE_HASHES_MAX ? (uint32_t)count : WIRE_HASHES_MAX;
		struct wire_extent x = { .block = (uint16_t)block, .kind = WIRE_DATA, .pages = n, .first = first };

		r = hash_pages(&vm->blocks[block], first, n, body + WIRE_EXTENT, e);
		if (!r)
			r = send_extent(ch, &x, body, n, e);
		first += n;
		count -= n;
	}
	return r;
}

static int send_hole(struct channel *ch, unsigned int block, uint64_t first, uint64_t end, uint8_t *body, struct err *e)
{
	int r = 0;

	while (first < end && !r) {
		uint32_t n = end - first < UINT32_MAX ? (uint32_t)(end - first) : UINT32_MAX;
		struct wire_extent x = { .block = (uint16_t)block, .kind = WIRE_ZERO, .pages = n, .first = first };

		r = send_extent(ch, &x, body, 0, e);
		first += n;
	}
	return r;
}

static int send_block(const struct vm *vm, struct dirty_source *s, struct channel *ch, unsigned int b, uint8_t *body,
		      struct err *e)
{
	uint64_t end = vm->blocks[b].pages, from = 0, first, count;
	int r;

	while ((r = s->ops->next_data(s, b, from, end, false, &first, &count, e)) > 0) {
		r = send_hole(ch, b, from, first, body, e);
		if (!r)
			r = send_data(vm, ch, b, first, count, body, e);
		if (r)
			return r;
		from = first + count;
	}
	return r ? r : send_hole(ch, b, from, end, body, e);
}

static int verdict(const struct vm *vm, struct channel *ch, struct err *e)
{
	uint8_t body[8 + WIRE_BAD_MAX * WIRE_EXTENT];
	char pages[600] = "";
	struct wire_header h;
	uint64_t differ;
	size_t len = 0;
	int r;

	r = channel_expect(ch, WIRE_VERIFIED, &h, e);
	if (!r)
		r = channel_body(ch, body, h.length, e);
	if (r)
		return r;
	differ = wire_get_u64(body);
	if (!differ)
		return 0;
	for (uint32_t i = 0; i < h.arg && len + 64 < sizeof(pages); i++) {
		struct wire_extent x;

		if (wire_get_extent(body + 8 + i * WIRE_EXTENT, &x) || x.block >= vm->nblocks)
			continue;
		len += (size_t)snprintf(pages + len, sizeof(pages) - len, " %.24s:%llu", vm->blocks[x.block].name,
					(unsigned long long)x.first);
	}
	return err_set(e, GW_VERIFY, EILSEQ,
		       "%llu pages differ between the hosts after the last round, not switched over; page numbers:%s%s",
		       (unsigned long long)differ, pages, differ > h.arg ? " ..." : "");
}

int verify_send(const struct vm *vm, struct dirty_source *s, struct channel *ch, struct err *e)
{
	struct wire_header end = { .type = WIRE_VERIFY_END };
	uint8_t *body = malloc(WIRE_EXTENT + WIRE_HASHES_MAX * WIRE_HASH);
	int r = 0;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (unsigned int b = 0; b < vm->nblocks && !r; b++)
		r = send_block(vm, s, ch, b, body, e);
	free(body);
	if (!r)
		r = channel_send(ch, &end, NULL, e);
	return r ? r : verdict(vm, ch, e);
}

static void differs(struct verify_result *v, uint16_t block, uint64_t page)
{
	v->differ++;
	if (v->nr_listed < WIRE_BAD_MAX)
		v->listed[v->nr_listed++] = (struct wire_extent) { .block = block, .kind = WIRE_DATA, .pages = 1, .first = page };
}

static int compare_data(const struct vm *vm, const struct wire_extent *x, const uint8_t *theirs, struct verify_result *v,
			struct err *e)
{
	uint8_t *ours = malloc((size_t)x->pages * WIRE_HASH);
	int r;

	if (!ours)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = hash_pages(&vm->blocks[x->block], x->first, x->pages, ours, e);
	for (uint32_t i = 0; i < x->pages && !r; i++)
		if (memcmp(ours + i * WIRE_HASH, theirs + i * WIRE_HASH, WIRE_HASH))
			differs(v, x->block, x->first + i);
	free(ours);
	return r;
}

/* The source never touched these pages: here they are holes, or zeros. */
static int compare_hole(const struct vm *vm, const struct wire_extent *x, struct verify_result *v, struct err *e)
{
	static uint8_t page[PAGE_BYTES] __attribute__((aligned(64)));
	const struct ram_block *b = &vm->blocks[x->block];
	uint64_t from = x->first, end = x->first + x->pages, first, count;
	int r;

	while ((r = file_next_data(b->fd, from, end, false, &first, &count, e)) > 0) {
		for (uint64_t p = first; p < first + count; p++) {
			if (pread(b->fd, page, PAGE_BYTES, (off_t)(p * PAGE_BYTES)) != PAGE_BYTES)
				return err_set(e, GW_INTERNAL, EIO, "cannot read RAM \"%s\"", b->name);
			if (!zero_filter_best()->is_zero(page))
				differs(v, x->block, p);
		}
		from = first + count;
	}
	return r;
}

int verify_frame(const struct vm *vm, struct channel *ch, const struct wire_header *h, const uint64_t *block_pages,
		 struct verify_result *v, struct err *e)
{
	uint8_t *body = malloc(h->length);
	struct wire_extent x;
	int r;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = channel_body(ch, body, h->length, e);
	if (!r && (wire_get_extent(body, &x) || wire_extent_check(&x, block_pages, vm->nblocks) ||
		   h->arg != (x.kind == WIRE_DATA ? x.pages : 0) || h->length != WIRE_EXTENT + h->arg * WIRE_HASH))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent hashes that make no sense");
	if (!r)
		r = x.kind == WIRE_DATA ? compare_data(vm, &x, body + WIRE_EXTENT, v, e) : compare_hole(vm, &x, v, e);
	free(body);
	return r;
}

int verify_answer(struct channel *ch, const struct verify_result *v, struct err *e)
{
	uint8_t body[8 + WIRE_BAD_MAX * WIRE_EXTENT];
	struct wire_header h = { .type = WIRE_VERIFIED, .arg = v->nr_listed, .length = 8 + v->nr_listed * WIRE_EXTENT };

	wire_put_u64(body, v->differ);
	for (unsigned int i = 0; i < v->nr_listed; i++)
		wire_put_extent(body + 8 + i * WIRE_EXTENT, &v->listed[i]);
	return channel_send(ch, &h, body, e);
}
