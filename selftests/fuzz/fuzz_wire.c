// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every decoder of the wire protocol on arbitrary bytes. Three things are asked: no decoder reads outside of what it
 * was given (each gets its own exact allocation, so ASan sees it), what it lets through keeps the promises of wire.h
 * (computed here in another way), and there is one encoding of each value: re-encoded, it gives the same bytes.
 */
#include <stdbool.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz_wire.h"
#include "wire/blocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define UNUSED_TYPE	11	/* of older versions */

const uint64_t ram[RAM_BLOCKS] = { 1, 512, 1u << 20, 0, (uint64_t)1 << 51, UINT64_MAX };

void *exact_copy(const uint8_t *p, size_t len)
{
	void *copy = malloc(len);

	CHECK(copy || !len);
	if (len)
		memcpy(copy, p, len);
	return copy;
}

void check_extent(const uint8_t *p, const struct wire_extent *x)
{
	uint8_t again[WIRE_EXTENT];

	CHECK(x->pages >= 1 && x->first + x->pages > x->first);
	CHECK(x->kind == WIRE_DATA || x->kind == WIRE_ZERO || x->kind == WIRE_PARTS ||
	      (WIRE_IS_SAME(x->kind) && WIRE_SAME_BYTE(x->kind)));
	wire_put_extent(again, x);
	CHECK(!memcmp(again, p, WIRE_EXTENT));
}

static void check_block(const struct wire_block *b, unsigned int i)
{
	size_t len = strlen(b[i].name);
	unsigned int c;

	CHECK(len >= 1 && len <= WIRE_NAME_MAX);
	CHECK(b[i].pages >= 1 && b[i].pages <= INT64_MAX / PAGE_BYTES);
	for (c = 0; c < len; c++)
		CHECK(b[i].name[c] >= ' ' && b[i].name[c] <= '~');
	for (c = 0; c < i; c++)
		CHECK(strcmp(b[c].name, b[i].name));
}

static void fuzz_blocks(const uint8_t *data, size_t size, unsigned int n)
{
	struct wire_block *b = malloc(WIRE_BLOCKS_MAX * sizeof(*b));
	uint8_t *p = exact_copy(data, size);
	uint8_t *again = malloc(size);
	unsigned int i;

	CHECK(b && (again || !size));
	if (!wire_get_blocks(p, size, b, n)) {
		CHECK(n <= WIRE_BLOCKS_MAX);
		for (i = 0; i < n; i++)
			check_block(b, i);
		CHECK(wire_blocks_size(b, n) == size);
		wire_put_blocks(again, b, n);
		CHECK(!size || !memcmp(again, p, size));
	}
	free(again);
	free(p);
	free(b);
}

void fuzz_whole(const struct wire_header *h, const uint8_t *data, size_t size,
		void (*fuzz)(const struct wire_header *h, const uint8_t *body))
{
	uint8_t *body = size < h->length ? NULL : exact_copy(data, h->length);

	if (body)
		fuzz(h, body);
	free(body);
}

static void fuzz_body(const struct wire_header *h, const uint8_t *data, size_t size)
{
	uint8_t again[8];

	switch (h->type) {
	case WIRE_BLOCKS:
	case WIRE_PRIVATE_BLOCKS:
	case WIRE_CHECK:
		fuzz_blocks(data, size, h->arg);
		break;
	case WIRE_RAM:
	case WIRE_PACKED:
	case WIRE_DELTA:
	case WIRE_PRIVATE:
		fuzz_ram(h, data, size);
		break;
	case WIRE_VERIFY:
		fuzz_extent(data, size);
		break;
	case WIRE_OWED:
	case WIRE_WANT:
	case WIRE_POSTCOPY_ASK:
	case WIRE_FAULTS:
		fuzz_whole(h, data, size, fuzz_owed);
		break;
	case WIRE_REUSE:
	case WIRE_HASHES:
	case WIRE_REFERENCES:
	case WIRE_REFUSED:
		fuzz_whole(h, data, size, fuzz_reuse);
		break;
	default:
		if (size < sizeof(again))
			break;
		wire_put_u64(again, wire_get_u64(data));
		CHECK(!memcmp(again, data, sizeof(again)));
	}
}

