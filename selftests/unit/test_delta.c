// SPDX-License-Identifier: GPL-2.0-only
/* What the sender knows of the pages that it has sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <cmocka.h>
#include <xxhash.h>

#include "codec/delta.h"

#define PAGES	1000u
#define ROOM	(64u << 20)

/* The latest secrets, in the order in which they were made. */
static uint8_t secrets[2][192];
static unsigned int made;

ssize_t __real_getrandom(void *buf, size_t n, unsigned int flags);
ssize_t __wrap_getrandom(void *buf, size_t n, unsigned int flags);

ssize_t __wrap_getrandom(void *buf, size_t n, unsigned int flags)
{
	ssize_t got = __real_getrandom(buf, n, flags);

	assert_int_equal(n, sizeof(secrets[0]));
	memcpy(secrets[made++ % 2], buf, n);
	return got;
}

static const uint64_t pages[] = { PAGES, 10 };

static struct delta *table(uint64_t memory)
{
	struct delta *d = delta_new(pages, 2, memory);

	assert_non_null(d);
	return d;
}

static void fill(uint8_t page[PAGE_BYTES], unsigned int seed)
{
	for (unsigned int i = 0; i < PAGE_BYTES; i++)
		page[i] = (uint8_t)((i * 31 + seed) ^ (i >> 5));
}

/* Each byte of a page counts, and it is one of its own part. */
static void a_part_that_differs_is_told(void **state)
{
	struct delta *d = table(ROOM);
	uint8_t page[PAGE_BYTES];

	(void)state;
	fill(page, 1);
	assert_false(delta_takes(d, 1, 9, false));
	assert_true(delta_takes(d, 1, 9, true));
	assert_int_equal(delta_changed(d, 1, 9, page, true), DELTA_ALL);
	assert_true(delta_takes(d, 1, 9, false));
	assert_int_equal(delta_changed(d, 1, 9, page, true), 0);
	for (unsigned int i = 0; i < PAGE_BYTES; i++) {
		page[i] ^= (uint8_t)(1u << i % 8);
		assert_int_equal(delta_changed(d, 1, 9, page, true), 1u << i / WIRE_PART);
	}
	page[0]++;
	page[4 * WIRE_PART - 1]++;
	page[PAGE_BYTES - 1]++;
	assert_int_equal(delta_changed(d, 1, 9, page, true), 0x89);
	assert_int_equal(delta_changed(d, 1, 9, page, true), 0);
	/* Other pages know nothing of this one, in whatever stripe and block. */
	assert_false(delta_takes(d, 1, 8, false));
	assert_false(delta_takes(d, 0, 9, false));
	assert_false(delta_takes(d, 0, PAGES - 1, false));
	delta_free(d);
}

/* What is only looked at stays what was sent last. */
static void what_is_not_noted_stays(void **state)
{
	struct delta *d = table(ROOM);
	uint8_t old[PAGE_BYTES], new[PAGE_BYTES];

	(void)state;
	fill(old, 1);
	memcpy(new, old, sizeof(new));
	new[700]++;
	assert_true(delta_takes(d, 0, 7, true));
	delta_changed(d, 0, 7, old, true);
	assert_int_equal(delta_changed(d, 0, 7, new, false), 2);
	assert_int_equal(delta_changed(d, 0, 7, new, false), 2);
	assert_int_equal(delta_changed(d, 0, 7, old, true), 0);
	assert_int_equal(delta_changed(d, 0, 7, new, true), 2);
	assert_int_equal(delta_changed(d, 0, 7, old, true), 2);
	/* A page that has no hashes does not get them so, though its stripe has room. */
	assert_int_equal(delta_changed(d, 0, 8, old, false), DELTA_ALL);
	assert_false(delta_takes(d, 0, 8, false));
	delta_free(d);
}

/* Every run, of one page to three stripes, forgets its pages and no other. */
static void a_run_is_forgotten(void **state)
{
	struct delta *d = table(ROOM);
	uint8_t page[PAGE_BYTES];

	(void)state;
	fill(page, 1);
	for (uint64_t first = 60; first < 70; first++)
		for (uint64_t count = 0; count < 140; count++) {
			for (uint64_t p = 0; p < 256; p++)
				if (delta_takes(d, 0, p, true))
					delta_changed(d, 0, p, page, true);
			delta_forget(d, 0, first, count);
			for (uint64_t p = 0; p < 256; p++)
				assert_int_equal(delta_takes(d, 0, p, false), p < first || p >= first + count);
		}
	delta_forget(d, 0, 0, PAGES);
	delta_forget(d, 1, 0, 10);
	for (uint64_t p = 0; p < PAGES; p++)
		assert_false(delta_takes(d, 0, p, false));
	/* It was sent in another way meanwhile: all of it counts as changed. */
	assert_true(delta_takes(d, 0, 3, true));
	assert_int_equal(delta_changed(d, 0, 3, page, true), DELTA_ALL);
	delta_free(d);
}

