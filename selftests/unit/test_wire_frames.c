// SPDX-License-Identifier: GPL-2.0-only
/* RAM and its kin: frames with a table of extents, and what these say follows. Exact allocations, for ASan. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/extent.h"
#include "wire/wire.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

static const uint64_t ram[] = { 1000, UINT64_C(1) << 40 };

/* A RAM frame of n extents that is right, but for what the caller then breaks. */
static struct wire_header ram_header(const struct wire_extent *x, unsigned int n)
{
	struct wire_header h = { .type = WIRE_RAM, .arg = n, .length = n * WIRE_EXTENT };

	while (n--) {
		if (x[n].kind == WIRE_DATA)
			h.length += x[n].pages * PAGE_BYTES;
	}
	return h;
}

static int get_ram(const struct wire_header *h, const struct wire_extent *x, unsigned int n, size_t len)
{
	uint8_t *p = malloc(len);
	struct wire_extent *got = calloc(n, sizeof(*got));
	uint8_t one[WIRE_EXTENT];
	size_t at;
	int ret;

	assert_true(p && got);
	for (at = 0; at < len; at += WIRE_EXTENT) {
		wire_put_extent(one, &x[at / WIRE_EXTENT]);
		memcpy(p + at, one, len - at < WIRE_EXTENT ? len - at : WIRE_EXTENT);
	}
	ret = wire_get_ram(h, p, len, ram, ARRAY_SIZE(ram), got);
	if (!ret)
		assert_memory_equal(got, x, n * sizeof(*got));
	free(got);
	free(p);
	return ret;
}

static const struct wire_extent three[] = {
	{ 0, WIRE_DATA, 3, 10 },
	{ 1, WIRE_ZERO, UINT32_MAX, 0 },
	{ 1, WIRE_DATA, 250, 123456 },
};

static void test_ram_round_trip(void **state)
{
	struct wire_extent most[WIRE_EXTENTS_MAX];
	struct wire_header h = ram_header(three, 3);
	unsigned int i;

	(void)state;
	assert_int_equal(h.length, 3 * 16 + 253 * 4096);
	assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), 0);

	for (i = 0; i < WIRE_EXTENTS_MAX; i++)
		most[i] = (struct wire_extent){ 1, i < 256 ? WIRE_DATA : WIRE_ZERO, 1, 7 * i };
	h = ram_header(most, WIRE_EXTENTS_MAX);
	assert_int_equal(h.length, WIRE_EXTENTS_MAX * WIRE_EXTENT + WIRE_RAM_MAX);
	assert_int_equal(get_ram(&h, most, WIRE_EXTENTS_MAX, WIRE_EXTENTS_MAX * WIRE_EXTENT), 0);
}

/* Pages of one byte: in RAM and PACKED, so many at most, and never of zeros. */
static void test_same(void **state)
{
	static const struct wire_extent x[] = {
		{ 0, WIRE_SAME_OF(0xcc), 500, 0 }, { 0, WIRE_DATA, 1, 500 }, { 1, WIRE_SAME_OF(1), WIRE_SAME_MAX - 500, 7 },
	};
	static const struct wire_extent zero = { 0, WIRE_SAME_OF(0), 1, 0 };
	static const struct wire_extent many[] = { { 1, WIRE_SAME_OF(1), WIRE_SAME_MAX, 0 }, { 0, WIRE_SAME_OF(1), 1, 0 } };
	struct wire_header h = ram_header(x, 3);

	(void)state;
	assert_int_equal(get_ram(&h, x, 3, sizeof(x)), 0);
	h.type = WIRE_PRIVATE;
	assert_int_equal(get_ram(&h, x, 3, sizeof(x)), -EPROTO);
	h = ram_header(&zero, 1);
	assert_int_equal(get_ram(&h, &zero, 1, sizeof(zero)), -EPROTO);
	h = ram_header(many, 2);
	assert_int_equal(get_ram(&h, many, 1, sizeof(many[0])), -EPROTO);
	h = ram_header(many, 1);
	assert_int_equal(get_ram(&h, many, 1, sizeof(many[0])), 0);
	h = ram_header(many, 2);
	assert_int_equal(get_ram(&h, many, 2, sizeof(many)), -EPROTO);
}

