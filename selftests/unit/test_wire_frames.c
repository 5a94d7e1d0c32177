// SPDX-License-Identifier: GPL-2.0-only
/* The two bodies of the wire protocol that hold a table: RAM and BLOCKS. Exact allocations, for ASan. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static int get_blocks(const uint8_t *bytes, size_t len, struct wire_block *b, unsigned int n)
{
	uint8_t *p = malloc(len);
	int ret;

	assert_true(p || !len);
	if (len)
		memcpy(p, bytes, len);
	ret = wire_get_blocks(p, len, b, n);
	free(p);
	return ret;
}

static const struct wire_block two[] = {
	{ .pages = 0x0102030405, .address = 0x1122334455667788, .page_size = 1u << 30, .name = "pc.ram" },
	{ .pages = 4096, .address = WIRE_NO_ADDRESS, .page_size = 4096, .name = "0000:00:02.0/vga.vram ~" },
};
#define TWO_SIZE	(24 + 6 + 24 + 23)

static void test_blocks_round_trip(void **state)
{
	static const uint8_t first[] = {
		5, 4, 3, 2, 1, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0x40, 6, 0, 0, 0, 'p', 'c', '.', 'r', 'a', 'm',
	};
	static struct wire_block most[WIRE_BLOCKS_MAX], got[WIRE_BLOCKS_MAX];
	static uint8_t p[WIRE_BLOCKS_MAX * (24 + WIRE_NAME_MAX)];
	unsigned int i;

	(void)state;
	assert_int_equal(wire_blocks_size(two, 2), TWO_SIZE);
	assert_int_equal(wire_blocks_size(two, 0), 0);
	wire_put_blocks(p, two, 2);
	assert_memory_equal(p, first, sizeof(first));
	memset(got, 0xff, sizeof(got));
	assert_int_equal(get_blocks(p, TWO_SIZE, got, 2), 0);
	assert_memory_equal(got, two, sizeof(two));

	for (i = 0; i < WIRE_BLOCKS_MAX; i++) {
		most[i].pages = INT64_MAX / PAGE_BYTES;
		memset(most[i].name, '!' + i, WIRE_NAME_MAX);
	}
	assert_int_equal(wire_blocks_size(most, WIRE_BLOCKS_MAX), sizeof(p));
	wire_put_blocks(p, most, WIRE_BLOCKS_MAX);
	assert_int_equal(get_blocks(p, sizeof(p), got, WIRE_BLOCKS_MAX), 0);
	assert_memory_equal(got, most, sizeof(most));
}

/* Every shorter length, one byte more, and one record more or less than counted. */
static void test_blocks_length(void **state)
{
	uint8_t p[TWO_SIZE + 1] = { 0 };
	struct wire_block got[3];
	size_t len;

	(void)state;
	wire_put_blocks(p, two, 2);
	for (len = 0; len < TWO_SIZE; len++)
		assert_int_equal(get_blocks(p, len, got, 2), -EPROTO);
	assert_int_equal(get_blocks(p, TWO_SIZE + 1, got, 2), -EPROTO);
	assert_int_equal(get_blocks(p, TWO_SIZE, got, 1), -EPROTO);
	assert_int_equal(get_blocks(p, TWO_SIZE, got, 3), -EPROTO);
	assert_int_equal(get_blocks(p, TWO_SIZE, got, WIRE_BLOCKS_MAX + 1), -EMSGSIZE);
}

static void test_blocks_fields(void **state)
{
	static const struct {
		unsigned int at;	/* in the second record */
		uint8_t bytes[8];
		unsigned int len;
		int ret;
	} wrong[] = {
		{ 0, { 0 }, 8, -EPROTO },			/* no pages */
		{ 0, { 0, 0, 0, 0, 0, 0, 8, 0 }, 8, -EMSGSIZE },	/* 2^51: one more than off_t holds */
		{ 20, { 0, 0 }, 2, -EPROTO },			/* no name */
		{ 20, { 22 }, 1, -EPROTO },			/* a byte is left */
		{ 20, { 24 }, 1, -EPROTO },			/* longer than what follows */
		{ 20, { 0, 1 }, 2, -EMSGSIZE },			/* 256 */
		{ 22, { 1, 0 }, 2, -EPROTO },			/* reserved */
		{ 22, { 0, 1 }, 2, -EPROTO },
		{ 24, { 0 }, 1, -EPROTO },			/* first, a middle and the last byte of the name */
		{ 28, { 0x1f }, 1, -EPROTO },
		{ 28, { '\n' }, 1, -EPROTO },
		{ 46, { 0x7f }, 1, -EPROTO },
		{ 46, { 0x80 }, 1, -EPROTO },
		{ 46, { 0 }, 1, -EPROTO },
		{ 24, { ' ' }, 1, 0 },
		{ 16, { 1, 2, 3, 4 }, 4, 0 },			/* the page size is informative */
		{ 8, { 1, 2, 3, 4, 5, 6, 7, 8 }, 8, 0 },
	};
	uint8_t p[TWO_SIZE];
	struct wire_block got[2];
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		wire_put_blocks(p, two, 2);
		memcpy(p + 30 + wrong[i].at, wrong[i].bytes, wrong[i].len);
		if (get_blocks(p, TWO_SIZE, got, 2) != wrong[i].ret)
			fail_msg("case %u", i);
	}
}

static void test_blocks_names(void **state)
{
	struct wire_block b[3] = { two[0], two[1], two[0] };
	struct wire_block got[3];
	uint8_t p[TWO_SIZE + 30];

	(void)state;
	b[2].pages = 9;
	wire_put_blocks(p, b, 3);
	assert_int_equal(get_blocks(p, sizeof(p), got, 3), -EPROTO);
	/* A name may begin as another one does. */
	strcpy(b[2].name, "pc.ra!");
	wire_put_blocks(p, b, 3);
	assert_int_equal(get_blocks(p, sizeof(p), got, 3), 0);
	strcpy(b[2].name, "pc.ra");
	wire_put_blocks(p, b, 3);
	assert_int_equal(get_blocks(p, sizeof(p) - 1, got, 3), 0);
	strcpy(b[2].name, "");
	wire_put_blocks(p, b, 3);
	assert_int_equal(get_blocks(p, sizeof(p) - 6, got, 3), -EPROTO);
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
		cmocka_unit_test(test_blocks_round_trip),
		cmocka_unit_test(test_blocks_length),
		cmocka_unit_test(test_blocks_fields),
		cmocka_unit_test(test_blocks_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
