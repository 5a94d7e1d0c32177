// SPDX-License-Identifier: GPL-2.0-only
/*
 * The wire protocol: everything round trips, the bytes are those that wire.h promises, and each field that is wrong,
 * alone, is refused with the error that wire.h names. Inputs lie in allocations of their exact size, for ASan.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/extent.h"
#include "wire/wire.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define ANY		UINT32_MAX

static uint8_t *exact(const void *p, size_t len)
{
	uint8_t *copy = malloc(len);

	assert_true(copy || !len);
	return len ? memcpy(copy, p, len) : copy;
}

static int get_header(const uint8_t *bytes, struct wire_header *h)
{
	uint8_t *p = exact(bytes, WIRE_HEADER);
	int ret = wire_get_header(p, h);

	free(p);
	return ret;
}

/* What the decoder says of a header with these values. */
static int try_header(uint16_t type, uint16_t flags, uint32_t arg, uint32_t length)
{
	const struct wire_header h = { type, flags, arg, length };
	struct wire_header got = { 0 };
	uint8_t p[WIRE_HEADER];
	int ret;

	wire_put_header(p, &h);
	ret = get_header(p, &got);
	if (!ret)
		assert_memory_equal(&got, &h, sizeof(h));
	return ret;
}

/* What wire.h says of each type, written a second time: base + per * arg bytes of body, up to more above that. */
static const struct {
	const char *name;
	uint16_t type, flags;
	uint32_t arg_min, arg_max;
	uint32_t base, per, more, more_per;
} spec[] = {
	{ "HELLO", 1, 0, 6, 6, 16, 0, 0, 0 },
	{ "BLOCKS", 2, 0, 1, 64, 0, 25, 0, 254 },
	{ "READY", 3, 2, 1, 16, 16, 0, 0, 0 },
	{ "PING", 4, 0, 0, ANY, 8, 0, 0, 0 },
	{ "PONG", 5, 0, 0, ANY, 8, 0, 0, 0 },
	{ "RAM", 6, 0, 1, 512, 0, 16, 1 << 20, 0 },
	{ "ROUND", 7, 1, 0, ANY, 0, 0, 0, 0 },
	{ "ACK", 8, 0, 0, ANY, 0, 0, 0, 0 },
	{ "VERIFY", 9, 0, 0, 8192, 16, 8, 0, 0 },
	{ "SWITCHOVER", 10, 128, 0, 0, 0, 0, 0, 0 },
	{ "COMMIT", 12, 0, 0, 0, 0, 0, 0, 0 },
	{ "DEVICE", 13, 64, 0, 0, 9, 0, (128 << 10) - 1, 0 },
	{ "DEVICE_END", 14, 4, 0, ANY, 8, 0, 0, 0 },
	{ "RESUMED", 15, 0, 0, 0, 8, 0, 0, 0 },
	{ "ABORT", 16, 0, 1, 255, 0, 0, 1000, 0 },
	{ "STREAMS", 17, 0, 1, 16, 0, 0, 0, 0 },
	{ "JOIN", 18, 0, 0, 15, 16, 0, 0, 0 },
	{ "CHECK", 19, 0, 1, 64, 0, 25, 0, 254 },
	{ "CHECKED", 20, 2, 1, 16, 8, 0, 0, 0 },
	{ "PROBE", 21, 0, 0, 0, 1, 0, (256 << 10) - 1, 0 },
	{ "PRIVATE_BLOCKS", 22, 0, 1, 64, 0, 25, 0, 254 },
	{ "PRIVATE", 23, 0, 1, 512, 0, 16, 128 << 10, 0 },
	{ "DONE", 24, 0, 0, 0, 0, 0, 0, 0 },
	{ "ASK", 25, 0, 0, 0, 16, 0, 0, 0 },
	{ "VERDICT", 26, 384, 0, 255, 8, 0, 0, 0 },
	{ "RAM_FILES", 27, 0, 1, 64, 16, 16, 0, 0 },
	{ "ASK_VIEW", 28, 48, 0, 0, 0, 0, 0, 0 },
	{ "VIEW", 29, 8, 0, 0, 1, 0, (256 << 10) - 1, 0 },
	{ "KEEP", 30, 0, 1, 3600, 0, 0, 0, 0 },
	{ "RECONNECT", 31, 0, 0, (1 << 28) - 1, 16, 0, 0, 0 },
	{ "PACKED", 32, 0, 1, 512, 9, 16, (256 << 10) - 2, 0 },
	{ "LOAD", 33, 0, 0, 1000, 0, 0, 0, 0 },
	{ "DELTA", 34, 0, 1, 512, 10, 16, (256 << 10) + 512 - 2, 0 },
	{ "POSTCOPY", 35, 0, 0, 64, 0, 4, 0, 0 },
	{ "CANNOT", 36, 0, 1, 255, 0, 0, 1000, 0 },
	{ "OWED", 37, 0, 0, 8192, 16, 8, 0, 0 },
	{ "WANT", 38, 0, 1, 64, 0, 16, 0, 0 },
	{ "COMPLETE", 39, 0, 0, 0, 0, 0, 0, 0 },
	{ "RECOVER", 40, 0, 0, WIRE_ROUND_MAX, 16, 0, 0, 0 },
	{ "FAULTS", 41, 0, 0, 0, 48, 0, 0, 0 },
	{ "REUSE", 42, 0, 0, 2, 0, 0, 8 + 384, 0 },
	{ "WANT_HASHES", 43, 0, 1, 8192, 8, 0, 0, 0 },
	{ "HASHES", 44, 8, 0, 8192, 24, 16, 0, 0 },
	{ "REFERENCES", 45, 0, 1, 1024, 0, 24, 0, 0 },
	{ "REFUSED", 46, 0, 1, 512, 0, 16, 0, 0 },
};

