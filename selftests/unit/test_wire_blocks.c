// SPDX-License-Identifier: GPL-2.0-only
/* BLOCKS: the table of RAM's blocks. Exact allocations, for ASan. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "page/page.h"
#include "wire/blocks.h"
#include "wire/wire.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

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
		cmocka_unit_test(test_blocks_round_trip),
		cmocka_unit_test(test_blocks_length),
		cmocka_unit_test(test_blocks_fields),
		cmocka_unit_test(test_blocks_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
