// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>

#include "wire/reuse.h"

static_assert(WIRE_REFERENCE == WIRE_EXTENT + 8, "a reference is an extent and an entry");

int wire_get_reuse(const struct wire_header *h, const uint8_t *body, uint64_t *most,
		   const uint8_t **secret)
{
	if (h->arg >= WIRE_REUSE_KINDS ||
	    (h->length != WIRE_REUSE_HEAD && h->length != WIRE_REUSE_HEAD + WIRE_REUSE_SECRET))
		return -EPROTO;
	*most = wire_get_u64(body);
	*secret = h->length > WIRE_REUSE_HEAD ? body + WIRE_REUSE_HEAD : NULL;
	if (h->arg == WIRE_REUSE_NONE && (*most || *secret))
		return -EPROTO;
	return *most > WIRE_ENTRIES_MAX ? -EMSGSIZE : 0;
}

void wire_put_hashes(uint8_t body[WIRE_HASHES_HEAD], const struct wire_hashes *x)
{
	wire_put_u64(body, x->first);
	wire_put_u64(body + 8, x->ns);
	wire_put_u64(body + 16, x->left_out);
}

int wire_get_hashes(const struct wire_header *h, const uint8_t *body, struct wire_hashes *x)
{
	if (h->arg > WIRE_ENTRIES_FRAME)
		return -EMSGSIZE;
	if (h->length != WIRE_HASHES_HEAD + h->arg * WIRE_ENTRY)
		return -EPROTO;
	*x = (struct wire_hashes) {
		.first = wire_get_u64(body), .ns = wire_get_u64(body + 8),
		.left_out = wire_get_u64(body + 16),
	};
	return x->first > WIRE_ENTRIES_MAX - h->arg ? -EMSGSIZE : 0;
}

void wire_put_reference(uint8_t p[WIRE_REFERENCE], const struct wire_reference *ref)
{
	wire_put_extent(p, &ref->x);
	wire_put_u64(p + WIRE_EXTENT, ref->entry);
}

int wire_get_references(const struct wire_header *h, const uint8_t *body,
			const uint64_t *block_pages, unsigned int blocks, uint64_t entries,
			struct wire_reference *ref)
{
	uint64_t pages = 0;

	if (h->arg > WIRE_REFERENCES_MAX)
		return -EMSGSIZE;
	if (h->length != h->arg * WIRE_REFERENCE)
		return -EPROTO;
	for (uint32_t i = 0; i < h->arg; i++) {
		int ret = wire_get_extent(body + i * WIRE_REFERENCE, &ref[i].x);

		if (!ret && ref[i].x.kind != WIRE_DATA)
			ret = -EPROTO;
		if (!ret)
			ret = wire_extent_check(&ref[i].x, block_pages, blocks);
		if (ret)
			return ret;
		ref[i].entry = wire_get_u64(body + i * WIRE_REFERENCE + WIRE_EXTENT);
		if (ref[i].x.pages > entries || ref[i].entry > entries - ref[i].x.pages)
			return -ERANGE;
		pages += ref[i].x.pages;
	}
	return pages > WIRE_REFERRED_MAX ? -EMSGSIZE : 0;
}

int wire_get_refused(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		     unsigned int blocks, struct wire_extent *x)
{
	uint64_t all = 0, pages = 0;

	if (h->arg > WIRE_REFUSED_MAX)
		return -EMSGSIZE;
	if (h->length != h->arg * WIRE_EXTENT)
		return -EPROTO;
	for (uint32_t i = 0; i < h->arg; i++) {
		int ret = wire_get_extent(body + i * WIRE_EXTENT, &x[i]);

		if (!ret && x[i].kind != WIRE_DATA)
			ret = -EPROTO;
		if (!ret)
			ret = wire_extent_check(&x[i], block_pages, blocks);
		if (ret)
			return ret;
		pages += x[i].pages;
	}
	for (unsigned int i = 0; i < blocks; i++)
		all += block_pages[i];
	return pages > all ? -EPROTO : 0;
}
