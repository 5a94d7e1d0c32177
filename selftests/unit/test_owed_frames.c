// SPDX-License-Identifier: GPL-2.0-only
/* The frames of post-copy. Exact allocations, for ASan. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/owed.h"

static const uint64_t ram[] = { 1000, 1200, UINT64_C(1) << 40 };
static const uint32_t unit[] = { 1, 512, 1 };
#define BLOCKS	3u

/* An OWED frame whose words are those given. */
static int get_owed(const struct wire_extent *x, const uint64_t *words, unsigned int n, unsigned int arg)
{
	struct wire_header h = { .type = WIRE_OWED, .arg = arg, .length = WIRE_EXTENT + n * 8 };
	uint8_t *body = malloc(h.length);
	const uint8_t *at = NULL;
	struct wire_extent got;
	int ret;

	assert_non_null(body);
	wire_put_extent(body, x);
	for (unsigned int i = 0; i < n; i++)
		wire_put_u64(body + WIRE_EXTENT + i * 8, words[i]);
	ret = wire_get_owed(&h, body, ram, BLOCKS, &got, &at);
	if (!ret) {
		assert_memory_equal(&got, x, sizeof(got));
		assert_ptr_equal(at, n ? body + WIRE_EXTENT : NULL);
	}
	free(body);
	return ret;
}

static void owed_has_a_bit_for_each_page(void **state)
{
	const uint64_t words[] = { UINT64_MAX, 5, 0 };
	struct wire_extent x = { .block = 0, .kind = WIRE_DATA, .pages = 67, .first = 933 };

	(void)state;
	assert_int_equal(get_owed(&x, words, 2, 2), 0);
	assert_int_equal(get_owed(&x, words, 1, 1), -EPROTO);
	assert_int_equal(get_owed(&x, words, 3, 3), -EPROTO);
	assert_int_equal(get_owed(&x, words, 2, 1), -EPROTO);
	/* A bit behind the extent is a page that it does not have. */
	x.pages = 66;
	assert_int_equal(get_owed(&x, words, 2, 2), -EPROTO);
	x.pages = 64;
	assert_int_equal(get_owed(&x, words, 1, 1), 0);
	x.pages = 68;
	assert_int_equal(get_owed(&x, words, 2, 2), -ERANGE);
	x = (struct wire_extent) { .block = 3, .pages = 64 };
	assert_int_equal(get_owed(&x, words, 1, 1), -ERANGE);
	x = (struct wire_extent) { .block = 2, .pages = UINT32_MAX, .kind = WIRE_DATA };
	assert_int_equal(get_owed(&x, words, 3, 3), -EPROTO);
}

static void owed_whole_has_no_words(void **state)
{
	const uint64_t words[] = { 1 };
	struct wire_extent x = { .block = 2, .kind = WIRE_ZERO, .pages = UINT32_MAX, .first = 7 };

	(void)state;
	assert_int_equal(get_owed(&x, NULL, 0, 0), 0);
	assert_int_equal(get_owed(&x, words, 1, 1), -EPROTO);
	x.pages = 1;
	assert_int_equal(get_owed(&x, words, 1, 1), -EPROTO);
	x.kind = WIRE_SAME_OF(1);
	assert_int_equal(get_owed(&x, NULL, 0, 0), -EPROTO);
	x.kind = WIRE_ZERO;
	x.pages = 0;
	assert_int_equal(get_owed(&x, NULL, 0, 0), -EPROTO);
}

static int get_want(const struct wire_extent *x, unsigned int n, int more)
{
	struct wire_header h = { .type = WIRE_WANT, .arg = n, .length = n * WIRE_EXTENT + (uint32_t)more };
	uint8_t *body = malloc(n * WIRE_EXTENT);
	struct wire_extent *got = malloc(n * sizeof(*got));
	int ret;

	assert_true(body && got);
	for (unsigned int i = 0; i < n; i++)
		wire_put_extent(body + i * WIRE_EXTENT, &x[i]);
	ret = wire_get_want(&h, body, ram, unit, BLOCKS, got);
	if (!ret)
		assert_memory_equal(got, x, n * sizeof(*got));
	free(got);
	free(body);
	return ret;
}