/* What callers size their buffers by. */
static void check_header(const struct wire_header *h)
{
	CHECK(h->type >= 1 && h->type < WIRE_TYPES && strcmp(wire_type_name(h->type), "?"));
	CHECK(!h->flags || (h->type == WIRE_ROUND && h->flags == WIRE_ROUND_LAST) ||
	      ((h->type == WIRE_READY || h->type == WIRE_CHECKED) && h->flags == WIRE_SAVE_MODE) ||
	      (h->type == WIRE_DEVICE_END && h->flags == WIRE_RUNS) || (h->type == WIRE_DEVICE && h->flags == WIRE_HELD) || ((h->type == WIRE_VIEW || h->type == WIRE_HASHES) && h->flags == WIRE_MORE) ||
	      (h->type == WIRE_SWITCHOVER && h->flags == WIRE_OWING) ||
	      (h->type == WIRE_VERDICT && !(h->flags & ~(WIRE_OWING | WIRE_LOST))) ||
	      (h->type == WIRE_ASK_VIEW && !(h->flags & ~(WIRE_BRIEF | WIRE_GLANCE))));
	switch (h->type) {
	case WIRE_HELLO:
		CHECK(h->arg == WIRE_VERSION && h->length == WIRE_HELLO_BODY);
		break;
	case WIRE_BLOCKS:
	case WIRE_PRIVATE_BLOCKS:
	case WIRE_CHECK:
		CHECK(h->arg >= 1 && h->arg <= WIRE_BLOCKS_MAX);
		CHECK(h->length > h->arg * 24 && h->length <= h->arg * (24 + WIRE_NAME_MAX));
		break;
	case WIRE_RAM:
		CHECK(h->arg >= 1 && h->arg <= WIRE_EXTENTS_MAX);
		CHECK(h->length >= h->arg * WIRE_EXTENT && h->length - h->arg * WIRE_EXTENT <= WIRE_RAM_MAX);
		break;
	case WIRE_PACKED:
		CHECK(h->arg >= 1 && h->arg <= WIRE_EXTENTS_MAX && h->length > h->arg * WIRE_EXTENT + WIRE_PACKED_HEAD);
		CHECK(h->length - h->arg * WIRE_EXTENT - WIRE_PACKED_HEAD < WIRE_PACKED_MAX);
		break;
	case WIRE_DELTA:
		CHECK(h->arg >= 1 && h->arg <= WIRE_EXTENTS_MAX && h->length >= h->arg * WIRE_EXTENT + WIRE_PACKED_HEAD + 2);
		CHECK(h->length - h->arg * WIRE_EXTENT - WIRE_PACKED_HEAD <= WIRE_PACKED_MAX + WIRE_PARTS_MAX);
		break;
	case WIRE_LOAD:
		CHECK(h->arg <= WIRE_LOAD_MAX && !h->length);
		break;
	case WIRE_PRIVATE:
		CHECK(h->arg >= 1 && h->arg <= WIRE_EXTENTS_MAX);
		CHECK(h->length >= h->arg * WIRE_EXTENT && h->length - h->arg * WIRE_EXTENT <= WIRE_PRIVATE_MAX);
		break;
	case WIRE_VERIFY:
		CHECK(h->arg <= WIRE_HASHES_MAX && h->length == WIRE_EXTENT + h->arg * WIRE_HASH);
		break;
	case WIRE_DEVICE:
		CHECK(h->length > 8 && h->length <= 8 + WIRE_DEVICE_MAX);
		break;
	case WIRE_ABORT:
		CHECK(h->length <= WIRE_TEXT_MAX);
		break;
	case WIRE_PING:
	case WIRE_PONG:
	case WIRE_RESUMED:
	case WIRE_DEVICE_END:
		CHECK(h->length == 8);
		break;
	case WIRE_READY:
		CHECK(h->arg >= 1 && h->arg <= WIRE_STREAMS_MAX && h->length == WIRE_SECRET);
		break;
	case WIRE_STREAMS:
		CHECK(h->arg >= 1 && h->arg <= WIRE_STREAMS_MAX && h->length == 0);
		break;
	case WIRE_CHECKED:
		CHECK(h->arg >= 1 && h->arg <= WIRE_STREAMS_MAX && h->length == 8);
		break;
	case WIRE_PROBE:
		CHECK(!h->arg && h->length >= 1 && h->length <= WIRE_PROBE_MAX);
		break;
	case WIRE_VIEW:
		CHECK(!h->arg && h->length >= 1 && h->length <= WIRE_VIEW_MAX);
		break;
	case WIRE_JOIN:
		CHECK(h->arg < WIRE_STREAMS_MAX && h->length == WIRE_SECRET);
		break;
	case WIRE_ASK:
		CHECK(!h->arg && h->length == WIRE_SECRET);
		break;
	case WIRE_RAM_FILES:
		CHECK(h->arg >= 1 && h->arg <= WIRE_BLOCKS_MAX && h->length == WIRE_BOOT_ID + h->arg * WIRE_FILE);
		break;
	case WIRE_VERDICT:
		CHECK(h->arg <= WIRE_NO_VERDICT && h->length == 8);
		break;
	case WIRE_POSTCOPY_ASK:
		CHECK(h->arg <= WIRE_BLOCKS_MAX && h->length == h->arg * WIRE_UNIT);
		break;
	case WIRE_CANNOT:
		CHECK(h->arg >= 1 && h->arg <= 255 && h->length <= WIRE_TEXT_MAX);
		break;
	case WIRE_OWED:
		CHECK(h->arg <= WIRE_OWED_WORDS && h->length == WIRE_EXTENT + h->arg * 8);
		break;
	case WIRE_WANT:
		CHECK(h->arg >= 1 && h->arg <= WIRE_WANT_MAX && h->length == h->arg * WIRE_EXTENT);
		break;
	case WIRE_FAULTS:
		CHECK(!h->arg && h->length == WIRE_FAULTS_BYTES);
		break;
	case WIRE_RECOVER:
		CHECK(h->arg <= WIRE_ROUND_MAX && h->length == WIRE_SECRET);
		break;
	case WIRE_REUSE:
		CHECK(h->arg < WIRE_REUSE_KINDS && h->length <= WIRE_REUSE_HEAD + WIRE_REUSE_SECRET);
		break;
	case WIRE_WANT_HASHES:
		CHECK(h->arg >= 1 && h->arg <= WIRE_ENTRIES_FRAME && h->length == 8);
		break;
	case WIRE_HASHES:
		CHECK(h->arg <= WIRE_ENTRIES_FRAME && h->length == WIRE_HASHES_HEAD + h->arg * WIRE_ENTRY);
		break;
	case WIRE_REFERENCES:
		CHECK(h->arg >= 1 && h->arg <= WIRE_REFERENCES_MAX && h->length == h->arg * WIRE_REFERENCE);
		break;
	case WIRE_REFUSED:
		CHECK(h->arg >= 1 && h->arg <= WIRE_REFUSED_MAX && h->length == h->arg * WIRE_EXTENT);
		break;
	case WIRE_KEEP:
		CHECK(h->arg >= 1 && h->arg <= WIRE_KEEP_MAX && !h->length);
		break;
	case WIRE_RECONNECT:
		CHECK(h->arg <= WIRE_ROUND_MAX && h->length == WIRE_SECRET);
		break;
	default:
		CHECK(h->length == 0);
	}
}

