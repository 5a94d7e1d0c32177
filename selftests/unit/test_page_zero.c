// SPDX-License-Identifier: GPL-2.0-only
/* Every variant of the zero filter, against a model that goes byte by byte; around the page lies the wrong answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "page_arena.h"

static void each_filter(void (*fn)(const struct zero_filter *f))
{
	unsigned int i;

	for (i = 0; i < zero_filters_count; i++) {
		if (zero_filters[i].supported())
			fn(&zero_filters[i]);
		else
			print_message("skipped: %s\n", zero_filters[i].name);
	}
}

static bool naive_is_zero(const uint8_t *page)
{
	unsigned int i;

	for (i = 0; i < PAGE_BYTES; i++) {
		if (page[i])
			return false;
	}
	return true;
}

/* A zero page at the start and at the end of the arena, and one that is aligned to 64 bytes only. */
static void zero_page_is_zero(const struct zero_filter *f)
{
	static const unsigned int at[] = { 0, 64, PAGE_BYTES + 32 * 64, (ARENA_PAGES - 1) * PAGE_BYTES };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(at); i++) {
		memset(arena, 0xff, ARENA_PAGES * PAGE_BYTES);
		memset(arena + at[i], 0, PAGE_BYTES);
		if (!f->is_zero(arena + at[i]))
			fail_msg("%s: zero page at %u not seen", f->name, at[i]);
	}
}

static void any_byte_is_seen(const struct zero_filter *f)
{
	static const uint8_t values[] = { 0x01, 0x80, 0xff, 0x10, 0x7f };
	uint8_t *page = arena + PAGE_BYTES;
	unsigned int at, v;

	memset(arena, 0, ARENA_PAGES * PAGE_BYTES);
	for (v = 0; v < ARRAY_SIZE(values); v++) {
		for (at = 0; at < PAGE_BYTES; at++) {
			page[at] = values[v];
			if (f->is_zero(page))
				fail_msg("%s: byte %u = %#x missed", f->name, at, values[v]);
			page[at] = 0;
		}
	}
	assert_true(f->is_zero(page));
}

/* Pages with few or many bytes set. */
static void agrees_with_scalar(const struct zero_filter *f)
{
	const struct zero_filter *scalar = &zero_filters[zero_filters_count - 1];
	uint8_t *page = arena + PAGE_BYTES;
	unsigned int round, n;
	uint8_t value;

	seed = 1;
	for (round = 0; round < 3000; round++) {
		memset(page, 0, PAGE_BYTES);
		value = rnd();
		for (n = rnd() % 5; n; n--)
			page[rnd() % PAGE_BYTES] = value;
		assert_int_equal(scalar->is_zero(page), naive_is_zero(page));
		assert_int_equal(f->is_zero(page), scalar->is_zero(page));
	}
	memset(page, 0xff, PAGE_BYTES);
	assert_false(f->is_zero(page));
}

/* Two words that would cancel out in a sum, a difference or an exclusive or, wherever a variant may join them. */
static void words_do_not_cancel(const struct zero_filter *f)
{
	uint64_t *page = (uint64_t *)(arena + PAGE_BYTES);
	unsigned int at, apart;

	memset(page, 0, PAGE_BYTES);
	for (apart = 1; apart <= 64; apart++) {
		for (at = 0; at + apart < PAGE_BYTES / sizeof(*page); at++) {
			page[at] = 0x5a;
			page[at + apart] = 0x5a;
			assert_false(f->is_zero(page));
			page[at + apart] = -UINT64_C(0x5a);
			assert_false(f->is_zero(page));
			page[at] = page[at + apart] = 0;
		}
	}
}

static void test_zero_page(void **state)
{
	(void)state;
	each_filter(zero_page_is_zero);
}

static void test_zero_every_byte(void **state)
{
	(void)state;
	each_filter(any_byte_is_seen);
}

static void test_zero_agree(void **state)
{
	(void)state;
	each_filter(agrees_with_scalar);
	each_filter(words_do_not_cancel);
}

static void test_zero_best(void **state)
{
	const struct zero_filter *best = zero_filter_best();
	unsigned int i;

	(void)state;
	for (i = 0; !zero_filters[i].supported(); i++)
		;
	assert_ptr_equal(best, &zero_filters[i]);
	assert_ptr_equal(zero_filter_best(), best);
	assert_string_equal(zero_filters[zero_filters_count - 1].name, "scalar");
	assert_true(zero_filters[zero_filters_count - 1].supported());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zero_page),
		cmocka_unit_test(test_zero_every_byte),
		cmocka_unit_test(test_zero_agree),
		cmocka_unit_test(test_zero_best),
	};

	return cmocka_run_group_tests(tests, map_arena, NULL);
}
