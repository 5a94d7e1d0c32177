// SPDX-License-Identifier: GPL-2.0-only
/* Extents, and the RAM frame that is made of them. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "wire/extent.h"
#include "wire/wire.h"

struct extent_le {
	uint16_t block;
	uint16_t kind;
	uint32_t pages;
	uint64_t first;
} __attribute__((packed));
static_assert(sizeof(struct extent_le) == WIRE_EXTENT, "the extent's layout is the protocol");

void wire_put_extent(uint8_t p[WIRE_EXTENT], const struct wire_extent *x)
{
	struct extent_le le = {
		.block = htole16(x->block),
		.kind = htole16(x->kind),
		.pages = htole32(x->pages),
		.first = htole64(x->first),
	};

	memcpy(p, &le, sizeof(le));
}

/* type: of the frame. */
static bool extent_kind_ok(uint16_t kind, unsigned int type)
{
	bool same = type == WIRE_RAM || type == WIRE_PACKED || type == WIRE_DELTA;

	if (kind == WIRE_PARTS)
		return type == WIRE_DELTA;
	return kind == WIRE_DATA || kind == WIRE_ZERO ||
	       (same && WIRE_IS_SAME(kind) && WIRE_SAME_BYTE(kind));
}

static int extent_get(const uint8_t p[WIRE_EXTENT], unsigned int type, struct wire_extent *x)
{
	struct extent_le le;
	struct wire_extent got;

	memcpy(&le, p, sizeof(le));
	got.block = le16toh(le.block);
	got.kind = le16toh(le.kind);
	got.pages = le32toh(le.pages);
	got.first = le64toh(le.first);

	if (!extent_kind_ok(got.kind, type) || got.pages == 0 || got.first > UINT64_MAX - got.pages)
		return -EPROTO;
	*x = got;
	return 0;
}

int wire_get_extent(const uint8_t p[WIRE_EXTENT], struct wire_extent *x)
{
	return extent_get(p, WIRE_VERIFY, x);
}

int wire_extent_check(const struct wire_extent *x, const uint64_t *block_pages, unsigned int blocks)
{
	if (x->block >= blocks)
		return -ERANGE;
	/* Not first + pages, which could wrap: the extent may not come from wire_get_extent(). */
	if (x->pages > block_pages[x->block] || x->first > block_pages[x->block] - x->pages)
		return -ERANGE;
	return 0;
}

/* rest: what the header says of the bytes behind the extents. parts: pages that come in parts. */
static bool extent_rest_ok(const struct wire_header *h, uint64_t rest, uint64_t data_bytes,
			   uint64_t parts)
{
	if (h->type == WIRE_DELTA)
		return parts && parts <= WIRE_PARTS_MAX && rest > WIRE_PACKED_HEAD + parts;
	if (h->type != WIRE_PACKED)
		return rest == data_bytes;
	return data_bytes <= WIRE_PACKED_MAX && rest > WIRE_PACKED_HEAD &&
	       rest - WIRE_PACKED_HEAD < data_bytes;
}

int wire_get_ram(const struct wire_header *h, const uint8_t *p, size_t len,
		 const uint64_t *block_pages, unsigned int blocks, struct wire_extent *x)
{
	uint64_t data_bytes = 0;	/* at most 2^9 extents of 2^32 pages of 2^12 bytes */
	uint64_t pages = 0, all = 0, same = 0, parts = 0;
	uint32_t i;
	int ret;

	if (h->arg > WIRE_EXTENTS_MAX)
		return -EMSGSIZE;
	if ((h->type != WIRE_RAM && h->type != WIRE_PACKED && h->type != WIRE_PRIVATE &&
	     h->type != WIRE_DELTA) ||
	    len != (size_t)h->arg * WIRE_EXTENT || len > h->length)
		return -EPROTO;
	for (i = 0; i < h->arg; i++) {
		ret = extent_get(p + i * WIRE_EXTENT, h->type, &x[i]);
		if (!ret)
			ret = wire_extent_check(&x[i], block_pages, blocks);
		if (ret)
			return ret;
		pages += x[i].pages;
		if (x[i].kind == WIRE_DATA)
			data_bytes += (uint64_t)x[i].pages * PAGE_BYTES;
		else if (x[i].kind == WIRE_PARTS)
			parts += x[i].pages;
		else if (x[i].kind != WIRE_ZERO)
			same += x[i].pages;
	}
	for (i = 0; i < blocks; i++)
		all += block_pages[i];
	if (pages > all || same > WIRE_SAME_MAX)
		return -EPROTO;
	return extent_rest_ok(h, h->length - len, data_bytes, parts) ? 0 : -EPROTO;
}

uint32_t wire_parts(const struct wire_extent *x, unsigned int n)
{
	uint32_t parts = 0;

	while (n--)
		parts += x[n].kind == WIRE_PARTS ? x[n].pages : 0;
	return parts;
}

uint32_t wire_part_bytes(uint8_t parts)
{
	return (uint32_t)__builtin_popcount(parts) * WIRE_PART;
}

int wire_get_delta(const struct wire_header *h, const struct wire_extent *x, const uint8_t *p,
		   size_t len, uint64_t *codec, uint32_t *bytes)
{
	const uint64_t before = (uint64_t)h->arg * WIRE_EXTENT + len;
	uint64_t sum = 0, rest;

	if (len != WIRE_PACKED_HEAD + (uint64_t)wire_parts(x, h->arg) || before >= h->length)
		return -EPROTO;
	for (uint32_t i = 0; i < h->arg; i++)
		if (x[i].kind == WIRE_DATA)
			sum += (uint64_t)x[i].pages * PAGE_BYTES;
	for (size_t i = WIRE_PACKED_HEAD; i < len; i++) {
		if (!p[i])
			return -EPROTO;
		sum += wire_part_bytes(p[i]);
	}
	rest = h->length - before;
	if (sum > WIRE_PACKED_MAX || rest > sum)
		return -EPROTO;
	*codec = wire_get_u64(p);
	*bytes = (uint32_t)sum;
	return (rest == sum) == !*codec ? 0 : -EPROTO;
}