static void want_names_whole_units(void **state)
{
	const struct wire_extent right[] = {
		{ .block = 0, .kind = WIRE_DATA, .pages = 1, .first = 999 },
		{ .block = 1, .kind = WIRE_DATA, .pages = 512, .first = 512 },
		{ .block = 1, .kind = WIRE_DATA, .pages = 176, .first = 1024 },	/* the last, which is short */
	};
	struct wire_extent x;

	(void)state;
	assert_int_equal(get_want(right, 3, 0), 0);
	assert_int_equal(get_want(right, 3, 1), -EPROTO);
	x = right[0], x.pages = 2, x.first = 5;
	assert_int_equal(get_want(&x, 1, 0), -EPROTO);
	x = right[0], x.first = 1000;
	assert_int_equal(get_want(&x, 1, 0), -ERANGE);
	x = right[0], x.kind = WIRE_ZERO;
	assert_int_equal(get_want(&x, 1, 0), -EPROTO);
	x = right[1], x.first = 511;
	assert_int_equal(get_want(&x, 1, 0), -EPROTO);
	x = right[1], x.pages = 511;
	assert_int_equal(get_want(&x, 1, 0), -EPROTO);
	x = right[2], x.pages = 175;
	assert_int_equal(get_want(&x, 1, 0), -EPROTO);
	x = right[2], x.block = 3;
	assert_int_equal(get_want(&x, 1, 0), -ERANGE);
}

static int get_units(const uint32_t *u, unsigned int n, unsigned int blocks)
{
	struct wire_header h = { .type = WIRE_POSTCOPY_ASK, .arg = n, .length = n * WIRE_UNIT };
	uint8_t *body = malloc(n * WIRE_UNIT + 1);
	uint32_t got[BLOCKS];
	int ret;

	assert_non_null(body);
	wire_put_units(body, u, n);
	ret = wire_get_units(&h, body, got, blocks);
	if (!ret)
		assert_memory_equal(got, u, n * sizeof(*u));
	free(body);
	return ret;
}

static void units_are_powers_of_two(void **state)
{
	const uint32_t right[] = { 1, 512, WIRE_UNIT_MAX }, none[] = { 1, 0, 1 }, odd[] = { 1, 511, 1 },
		       large[] = { 1, 1, 2 * WIRE_UNIT_MAX };

	(void)state;
	assert_int_equal(get_units(right, 3, 3), 0);
	assert_int_equal(get_units(right, 2, 3), -EPROTO);
	assert_int_equal(get_units(none, 3, 3), -EPROTO);
	assert_int_equal(get_units(odd, 3, 3), -EPROTO);
	assert_int_equal(get_units(large, 3, 3), -EMSGSIZE);
}

static void faults_come_as_they_were_counted(void **state)
{
	const struct wire_faults f = { .seen = 1, .zeros = 1ull << 63, .asked = 3, .mean_ns = 4, .p99_ns = 5, .worst_ns = UINT64_MAX };
	struct wire_faults got = { 0 };
	uint8_t body[WIRE_FAULTS_BYTES];

	(void)state;
	wire_put_faults(body, &f);
	wire_get_faults(body, &got);
	assert_memory_equal(&got, &f, sizeof(f));
	assert_int_equal(body[0], 1);
	assert_int_equal(body[15], 0x80);
	assert_int_equal(body[32], 5);
}

/* The header's table: the frames' lengths, and the one flag. */
static int header(struct wire_header h)
{
	uint8_t p[WIRE_HEADER];
	struct wire_header got;

	wire_put_header(p, &h);
	return wire_get_header(p, &got);
}

static void headers(void **state)
{
	(void)state;
	assert_int_equal(header((struct wire_header) { .type = WIRE_SWITCHOVER, .flags = WIRE_OWING }), 0);
	assert_int_equal(header((struct wire_header) { .type = WIRE_COMMIT, .flags = WIRE_OWING }), -EPROTO);
	assert_int_equal(header((struct wire_header) { .type = WIRE_OWED, .arg = WIRE_OWED_WORDS, .length = WIRE_EXTENT + WIRE_OWED_WORDS * 8 }), 0);
	assert_int_equal(header((struct wire_header) { .type = WIRE_OWED, .arg = 2, .length = WIRE_EXTENT + 8 }), -EPROTO);
	assert_int_equal(header((struct wire_header) { .type = WIRE_OWED, .arg = WIRE_OWED_WORDS + 1, .length = WIRE_EXTENT }), -EMSGSIZE);
	assert_int_equal(header((struct wire_header) { .type = WIRE_WANT, .length = 0 }), -EPROTO);
	assert_int_equal(header((struct wire_header) { .type = WIRE_WANT, .arg = WIRE_WANT_MAX + 1, .length = (WIRE_WANT_MAX + 1) * WIRE_EXTENT }), -EMSGSIZE);
	assert_int_equal(header((struct wire_header) { .type = WIRE_COMPLETE, .length = 1 }), -EPROTO);
	assert_int_equal(header((struct wire_header) { .type = WIRE_POSTCOPY_ASK, .arg = 2, .length = 8 }), 0);
	assert_int_equal(header((struct wire_header) { .type = WIRE_CANNOT, .arg = 0 }), -EPROTO);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(owed_has_a_bit_for_each_page),
	cmocka_unit_test(owed_whole_has_no_words),
	cmocka_unit_test(want_names_whole_units),
	cmocka_unit_test(units_are_powers_of_two),
	cmocka_unit_test(faults_come_as_they_were_counted),
	cmocka_unit_test(headers),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
