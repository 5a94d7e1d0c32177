// SPDX-License-Identifier: GPL-2.0-only
/* Content reuse: the hash, the receiver's index of a file, the sender's table of it. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <xxhash.h>

#include "base/clock.h"
#include "page/page.h"
#include "reuse/index.h"
#include "reuse/table.h"

#define PAGES	200u

static char path[64];

static void page_of(uint8_t page[PAGE_BYTES], unsigned int seed)
{
	for (unsigned int i = 0; i < PAGE_BYTES; i++)
		page[i] = (uint8_t)((i * 31 + seed) ^ (i >> 5) ^ (seed >> 8));
}

/* Pages 0, 10, 20 ... are zeros, 1, 11, 21 ... of one byte, 2 is a hole. */
static void make_file(unsigned int pages)
{
	static uint8_t page[PAGE_BYTES];
	int fd;

	strcpy(path, "/tmp/test_reuse.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0 && !ftruncate(fd, pages * PAGE_BYTES));
	for (unsigned int i = 0; i < pages; i++) {
		page_of(page, i);
		if (i % 10 < 2)
			memset(page, i % 10 ? 0xcc : 0, sizeof(page));
		if (i != 2)
			assert_int_equal(pwrite(fd, page, PAGE_BYTES, i * PAGE_BYTES), PAGE_BYTES);
	}
	close(fd);
}

static struct reuse_index *index_of(bool other, uint64_t memory, struct reuse_index_state *st)
{
	struct reuse_index *ix = NULL;
	struct err e = { 0 };

	assert_int_equal(reuse_index_open(path, other, memory, &ix, &e), 0);
	do
		reuse_index_state(ix, st);
	while (!st->done && !usleep(1000));
	return ix;
}

static void write_page(unsigned int page, unsigned int seed)
{
	static uint8_t bytes[PAGE_BYTES];
	int fd = open(path, O_WRONLY);

	page_of(bytes, seed);
	assert_int_equal(pwrite(fd, bytes, PAGE_BYTES, page * PAGE_BYTES), PAGE_BYTES);
	close(fd);
}

/* What is worth it is an entry, in the order of the file; what was read is what has the entry's hash still. */
static void an_index_of(bool other)
{
	static uint8_t buf[REUSE_READ_PAGES * PAGE_BYTES] __attribute__((aligned(64))), page[PAGE_BYTES];
	uint8_t said[PAGES * WIRE_ENTRY];
	struct reuse_index_state st;
	struct reuse_index *ix;
	struct reuse_hasher h;
	unsigned int entry = 0;

	make_file(PAGES);
	ix = index_of(other, 1 << 20, &st);
	assert_int_equal(reuse_index_key(ix)->kind, other ? WIRE_REUSE_HMAC : WIRE_REUSE_XXH3);
	assert_int_equal(st.entries, PAGES / 10 * 8 - 1);
	assert_int_equal(st.left_out, 0);
	assert_int_equal(st.error, 0);
	assert_int_equal(reuse_index_said(ix), 0);
	assert_int_equal(reuse_index_say(ix, 0, PAGES, said), st.entries);
	assert_int_equal(reuse_index_said(ix), st.entries);
	assert_int_equal(reuse_index_say(ix, st.entries, PAGES, said), 0);
	assert_int_equal(reuse_index_say(ix, UINT64_MAX, PAGES, said), 0);
	assert_true(reuse_hasher_open(&h, reuse_index_key(ix)));
	for (unsigned int i = 3; i < PAGES; i++) {
		uint64_t hash[2];

		if (i % 10 < 2)
			continue;
		page_of(page, i);
		reuse_hash(&h, page, hash);
		assert_int_equal(wire_get_u64(said + entry * WIRE_ENTRY), hash[0]);
		assert_int_equal(wire_get_u64(said + entry * WIRE_ENTRY + 8), hash[1]);
		assert_int_equal(reuse_index_read(ix, &h, entry++, 1, buf), 1);
		assert_memory_equal(buf, page, PAGE_BYTES);
	}
	assert_int_equal(reuse_index_read(ix, &h, 0, 64, buf), UINT64_MAX);
	/* Pages 3 to 9, 12 and so on: another content, and one that is where another was. */
	write_page(4, 1000);
	write_page(12, 13);
	assert_int_equal(reuse_index_read(ix, &h, 0, 10, buf), 0x3ff & ~(1 << 1 | 1 << 7));
	/* Cut off: no signal, and nothing is made up. */
	assert_int_equal(truncate(path, 6 * PAGE_BYTES + 100), 0);
	assert_int_equal(reuse_index_read(ix, &h, 0, 10, buf), 1 << 0 | 1 << 2);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(reuse_index_read(ix, &h, 0, 64, buf), 0);
	reuse_hasher_close(&h);
	reuse_index_close(ix);
	unlink(path);
}

static void an_index_by_xxh3(void **state)
{
	(void)state;
	an_index_of(false);
}

static void an_index_by_hmac(void **state)
{
	(void)state;
	an_index_of(true);
}

static void memory_bounds_the_index(void **state)
{
	uint8_t said[PAGES * WIRE_ENTRY];
	struct reuse_index_state st;
	struct reuse_index *ix;

	(void)state;
	make_file(PAGES);
	ix = index_of(false, 70 * REUSE_INDEX_ENTRY, &st);
	assert_int_equal(st.entries, 70);
	assert_int_equal(st.most, 70);
	assert_true(st.left_out >= 80 && st.left_out <= PAGES - 70);
	assert_true(st.memory <= 70 * REUSE_INDEX_ENTRY);
	assert_int_equal(reuse_index_say(ix, 0, PAGES, said), 70);
	reuse_index_close(ix);
	ix = index_of(false, 1, &st);
	assert_int_equal(st.entries, 0);
	assert_true(st.left_out > 0);
	reuse_index_close(ix);
	unlink(path);
}

/* Not one page of it is there. */
static void a_file_of_holes_has_no_entries(void **state)
{
	struct reuse_index_state st;
	struct reuse_index *ix;

	(void)state;
	make_file(1);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(truncate(path, PAGES * PAGE_BYTES), 0);
	ix = index_of(false, 1 << 20, &st);
	assert_int_equal(st.entries, 0);
	assert_int_equal(st.left_out, 0);
	assert_int_equal(st.error, 0);
	reuse_index_close(ix);
	unlink(path);
}

/* Each receiver has a secret of its own. */
static void no_two_indexes_are_alike(void **state)
{
	uint8_t one[WIRE_ENTRY], two[WIRE_ENTRY];
	struct reuse_index_state st;
	struct reuse_index *ix;

	(void)state;
	make_file(PAGES);
	for (unsigned int other = 0; other < 2; other++) {
		ix = index_of(other, 1 << 20, &st);
		reuse_index_say(ix, 0, 1, one);
		reuse_index_close(ix);
		ix = index_of(other, 1 << 20, &st);
		reuse_index_say(ix, 0, 1, two);
		reuse_index_close(ix);
		assert_memory_not_equal(one, two, 8);
		assert_memory_not_equal(one + 8, two + 8, 8);
	}
	unlink(path);
}

static void what_is_no_file_is_refused(void **state)
{
	struct reuse_index *ix = NULL;
	struct err e = { 0 };

	(void)state;
	assert_true(reuse_index_open("/nonexistent", false, 1 << 20, &ix, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_non_null(strstr(e.text, "/nonexistent"));
	e = (struct err) { 0 };
	assert_true(reuse_index_open("/dev/zero", false, 1 << 20, &ix, &e) < 0);
	assert_non_null(strstr(e.text, "no regular file"));
	e = (struct err) { 0 };
	assert_true(reuse_index_open("/tmp", false, 1 << 20, &ix, &e) < 0);
	make_file(1);
	assert_int_equal(truncate(path, PAGE_BYTES - 1), 0);
	e = (struct err) { 0 };
	assert_true(reuse_index_open(path, false, 1 << 20, &ix, &e) < 0);
	assert_non_null(strstr(e.text, "is empty"));
	assert_null(ix);
	unlink(path);
}

static const uint8_t secret[WIRE_REUSE_SECRET] = { 1 };

static void a_table_finds_what_it_has(void **state)
{
	struct reuse_table *t = reuse_table_new(WIRE_REUSE_XXH3, secret, 50000, 64 << 20);
	uint64_t entry;

	(void)state;
	assert_non_null(t);
	assert_int_equal(reuse_table_room(t), 50000);
	for (uint64_t i = 0; i < 60000; i++)
		reuse_table_add(t, (uint64_t[2]) { i * 0x9e3779b97f4a7c15ull, i % 1000 });
	assert_int_equal(reuse_table_entries(t), 50000);
	assert_int_equal(reuse_table_room(t), 0);
	for (uint64_t i = 0; i < 60000; i++) {
		bool there = reuse_table_find(t, (uint64_t[2]) { i * 0x9e3779b97f4a7c15ull, i % 1000 }, &entry);

		assert_int_equal(there, i < 50000);
		if (there)
			assert_int_equal(entry, i);
		/* Half of a hash is none. */
		assert_false(reuse_table_find(t, (uint64_t[2]) { i * 0x9e3779b97f4a7c15ull, 5000 }, &entry));
		assert_false(reuse_table_find(t, (uint64_t[2]) { i * 0x9e3779b97f4a7c15ull + 1, i % 1000 }, &entry));
	}
	assert_true(reuse_table_memory(t) <= 50000 * REUSE_TABLE_ENTRY);
	reuse_table_free(t);
}

static void memory_bounds_the_table(void **state)
{
	struct reuse_table *t = reuse_table_new(WIRE_REUSE_XXH3, secret, WIRE_ENTRIES_MAX, 1 << 20);

	(void)state;
	assert_int_equal(reuse_table_room(t), (1 << 20) / REUSE_TABLE_ENTRY);
	assert_true(reuse_table_memory(t) <= 1 << 20);
	reuse_table_free(t);
	t = reuse_table_new(WIRE_REUSE_XXH3, secret, 0, 1 << 20);
	reuse_table_add(t, (uint64_t[2]) { 1, 2 });
	assert_int_equal(reuse_table_entries(t), 0);
	reuse_table_free(t);
}

/* Who sends hashes that all belong in one place makes no search long, and of equal ones the first counts. */
static void no_hashes_make_a_search_long(void **state)
{
	struct reuse_table *t = reuse_table_new(WIRE_REUSE_XXH3, secret, 100000, 64 << 20);
	uint64_t entry, began = now_ns(), found = 0;

	(void)state;
	for (uint64_t i = 0; i < 50000; i++)
		reuse_table_add(t, (uint64_t[2]) { 7, i });
	for (uint64_t i = 0; i < 50000; i++)
		found += reuse_table_find(t, (uint64_t[2]) { 7, i }, &entry);
	assert_in_range(found, 1, 1000);
	reuse_table_add(t, (uint64_t[2]) { 7, 0 });
	assert_true(reuse_table_find(t, (uint64_t[2]) { 7, 0 }, &entry));
	assert_int_equal(entry, 0);
	/* Without a bound it would be hours. */
	assert_true(now_ns() - began < 20000000000ull);
	reuse_table_free(t);
}

#define ADDED	30000u

static void hash_of(uint64_t i, uint64_t hash[2])
{
	hash[0] = (i + 1) * 0x9e3779b97f4a7c15ull;
	hash[1] = ~i;
}

static void *add_all(void *arg)
{
	for (uint64_t i = 0; i < ADDED; i++) {
		uint64_t hash[2];

		hash_of(i, hash);
		reuse_table_add(arg, hash);
	}
	return NULL;
}

/* What a stream finds while entries are added is what it looked for; in the end it finds all. */
static void a_table_is_read_while_it_grows(void **state)
{
	struct reuse_table *t = reuse_table_new(WIRE_REUSE_XXH3, secret, ADDED, 64 << 20);
	uint64_t found = 0, hash[2], entry;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, add_all, t), 0);
	for (uint64_t i = 0; found < ADDED; i++) {
		hash_of(i % ADDED, hash);
		if (!(i % ADDED))
			found = 0;
		if (!reuse_table_find(t, hash, &entry))
			continue;
		assert_int_equal(entry, i % ADDED);
		found++;
	}
	pthread_join(thread, NULL);
	reuse_table_free(t);
}

static uint64_t lane(const uint8_t *from)
{
	return wire_get_u64(from);
}

/*
 * Two pages that collide under a secret which their author knows: the low half of a word xor its secret is 0 in two stripes, so
 * its product is, whatever the high half; and what the high halves add to the other accumulator cancels out.
 */
static void make_colliding(const uint8_t *known, uint8_t a[PAGE_BYTES], uint8_t b[PAGE_BYTES])
{
	const unsigned int word = 2;

	page_of(a, 99);
	for (unsigned int stripe = 0; stripe < 2; stripe++) {
		uint64_t key = lane(known + stripe * 8 + word * 8);

		wire_put_u64(a + stripe * 64 + word * 8, (key & UINT32_MAX) | (uint64_t)0x1234 << 32);
	}
	memcpy(b, a, PAGE_BYTES);
	wire_put_u64(b + word * 8, lane(a + word * 8) + ((uint64_t)77 << 32));
	wire_put_u64(b + 64 + word * 8, lane(a + 64 + word * 8) - ((uint64_t)77 << 32));
}

/* Why it is XXH3-64 twice, with two secrets, and not XXH3-128. */
static void both_halves_of_xxh3_128_collide_at_once(void **state)
{
	static uint8_t a[PAGE_BYTES], b[PAGE_BYTES];
	struct reuse_key key;
	struct reuse_hasher h;
	uint64_t ha[2], hb[2];

	(void)state;
	assert_true(reuse_key_random(&key, WIRE_REUSE_XXH3));
	make_colliding(key.secret.secret[0], a, b);
	assert_memory_not_equal(a, b, PAGE_BYTES);
	assert_int_equal(XXH3_64bits_withSecret(a, PAGE_BYTES, key.secret.secret[0], TWOFOLD_SECRET),
			 XXH3_64bits_withSecret(b, PAGE_BYTES, key.secret.secret[0], TWOFOLD_SECRET));
	assert_true(XXH128_isEqual(XXH3_128bits_withSecret(a, PAGE_BYTES, key.secret.secret[0], TWOFOLD_SECRET),
				   XXH3_128bits_withSecret(b, PAGE_BYTES, key.secret.secret[0], TWOFOLD_SECRET)));
	assert_true(reuse_hasher_open(&h, &key));
	reuse_hash(&h, a, ha);
	reuse_hash(&h, b, hb);
	assert_int_equal(ha[0], hb[0]);
	assert_int_not_equal(ha[1], hb[1]);
	reuse_hasher_close(&h);
	key.kind = WIRE_REUSE_HMAC;
	assert_true(reuse_hasher_open(&h, &key));
	reuse_hash(&h, a, ha);
	reuse_hash(&h, b, hb);
	assert_int_not_equal(ha[0], hb[0]);
	/* The handle is as new after each page. */
	reuse_hash(&h, a, hb);
	assert_memory_equal(ha, hb, sizeof(ha));
	reuse_hasher_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_by_xxh3),
		cmocka_unit_test(an_index_by_hmac),
		cmocka_unit_test(memory_bounds_the_index),
		cmocka_unit_test(a_file_of_holes_has_no_entries),
		cmocka_unit_test(no_two_indexes_are_alike),
		cmocka_unit_test(what_is_no_file_is_refused),
		cmocka_unit_test(a_table_finds_what_it_has),
		cmocka_unit_test(memory_bounds_the_table),
		cmocka_unit_test(a_table_is_read_while_it_grows),
		cmocka_unit_test(no_hashes_make_a_search_long),
		cmocka_unit_test(both_halves_of_xxh3_128_collide_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
