// SPDX-License-Identifier: GPL-2.0-only
/* The decoders of post-copy and of content reuse, which take a whole body. */
#include <stdlib.h>
#include <string.h>

#include "fuzz_wire.h"

/* One of the frames of post-copy: what a decoder lets through is as long, and as large, as wire/owed.h says. */
void fuzz_owed(const struct wire_header *h, const uint8_t *body)
{
	static const uint32_t unit[RAM_BLOCKS] = { 1, 512, 1, 1, 1u << 18, 512 };
	struct wire_extent x[WIRE_WANT_MAX];
	uint32_t units[RAM_BLOCKS];
	const uint8_t *words;
	unsigned int i;

	if (h->type == WIRE_OWED && !wire_get_owed(h, body, ram, RAM_BLOCKS, x, &words)) {
		check_extent(body, x);
		CHECK(x->block < RAM_BLOCKS && x->first + x->pages <= ram[x->block]);
		CHECK(x->kind == WIRE_DATA ? words && h->arg * 64ull >= x->pages && (h->arg - 1) * 64ull < x->pages :
					     !words && !h->arg);
		for (i = 0; i < h->arg * 64 && words; i++)
			if (i >= x->pages)
				CHECK(!(wire_get_u64(words + i / 64 * 8) >> i % 64 & 1));
	}
	if (h->type == WIRE_WANT && !wire_get_want(h, body, ram, unit, RAM_BLOCKS, x))
		for (i = 0; i < h->arg; i++) {
			check_extent(body + i * WIRE_EXTENT, &x[i]);
			CHECK(x[i].block < RAM_BLOCKS && !(x[i].first % unit[x[i].block]));
			CHECK(x[i].pages == unit[x[i].block] || x[i].first + x[i].pages == ram[x[i].block]);
			CHECK(x[i].pages <= unit[x[i].block] && x[i].kind == WIRE_DATA);
		}
	if (h->type == WIRE_FAULTS) {
		uint8_t again[WIRE_FAULTS_BYTES];
		struct wire_faults f;

		wire_get_faults(body, &f);
		wire_put_faults(again, &f);
		CHECK(!memcmp(again, body, sizeof(again)));
	}
	if (h->type == WIRE_POSTCOPY_ASK && !wire_get_units(h, body, units, RAM_BLOCKS))
		for (i = 0; i < RAM_BLOCKS; i++)
			CHECK(__builtin_popcount(units[i]) == 1 && units[i] <= WIRE_UNIT_MAX);
}

/* With a length that the fuzzer need not guess. */
void fuzz_owed_frame(const uint8_t *data, size_t size, unsigned int n)
{
	unsigned int words = size > WIRE_EXTENT ? (size - WIRE_EXTENT) / 8 : 0;
	struct wire_header h = { .type = WIRE_OWED, .arg = words + (n > 250), .length = WIRE_EXTENT + words * 8 };

	fuzz_whole(&h, data, size, fuzz_owed);
	h = (struct wire_header) { .type = WIRE_WANT, .arg = size / WIRE_EXTENT, .length = size / WIRE_EXTENT * WIRE_EXTENT };
	fuzz_whole(&h, data, size, fuzz_owed);
	h = (struct wire_header) { .type = WIRE_POSTCOPY_ASK, .arg = RAM_BLOCKS, .length = RAM_BLOCKS * WIRE_UNIT };
	fuzz_whole(&h, data, size, fuzz_owed);
}

/* One of the frames of content reuse, with the whole body. */
void fuzz_reuse(const struct wire_header *h, const uint8_t *body)
{
	static struct wire_reference ref[WIRE_REFERENCES_MAX];
	static struct wire_extent x[WIRE_REFUSED_MAX];
	const uint64_t entries = 1000;
	uint64_t most, pages = 0;
	struct wire_hashes hashes;
	const uint8_t *secret;
	unsigned int i;

	if (h->type == WIRE_REUSE && !wire_get_reuse(h, body, &most, &secret)) {
		CHECK(h->arg < WIRE_REUSE_KINDS && most <= WIRE_ENTRIES_MAX && most == wire_get_u64(body));
		CHECK(secret ? secret == body + 8 && h->length == 8 + 384 : h->length == 8);
		CHECK(h->arg || (!most && !secret));
	}
	if (h->type == WIRE_HASHES && !wire_get_hashes(h, body, &hashes)) {
		uint8_t again[WIRE_HASHES_HEAD];

		CHECK(h->arg <= WIRE_ENTRIES_FRAME && h->length == WIRE_HASHES_HEAD + h->arg * 16);
		CHECK(hashes.first + h->arg <= WIRE_ENTRIES_MAX && hashes.first + h->arg >= hashes.first);
		wire_put_hashes(again, &hashes);
		CHECK(!memcmp(again, body, sizeof(again)));
	}
	if (h->type == WIRE_REFERENCES && !wire_get_references(h, body, ram, RAM_BLOCKS, entries, ref)) {
		for (i = 0; i < h->arg; i++) {
			uint8_t again[WIRE_REFERENCE];

			CHECK(ref[i].x.kind == WIRE_DATA && ref[i].x.block < RAM_BLOCKS);
			CHECK(ref[i].x.first + ref[i].x.pages <= ram[ref[i].x.block]);
			CHECK(ref[i].entry < entries && ref[i].entry + ref[i].x.pages <= entries);
			pages += ref[i].x.pages;
			wire_put_reference(again, &ref[i]);
			CHECK(!memcmp(again, body + i * WIRE_REFERENCE, sizeof(again)));
		}
		CHECK(pages <= WIRE_REFERRED_MAX);
	}
	pages = 0;
	if (h->type == WIRE_REFUSED && !wire_get_refused(h, body, ram, RAM_BLOCKS, x)) {
		for (i = 0; i < h->arg; i++) {
			check_extent(body + i * WIRE_EXTENT, &x[i]);
			CHECK(x[i].kind == WIRE_DATA && x[i].block < RAM_BLOCKS && x[i].first + x[i].pages <= ram[x[i].block]);
			pages += x[i].pages;
		}
		for (i = 0; i < RAM_BLOCKS; i++)
			pages -= pages > ram[i] ? ram[i] : pages;
		CHECK(!pages);
	}
}

/* With a length that the fuzzer need not guess. */
void fuzz_reuse_frame(const uint8_t *data, size_t size, unsigned int n)
{
	unsigned int items = size / WIRE_REFERENCE + (n > 250);
	struct wire_header h = { .type = WIRE_REFERENCES, .arg = items, .length = items * WIRE_REFERENCE };

	fuzz_whole(&h, data, size, fuzz_reuse);
	items = size / WIRE_EXTENT + (n > 250);
	h = (struct wire_header) { .type = WIRE_REFUSED, .arg = items, .length = items * WIRE_EXTENT };
	fuzz_whole(&h, data, size, fuzz_reuse);
	if (size < WIRE_HASHES_HEAD)
		return;
	items = (size - WIRE_HASHES_HEAD) / WIRE_ENTRY + (n > 250);
	h = (struct wire_header) { .type = WIRE_HASHES, .arg = items, .length = WIRE_HASHES_HEAD + items * WIRE_ENTRY };
	fuzz_whole(&h, data, size, fuzz_reuse);
	h = (struct wire_header) { .type = WIRE_REUSE, .arg = n % 4, .length = n & 4 ? WIRE_REUSE_HEAD : WIRE_REUSE_HEAD + WIRE_REUSE_SECRET };
	fuzz_whole(&h, data, size, fuzz_reuse);
}