/* Returns whether it is a header. */
static bool fuzz_header(const uint8_t *p, struct wire_header *h)
{
	uint8_t again[WIRE_HEADER];

	if (wire_get_header(p, h))
		return false;
	check_header(h);
	wire_put_header(again, h);
	CHECK(!memcmp(again, p, WIRE_HEADER));
	return true;
}

static void fuzz_frame(const uint8_t *data, size_t size)
{
	struct wire_header h;
	uint8_t *p;

	if (size < WIRE_HEADER)
		return;
	p = exact_copy(data, WIRE_HEADER);
	if (fuzz_header(p, &h))
		fuzz_body(&h, data + WIRE_HEADER, size - WIRE_HEADER);
	free(p);
}

/* Every type at each small length, so that a type without a case above is found in every run, not by luck. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct wire_header h, got;
	uint8_t p[WIRE_HEADER];
	unsigned int type, arg, length, met;

	(void)argc;
	(void)argv;
	for (type = 1; type < WIRE_TYPES; type++) {
		for (met = arg = 0; arg <= WIRE_VERSION; arg++) {
			for (length = 0; length <= PAGE_BYTES; length++) {
				h = (struct wire_header){ .type = type, .arg = arg, .length = length };
				wire_put_header(p, &h);
				met += fuzz_header(p, &got);
			}
		}
		CHECK(met || type == UNUSED_TYPE);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned int n;

	if (size < 2)
		return 0;
	n = data[1];
	CHECK(strlen(wire_type_name(n)));
	/* The older seeds know nothing of the last three. */
	switch (data[0] == 0xff ? 4 : data[0] == 0xfe ? 6 : data[0] < 0xf0 ? data[0] % 4 : 5) {
	case 0:
		fuzz_frame(data + 1, size - 1);
		break;
	case 1:
		fuzz_extent(data + 1, size - 1);
		break;
	case 2:
		fuzz_blocks(data + 2, size - 2, n);
		break;
	case 3:
		fuzz_ram_pages(data + 2, size - 2, n);
		break;
	case 4:
		fuzz_changed(data + 2, size - 2, n);
		break;
	case 5:
		fuzz_owed_frame(data + 2, size - 2, n);
		break;
	case 6:
		fuzz_reuse_frame(data + 2, size - 2, n);
		break;
	}
	return 0;
}