/* The block is shorter than its pages, of which there are some, and no more than a buffer holds. */
static void test_packed(void **state)
{
	static const struct wire_extent x[] = { { 0, WIRE_DATA, 3, 0 }, { 1, WIRE_ZERO, 9, 0 }, { 1, WIRE_SAME_OF(7), 2, 20 } };
	static const struct wire_extent none = { 1, WIRE_ZERO, 9, 0 };
	struct wire_extent most = { 1, WIRE_DATA, 64, 0 };
	const uint32_t head = 3 * WIRE_EXTENT + WIRE_PACKED_HEAD;
	struct wire_header h = { .type = WIRE_PACKED, .arg = 3 };

	(void)state;
	for (uint32_t block = 0; block <= 4 * PAGE_BYTES; block++) {
		h.length = head + block;
		assert_int_equal(get_ram(&h, x, 3, sizeof(x)), block && block < 3 * PAGE_BYTES ? 0 : -EPROTO);
	}
	for (h.length = 0; h.length <= head; h.length++)
		assert_int_equal(get_ram(&h, x, 3, sizeof(x)), -EPROTO);
	h = (struct wire_header) { .type = WIRE_PACKED, .arg = 1, .length = WIRE_EXTENT + WIRE_PACKED_HEAD + 1 };
	assert_int_equal(get_ram(&h, &none, 1, sizeof(none)), -EPROTO);
	assert_int_equal(get_ram(&h, &most, 1, sizeof(most)), 0);
	most.pages++;
	assert_int_equal(get_ram(&h, &most, 1, sizeof(most)), -EPROTO);
	most.pages = (1u << 20) + 1;	/* 2^32 bytes and a page: a page in 32 bits */
	assert_int_equal(get_ram(&h, &most, 1, sizeof(most)), -EPROTO);
}

/**
 * struct delta - a DELTA frame: a page whole, three in parts of which there are 1, 2 and 7, and zeros
 * @head: what stands behind the extents
 */
struct delta {
	struct wire_header h;
	struct wire_extent x[4];
	uint8_t head[WIRE_PACKED_HEAD + 3];
};

#define DELTA_BYTES	(PAGE_BYTES + 10 * WIRE_PART)

static struct delta delta(uint64_t codec, uint32_t rest)
{
	struct delta d = {
		.h = { .type = WIRE_DELTA, .arg = 4, .length = sizeof(d.x) / sizeof(d.x[0]) * WIRE_EXTENT + sizeof(d.head) + rest },
		.x = { { 0, WIRE_PARTS, 2, 10 }, { 0, WIRE_DATA, 1, 12 }, { 1, WIRE_PARTS, 1, 0 }, { 1, WIRE_ZERO, 5, 9 } },
	};

	wire_put_u64(d.head, codec);
	memcpy(d.head + WIRE_PACKED_HEAD, (const uint8_t []) { 0x80, 0x11, 0xfe }, 3);
	return d;
}

/* As the receiver does it: the extents, and then what they say follows. */
static int get_delta(const struct delta *d, size_t len, uint64_t *codec, uint32_t *bytes)
{
	struct wire_extent *x = calloc(d->h.arg, sizeof(*x));
	uint8_t *p = malloc(len);
	int ret = get_ram(&d->h, d->x, d->h.arg, d->h.arg * WIRE_EXTENT);

	assert_true(x && (p || !len));
	memcpy(x, d->x, d->h.arg * sizeof(*x));
	memcpy(p, d->head, len);
	if (!ret)
		ret = wire_get_delta(&d->h, x, p, len, codec, bytes);
	free(p);
	free(x);
	return ret;
}

static void test_delta(void **state)
{
	struct delta d = delta(0, DELTA_BYTES);
	uint64_t codec = 1;
	uint32_t bytes = 0;

	(void)state;
	assert_int_equal(wire_parts(d.x, 4), 3);
	assert_int_equal(get_delta(&d, sizeof(d.head), &codec, &bytes), 0);
	assert_true(!codec && bytes == DELTA_BYTES);
	/* With a codec's number the rest is shorter, without one it is just these bytes. */
	for (uint64_t number = 0; number < 3; number++)
		for (uint32_t rest = 0; rest < 2 * DELTA_BYTES; rest++) {
			d = delta(number << 40 | number, rest);
			assert_int_equal(get_delta(&d, sizeof(d.head), &codec, &bytes),
					 rest && (number ? rest < DELTA_BYTES : rest == DELTA_BYTES) ? 0 : -EPROTO);
			assert_true(!rest || rest > DELTA_BYTES || codec == (number << 40 | number));
		}
	/* A page of which there is no part; another number of them. */
	for (unsigned int i = 0; i < 3; i++) {
		d = delta(1, 100);
		d.head[WIRE_PACKED_HEAD + i] = 0;
		assert_int_equal(get_delta(&d, sizeof(d.head), &codec, &bytes), -EPROTO);
	}
	d = delta(1, 100);
	assert_int_equal(get_delta(&d, sizeof(d.head) - 1, &codec, &bytes), -EPROTO);
	d.x[0].pages = 1;
	assert_int_equal(get_delta(&d, sizeof(d.head), &codec, &bytes), -EPROTO);
	/* Outside of the block, and of all of it. */
	d = delta(1, 100);
	d.x[0].first = 999;
	assert_int_equal(get_delta(&d, sizeof(d.head), &codec, &bytes), -ERANGE);
}

