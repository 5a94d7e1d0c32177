// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "wire/owed.h"

#define WORD_BITS	64

static_assert(sizeof(struct wire_faults) == WIRE_FAULTS_BYTES, "8 bytes for each member");

void wire_put_faults(uint8_t body[WIRE_FAULTS_BYTES], const struct wire_faults *f)
{
	wire_put_u64(body, f->seen);
	wire_put_u64(body + 8, f->zeros);
	wire_put_u64(body + 16, f->asked);
	wire_put_u64(body + 24, f->mean_ns);
	wire_put_u64(body + 32, f->p99_ns);
	wire_put_u64(body + 40, f->worst_ns);
}

void wire_get_faults(const uint8_t body[WIRE_FAULTS_BYTES], struct wire_faults *f)
{
	*f = (struct wire_faults) {
		.seen = wire_get_u64(body), .zeros = wire_get_u64(body + 8),
		.asked = wire_get_u64(body + 16), .mean_ns = wire_get_u64(body + 24),
		.p99_ns = wire_get_u64(body + 32), .worst_ns = wire_get_u64(body + 40),
	};
}

void wire_put_units(uint8_t *body, const uint32_t *unit, unsigned int blocks)
{
	for (unsigned int i = 0; i < blocks; i++) {
		uint32_t le = htole32(unit[i]);

		memcpy(body + i * WIRE_UNIT, &le, WIRE_UNIT);
	}
}

int wire_get_units(const struct wire_header *h, const uint8_t *body, uint32_t *unit,
		   unsigned int blocks)
{
	if (h->arg != blocks || h->length != blocks * WIRE_UNIT)
		return -EPROTO;
	for (unsigned int i = 0; i < blocks; i++) {
		uint32_t le;

		memcpy(&le, body + i * WIRE_UNIT, WIRE_UNIT);
		unit[i] = le32toh(le);
		if (!unit[i] || unit[i] & (unit[i] - 1))
			return -EPROTO;
		if (unit[i] > WIRE_UNIT_MAX)
			return -EMSGSIZE;
	}
	return 0;
}

/* The bits of the last word that lie behind the extent. */
static bool owed_tail_clear(const struct wire_header *h, const uint8_t *words, uint32_t pages)
{
	uint64_t last = wire_get_u64(words + (size_t)(h->arg - 1) * sizeof(uint64_t));

	return !(pages % WORD_BITS) || !(last >> pages % WORD_BITS);
}

int wire_get_owed(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		  unsigned int blocks, struct wire_extent *x, const uint8_t **words)
{
	uint32_t need;
	int ret;

	if (h->length != WIRE_EXTENT + (uint64_t)h->arg * sizeof(uint64_t))
		return -EPROTO;
	ret = wire_get_extent(body, x);
	if (!ret)
		ret = wire_extent_check(x, block_pages, blocks);
	if (ret)
		return ret;
	need = x->kind == WIRE_DATA ? x->pages / WORD_BITS + !!(x->pages % WORD_BITS) : 0;
	*words = need ? body + WIRE_EXTENT : NULL;
	if (h->arg != need || (need && !owed_tail_clear(h, *words, x->pages)))
		return -EPROTO;
	return 0;
}

int wire_get_want(const struct wire_header *h, const uint8_t *body, const uint64_t *block_pages,
		  const uint32_t *unit, unsigned int blocks, struct wire_extent *x)
{
	if (h->arg > WIRE_WANT_MAX)
		return -EMSGSIZE;
	if (h->length != h->arg * WIRE_EXTENT)
		return -EPROTO;
	for (unsigned int i = 0; i < h->arg; i++) {
		int ret = wire_get_extent(body + i * WIRE_EXTENT, &x[i]);
		uint64_t left;

		if (!ret)
			ret = wire_extent_check(&x[i], block_pages, blocks);
		if (ret)
			return ret;
		left = block_pages[x[i].block] - x[i].first;
		if (x[i].kind != WIRE_DATA || x[i].first % unit[x[i].block] ||
		    x[i].pages != (left < unit[x[i].block] ? left : unit[x[i].block]))
			return -EPROTO;
	}
	return 0;
}