static void test_header_bytes(void **state)
{
	static const uint8_t want[WIRE_HEADER] = {
		'G', 'T', 'W', 'T', 7, 0, 1, 0, 0x44, 0x33, 0x22, 0x11,
	};
	static const struct wire_header h = { .type = WIRE_ROUND, .flags = WIRE_ROUND_LAST, .arg = 0x11223344 };
	static const struct wire_header long_one = { .length = 0xa1b2c3d4 };
	uint8_t p[WIRE_HEADER];

	(void)state;
	memset(p, 0xff, sizeof(p));
	wire_put_header(p, &h);
	assert_memory_equal(p, want, sizeof(want));
	wire_put_header(p, &long_one);
	assert_memory_equal(p + 12, "\xd4\xc3\xb2\xa1", 4);
}

/* Each field wrong once, for every type: at each end of its range, and one beyond. */
static void test_header_limits(void **state)
{
	unsigned int i, k, flag;

	(void)state;
	/* 11 was a frame of older versions. */
	assert_int_equal(ARRAY_SIZE(spec), WIRE_TYPES - 2);
	assert_int_equal(try_header(11, 0, 0, 0), -EPROTO);
	assert_int_equal(try_header(11, 0, 0, 8), -EPROTO);
	for (i = 0; i < ARRAY_SIZE(spec); i++) {
		const uint16_t type = spec[i].type;
		const uint32_t args[] = { spec[i].arg_min, spec[i].arg_max };
		const int high = spec[i].arg_min == spec[i].arg_max ? -EPROTO : -EMSGSIZE;
		const int version = type == WIRE_HELLO ? -EPROTONOSUPPORT : 0;
		const uint32_t min0 = spec[i].base + spec[i].per * spec[i].arg_min;

		for (k = 0; k < ARRAY_SIZE(args); k++) {
			const uint32_t min = spec[i].base + spec[i].per * args[k];
			const uint32_t max = min + spec[i].more + spec[i].more_per * args[k];
			const int fixed = min == max ? -EPROTO : -EMSGSIZE;

			assert_int_equal(try_header(type, 0, args[k], min), 0);
			assert_int_equal(try_header(type, 0, args[k], max), 0);
			assert_int_equal(try_header(type, 0, args[k], max + 1), fixed);
			assert_int_equal(try_header(type, 0, args[k], UINT32_MAX), fixed);
			if (min)
				assert_int_equal(try_header(type, 0, args[k], min - 1), -EPROTO);
		}
		if (spec[i].arg_min)
			assert_int_equal(try_header(type, 0, spec[i].arg_min - 1, min0), version ?: -EPROTO);
		if (spec[i].arg_max != ANY) {
			assert_int_equal(try_header(type, 0, spec[i].arg_max + 1, min0), version ?: high);
			assert_int_equal(try_header(type, 0, UINT32_MAX, min0), version ?: high);
		}
		for (flag = 1; flag < 0x10000; flag <<= 1)
			assert_int_equal(try_header(type, flag, spec[i].arg_min, min0), flag & spec[i].flags ? 0 : -EPROTO);
	}
}

static void test_header_fields(void **state)
{
	static const struct wire_header h = { .type = WIRE_ACK, .arg = 3 };
	const struct wire_header poison = { 0xaaaa, 0xbbbb, 0xcccccccc, 0xdddddddd };
	struct wire_header got;
	uint8_t p[WIRE_HEADER];
	unsigned int i;

	(void)state;
	assert_int_equal(try_header(0, 0, 0, 0), -EPROTO);
	assert_int_equal(try_header(WIRE_TYPES, 0, 0, 0), -EPROTO);
	assert_int_equal(try_header(0xffff, 0, 0, 0), -EPROTO);
	/* Another version is told from nonsense, whatever else its HELLO holds. */
	assert_int_equal(try_header(WIRE_HELLO, 0x8000, WIRE_VERSION + 1, 77), -EPROTONOSUPPORT);

	wire_put_header(p, &h);
	for (i = 0; i < WIRE_HEADER; i++) {
		if (i >= 8 && i < 12)	/* any arg is right */
			continue;
		p[i] ^= 0x40;
		got = poison;
		assert_int_equal(get_header(p, &got), i < 4 ? -EPROTONOSUPPORT : -EPROTO);
		assert_memory_equal(&got, &poison, sizeof(got));
		p[i] ^= 0x40;
	}
	assert_int_equal(get_header(p, &got), 0);
}