/* A frame without parts is none; one with more pages than it may have; with more bytes. And no other frame has parts. */
static void test_delta_limits(void **state)
{
	struct wire_extent x = { 1, WIRE_DATA, 1, 0 };
	struct wire_header h = { .type = WIRE_DELTA, .arg = 1, .length = WIRE_EXTENT + WIRE_PACKED_HEAD + 2 };
	uint8_t p[WIRE_PACKED_HEAD + WIRE_PARTS_MAX];
	uint64_t codec;
	uint32_t bytes;

	(void)state;
	memset(p, 1, sizeof(p));
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	x.kind = WIRE_PARTS;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), 0);
	h.length--;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	x.pages = WIRE_PARTS_MAX;
	h.length = WIRE_EXTENT + sizeof(p) + WIRE_PACKED_MAX - 1;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), 0);
	assert_int_equal(wire_get_delta(&h, &x, p, sizeof(p), &codec, &bytes), 0);
	assert_int_equal(bytes, WIRE_PACKED_MAX);
	p[sizeof(p) - 1] = 3;
	assert_int_equal(wire_get_delta(&h, &x, p, sizeof(p), &codec, &bytes), -EPROTO);
	x.pages++;
	h.length += 100;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	x.pages = UINT32_MAX;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	x.pages = 1;
	for (unsigned int type = 1; type < WIRE_TYPES; type++) {
		h = (struct wire_header) { .type = type, .arg = 1, .length = WIRE_EXTENT + WIRE_PACKED_HEAD + 2 };
		if (type != WIRE_DELTA)
			assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	}
	x.kind = WIRE_PARTS | 0x100;
	h.type = WIRE_DELTA;
	assert_int_equal(get_ram(&h, &x, 1, sizeof(x)), -EPROTO);
	assert_int_equal(wire_part_bytes(0), 0);
	assert_int_equal(wire_part_bytes(0xff), PAGE_BYTES);
}

/* The page bytes that follow must be those of the WIRE_DATA extents, to the byte. */
static void test_ram_sum(void **state)
{
	static const int32_t off[] = { -4096, -16, -1, 1, 16, 4096, 250 * 4096 };
	static const struct wire_extent huge = { 1, WIRE_DATA, 1u << 20, 0 };	/* 2^32 bytes: 0 in 32 bits */
	struct wire_header h;
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(off); i++) {
		h = ram_header(three, 3);
		h.length += off[i];
		assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), -EPROTO);
	}
	h = ram_header(three, 3);
	h.length = 3 * WIRE_EXTENT - 1;
	assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), -EPROTO);
	h = ram_header(&huge, 1);
	assert_int_equal(h.length, WIRE_EXTENT);
	assert_int_equal(get_ram(&h, &huge, 1, WIRE_EXTENT), -EPROTO);
}

static void test_ram_wrong(void **state)
{
	static const struct {
		struct wire_extent x;
		int ret;
	} wrong[] = {
		{ { 2, WIRE_DATA, 3, 10 }, -ERANGE },
		{ { 0, WIRE_DATA, 3, 998 }, -ERANGE },
		{ { 0, WIRE_ZERO, 1001, 0 }, -ERANGE },
		{ { 0, WIRE_DATA, 3, UINT64_MAX - 1 }, -EPROTO },
		{ { 0, WIRE_DATA, 0, 10 }, -EPROTO },
		{ { 0, WIRE_KINDS, 3, 10 }, -EPROTO },
	};
	const struct wire_header good = ram_header(three, 3);
	struct wire_extent x[3];
	struct wire_header h;
	unsigned int i, at;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		for (at = 0; at < 3; at++) {
			memcpy(x, three, sizeof(x));
			x[at] = wrong[i].x;
			h = ram_header(x, 3);
			assert_int_equal(get_ram(&h, x, 3, sizeof(x)), wrong[i].ret);
		}
	}
	/* Not as many as the header counts; a part of one; another type; more than a caller has room for. */
	assert_int_equal(get_ram(&good, three, 3, 2 * WIRE_EXTENT), -EPROTO);
	assert_int_equal(get_ram(&good, three, 3, 3 * WIRE_EXTENT - 1), -EPROTO);
	h = good;
	h.length -= WIRE_EXTENT;	/* so that the sum is right */
	assert_int_equal(get_ram(&h, three, 3, 2 * WIRE_EXTENT), -EPROTO);
	h = good;
	h.arg = 2;
	h.length = 3 * WIRE_EXTENT + 3 * PAGE_BYTES;	/* again, of the first two */
	assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), -EPROTO);
	h = good;
	h.type = WIRE_VERIFY;
	assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), -EPROTO);
	h.type = WIRE_RAM;
	h.arg = WIRE_EXTENTS_MAX + 1;
	assert_int_equal(get_ram(&h, three, 3, 3 * WIRE_EXTENT), -EMSGSIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ram_round_trip),
		cmocka_unit_test(test_ram_sum),
		cmocka_unit_test(test_same),
		cmocka_unit_test(test_packed),
		cmocka_unit_test(test_delta),
		cmocka_unit_test(test_delta_limits),
		cmocka_unit_test(test_ram_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
