// SPDX-License-Identifier: GPL-2.0-only
/* The decoders of pages and of the extents that say where they belong. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_wire.h"

void fuzz_extent(const uint8_t *data, size_t size)
{
	struct wire_extent x;
	uint8_t *p;

	if (size < WIRE_EXTENT)
		return;
	p = exact_copy(data, WIRE_EXTENT);
	if (!wire_get_extent(p, &x)) {
		check_extent(p, &x);
		CHECK(!WIRE_IS_SAME(x.kind) && x.kind != WIRE_PARTS);
		if (!wire_extent_check(&x, ram, RAM_BLOCKS))
			CHECK(x.block < RAM_BLOCKS && x.first + x.pages <= ram[x.block]);
	}
	free(p);
}

/* What follows the extents of a DELTA frame, as far as there is some; pages: whole ones. */
static void fuzz_delta(const struct wire_header *h, const struct wire_extent *x, const uint8_t *data, size_t size, uint64_t pages)
{
	const size_t all = WIRE_PACKED_HEAD + wire_parts(x, h->arg), len = size < all ? size : all;
	uint8_t *p = exact_copy(data, len);
	uint64_t codec, sum = pages * PAGE_BYTES;
	uint32_t bytes, rest;

	CHECK(all > WIRE_PACKED_HEAD && all <= WIRE_PACKED_HEAD + WIRE_PARTS_MAX);
	if (!wire_get_delta(h, x, p, len, &codec, &bytes)) {
		CHECK(len == all && codec == wire_get_u64(p));
		for (size_t i = WIRE_PACKED_HEAD; i < len; i++) {
			CHECK(p[i]);
			for (unsigned int bit = 0; bit < 8; bit++)
				sum += p[i] & 1u << bit ? 512 : 0;
		}
		rest = h->length - h->arg * WIRE_EXTENT - (uint32_t)len;
		CHECK(bytes == sum && bytes <= WIRE_PACKED_MAX && (codec ? rest && rest < bytes : rest == bytes));
	}
	free(p);
}

void fuzz_ram(const struct wire_header *h, const uint8_t *data, size_t size)
{
	struct wire_extent *x = malloc(WIRE_EXTENTS_MAX * sizeof(*x));
	const size_t extents = (size_t)h->arg * WIRE_EXTENT;
	const uint8_t *behind = data + extents;
	size_t i, rest, left = 0;
	uint64_t pages = 0, same = 0;
	uint8_t *p;

	/* Of a DELTA more is decoded. */
	if (h->type == WIRE_DELTA && size > extents) {
		left = size - extents;
		size = extents;
	}
	p = exact_copy(data, size);

	CHECK(x);
	if (!wire_get_ram(h, p, size, ram, RAM_BLOCKS, x)) {
		CHECK(size == (size_t)h->arg * WIRE_EXTENT);
		for (i = 0; i < h->arg; i++) {
			check_extent(p + i * WIRE_EXTENT, &x[i]);
			CHECK(x[i].block < RAM_BLOCKS && x[i].first + x[i].pages <= ram[x[i].block]);
			CHECK(x[i].kind != WIRE_PARTS || h->type == WIRE_DELTA);
			if (x[i].kind == WIRE_DATA)
				pages += x[i].pages;
			else if (WIRE_IS_SAME(x[i].kind))
				same += x[i].pages;
		}
		CHECK(same <= WIRE_SAME_MAX && (!same || h->type != WIRE_PRIVATE));
		rest = h->length - size;
		if (h->type == WIRE_DELTA)
			fuzz_delta(h, x, behind, left, pages);
		else if (h->type != WIRE_PACKED)
			CHECK(pages * PAGE_BYTES == rest);
		else
			CHECK(rest > WIRE_PACKED_HEAD && rest - WIRE_PACKED_HEAD < pages * PAGE_BYTES && pages <= 64);
	}
	free(p);
	free(x);
}

/* With a length that the fuzzer need not guess, and now and then more extents than there are. */
void fuzz_ram_pages(const uint8_t *data, size_t size, unsigned int n)
{
	unsigned int extents = size / WIRE_EXTENT + (n >> 6);
	struct wire_header h = {
		.type = WIRE_RAM,
		.arg = extents,
		.length = extents * WIRE_EXTENT + (n & 0x3f) * PAGE_BYTES,
	};

	fuzz_ram(&h, data, size);
	h.type = WIRE_PACKED;
	h.length += WIRE_PACKED_HEAD - 1;
	fuzz_ram(&h, data, size);
}

/* A DELTA: n says how many of the bytes are extents, and the length is right or off by a few. */
void fuzz_changed(const uint8_t *data, size_t size, unsigned int n)
{
	struct wire_header h = { .type = WIRE_DELTA, .arg = n >> 4 };

	if (size < 4 || h.arg * (size_t)WIRE_EXTENT > size - 4)
		return;
	h.length = h.arg * WIRE_EXTENT + WIRE_PACKED_HEAD + (data[0] | data[1] << 8 | (data[2] & 7) << 16) % (WIRE_PACKED_MAX + WIRE_PARTS_MAX);
	fuzz_ram(&h, data + 4, size - 4);
}