static void test_type_names(void **state)
{
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(spec); i++)
		assert_string_equal(wire_type_name(spec[i].type), spec[i].name);
	assert_string_equal(wire_type_name(0), "?");
	assert_string_equal(wire_type_name(WIRE_TYPES), "?");
	assert_string_equal(wire_type_name(UINT32_MAX), "?");
}

static void test_u64(void **state)
{
	const uint64_t v = 0x0102030405060708;
	uint8_t p[8];

	(void)state;
	wire_put_u64(p, v);
	assert_memory_equal(p, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
	assert_true(wire_get_u64(p) == v);
	wire_put_u64(p, UINT64_MAX);
	assert_true(wire_get_u64(p) == UINT64_MAX);
}

static int try_extent(const struct wire_extent *x)
{
	struct wire_extent got = { 0 };
	uint8_t bytes[WIRE_EXTENT];
	uint8_t *p;
	int ret;

	wire_put_extent(bytes, x);
	p = exact(bytes, sizeof(bytes));
	ret = wire_get_extent(p, &got);
	free(p);
	if (!ret)
		assert_memory_equal(&got, x, sizeof(got));
	return ret;
}

static void test_extent(void **state)
{
	static const struct {
		struct wire_extent x;
		int ret;
	} cases[] = {
		{ { 0, WIRE_DATA, 1, 0 }, 0 },
		{ { 0xffff, WIRE_ZERO, UINT32_MAX, 0x123456789abcdef }, 0 },
		{ { 0, WIRE_DATA, 1, UINT64_MAX - 1 }, 0 },
		{ { 0, WIRE_DATA, UINT32_MAX, UINT64_MAX - UINT32_MAX }, 0 },
		{ { 0, WIRE_KINDS, 1, 0 }, -EPROTO },
		{ { 0, WIRE_SAME_OF(0xcc), 1, 0 }, -EPROTO },
		{ { 0, 0xffff, 1, 0 }, -EPROTO },
		{ { 0, WIRE_DATA, 0, 0 }, -EPROTO },
		{ { 0, WIRE_DATA, 1, UINT64_MAX }, -EPROTO },
		{ { 0, WIRE_DATA, UINT32_MAX, UINT64_MAX - UINT32_MAX + 1 }, -EPROTO },
	};
	static const struct wire_extent x = { 0x0201, 0x0403, 0x08070605, 0x100f0e0d0c0b0a09 };
	uint8_t p[WIRE_EXTENT];
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(try_extent(&cases[i].x), cases[i].ret);
	wire_put_extent(p, &x);
	for (i = 0; i < WIRE_EXTENT; i++)
		assert_int_equal(p[i], i + 1);
}

static void test_extent_check(void **state)
{
	static const uint64_t ram[] = { 100, 0, UINT64_MAX };
	static const struct {
		struct wire_extent x;
		int ret;
	} cases[] = {
		{ { 0, 0, 1, 0 }, 0 },
		{ { 0, 0, 100, 0 }, 0 },
		{ { 0, 0, 1, 99 }, 0 },
		{ { 2, 0, UINT32_MAX, UINT64_MAX - UINT32_MAX }, 0 },
		{ { 0, 0, 101, 0 }, -ERANGE },
		{ { 0, 0, 1, 100 }, -ERANGE },
		{ { 0, 0, 2, 99 }, -ERANGE },
		{ { 0, 0, 2, UINT64_MAX }, -ERANGE },	/* wraps to page 1 */
		{ { 2, 0, 2, UINT64_MAX - 1 }, -ERANGE },
		{ { 1, 0, 1, 0 }, -ERANGE },
		{ { 3, 0, 1, 0 }, -ERANGE },
		{ { 0xffff, 0, 1, 0 }, -ERANGE },
	};
	unsigned int i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(wire_extent_check(&cases[i].x, ram, ARRAY_SIZE(ram)), cases[i].ret);
	assert_int_equal(wire_extent_check(&cases[0].x, ram, 0), -ERANGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header_bytes),
		cmocka_unit_test(test_header_limits),
		cmocka_unit_test(test_header_fields),
		cmocka_unit_test(test_type_names),
		cmocka_unit_test(test_u64),
		cmocka_unit_test(test_extent),
		cmocka_unit_test(test_extent_check),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