/* The first stripes get what there is, and keep it; the others never get any. */
static void the_memory_is_bounded(void **state)
{
	static const struct { uint64_t memory; unsigned int stripes; } cases[] = {
		{ 0, 0 }, { DELTA_STRIPE_BYTES - 1, 0 }, { 3 * DELTA_STRIPE_BYTES, 3 }, { 4 * DELTA_STRIPE_BYTES - 1, 3 },
	};
	uint8_t page[PAGE_BYTES];

	(void)state;
	fill(page, 1);
	for (unsigned int c = 0; c < 4; c++) {
		struct delta *d = table(cases[c].memory);
		unsigned int stripes = 0;

		for (unsigned int again = 0; again < 3; again++) {
			for (uint64_t p = 0; p < PAGES; p += 5)
				if (delta_takes(d, 0, p, true))
					delta_changed(d, 0, p, page, true);
			delta_forget(d, 0, 0, PAGES * (again == 1));
		}
		for (uint64_t p = 0; p < PAGES; p += DELTA_STRIPE_PAGES)
			stripes += delta_takes(d, 0, p, true);
		assert_int_equal(stripes, cases[c].stripes);
		assert_int_equal(delta_takes(d, 1, 0, true), 0);
		delta_free(d);
	}
}

/*
 * A pair of parts that one secret of XXH3 does not tell apart, for one that knows 32 bits of it: the word of a stripe is added
 * to an accumulator, and the product of its halves, each xor its secret, to the next. One more here and one less there cancel
 * out if the upper halves are equal then, and so are the lowest bits of the secret.
 */
static bool collide(const uint8_t *secret, uint8_t a[WIRE_PART], uint8_t b[WIRE_PART])
{
	const unsigned int stripes[] = { 1, 4 }, lane = 2;
	uint32_t key[2], upper;

	for (unsigned int i = 0; i < 2; i++)
		memcpy(&key[i], secret + 8 * (stripes[i] + lane) + 4, 4);
	memcpy(&upper, a + 64 * stripes[0] + 8 * lane + 4, 4);
	upper ^= key[0] ^ key[1];
	memcpy(a + 64 * stripes[1] + 8 * lane + 4, &upper, 4);
	a[64 * stripes[0] + 8 * lane] &= 0xfe;
	a[64 * stripes[1] + 8 * lane] |= 1;
	memcpy(b, a, WIRE_PART);
	b[64 * stripes[0] + 8 * lane] |= 1;
	b[64 * stripes[1] + 8 * lane] &= 0xfe;
	return XXH3_64bits_withSecret(a, WIRE_PART, secret, 192) == XXH3_64bits_withSecret(b, WIRE_PART, secret, 192);
}

/* Each secret alone is beaten so, half of the time; both are not. */
static void one_secret_is_not_enough(void **state)
{
	unsigned int beaten[2] = { 0, 0 };

	(void)state;
	for (unsigned int i = 0; i < 100; i++) {
		struct delta *d = table(ROOM);

		for (unsigned int which = 0; which < 2; which++) {
			uint8_t old[PAGE_BYTES], new[PAGE_BYTES];

			fill(old, i);
			memcpy(new, old, sizeof(new));
			beaten[which] += collide(secrets[which], old + 3 * WIRE_PART, new + 3 * WIRE_PART);
			assert_true(delta_takes(d, 0, which, true));
			delta_changed(d, 0, which, old, true);
			assert_int_equal(delta_changed(d, 0, which, new, true), 8);
		}
		delta_free(d);
	}
	assert_true(beaten[0] > 20 && beaten[1] > 20);
	assert_memory_not_equal(secrets[0], secrets[1], 192);
}

static uint64_t resident_kib(void)
{
	unsigned long all, resident;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &all, &resident), 2);
	fclose(f);
	return resident * 4;
}

/* Of 4 GiB each page is sent, and the table takes what it may: 64 MiB would be needed. */
static void no_more_is_used_than_may_be(void **state)
{
	static const uint64_t much = 1u << 20;
	struct delta *d = delta_new(&much, 1, 8u << 20);
	uint64_t before;
	uint8_t page[PAGE_BYTES];

	(void)state;
	fill(page, 1);
	before = resident_kib();
	for (uint64_t p = 0; p < much; p += 16)
		if (delta_takes(d, 0, p, true))
			delta_changed(d, 0, p, page, true);
	assert_in_range(resident_kib() - before, 4 << 10, (8 + 2) << 10);
	delta_free(d);
}

static void words_are_words(void **state)
{
	static const struct { const char *word; enum delta_wish wish; } good[] = {
		{ "auto", DELTA_AUTO }, { "on", DELTA_ON }, { "off", DELTA_OFF },
	};
	static const char *const bad[] = { "", "ON", "auto ", "xbzrle", "1" };
	enum delta_wish wish;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(delta_parse(good[i].word, &wish, &(struct err) { 0 }), 0);
		assert_int_equal(wish, good[i].wish);
	}
	for (unsigned int i = 0; i < 5; i++) {
		struct err e = { 0 };

		assert_int_not_equal(delta_parse(bad[i], &wish, &e), 0);
		assert_int_equal(e.exit, GW_USAGE);
		assert_non_null(strstr(e.text, "--delta"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_part_that_differs_is_told),
		cmocka_unit_test(what_is_not_noted_stays),
		cmocka_unit_test(a_run_is_forgotten),
		cmocka_unit_test(the_memory_is_bounded),
		cmocka_unit_test(one_secret_is_not_enough),
		cmocka_unit_test(no_more_is_used_than_may_be),
		cmocka_unit_test(words_are_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
