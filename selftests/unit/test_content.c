// SPDX-License-Identifier: GPL-2.0-only
/* How much of a RAM file is allocated, how much of that is zeros, or in another file; reading it allocates nothing. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "estimate/content.h"
#include "page/page.h"

#define PAGES	8192u

static void fill(int fd, uint64_t first, uint64_t count, char with)
{
	static char page[PAGE_BYTES];

	memset(page, with, sizeof(page));
	for (uint64_t i = first; i < first + count; i++)
		assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)(i * PAGE_BYTES)), PAGE_BYTES);
}

static struct content measure(const struct vm *vm, uint64_t sample_pages)
{
	struct dirty_source *s = NULL;
	struct err e = { 0 };
	struct content c;

	assert_int_equal(source_none(vm, &s, &e), 0);
	assert_int_equal(content_measure(vm, s, sample_pages, NULL, &c, &e), 0);
	s->ops->close(s, false);
	return c;
}

static void open_blocks(struct vm *vm)
{
	for (unsigned int b = 0; b < vm->nblocks; b++) {
		vm->blocks[b].fd = memfd_create("godwit-test", MFD_CLOEXEC);
		vm->blocks[b].pages = PAGES;
		assert_int_equal(ftruncate(vm->blocks[b].fd, (off_t)PAGES * PAGE_BYTES), 0);
	}
}

/* To look at them has made no page: there are as many as were written. */
static void close_blocks(const struct vm *vm, uint64_t first, uint64_t second)
{
	struct stat st;

	for (unsigned int b = 0; b < vm->nblocks; b++) {
		assert_int_equal(fstat(vm->blocks[b].fd, &st), 0);
		assert_int_equal(st.st_blocks * 512 / PAGE_BYTES, b ? second : first);
		close(vm->blocks[b].fd);
	}
}

static void test_content(void **state)
{
	struct vm vm = { .nblocks = 2 };
	struct content c;

	(void)state;
	open_blocks(&vm);
	c = measure(&vm, 64);
	assert_int_equal(c.allocated_pages, 0);
	assert_int_equal(c.zero_pages, 0);

	fill(vm.blocks[0].fd, 10, 300, 'x');
	fill(vm.blocks[0].fd, 5000, 100, 0);
	fill(vm.blocks[1].fd, 0, 600, 0);
	fill(vm.blocks[1].fd, PAGES - 400, 400, 'y');
	c = measure(&vm, 1u << 20);
	assert_int_equal(c.allocated_pages, 1400);
	assert_int_equal(c.zero_pages, 700);
	assert_int_equal(c.same_pages, 700);
	/* Every eighth: in pieces of hundreds it cannot be far off. */
	c = measure(&vm, 200);
	assert_int_equal(c.allocated_pages, 1400);
	assert_in_range(c.zero_pages, 670, 730);
	close_blocks(&vm, 400, 1000);
}

/* Of the pages [first, first + count): half of each is random, the other half zeros. */
static void fill_half(int fd, uint64_t first, uint64_t count)
{
	static uint8_t page[PAGE_BYTES];
	uint32_t state = 1;

	for (uint64_t i = first; i < first + count; i++) {
		for (unsigned int at = 0; at < PAGE_BYTES / 2; at++)
			page[at] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
		assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)(i * PAGE_BYTES)), PAGE_BYTES);
	}
}

static struct content packed_beside(const struct vm *vm, const char *how, const struct reusable *reuse)
{
	struct codec_choice steps[CHOOSE_STEPS];
	struct dirty_source *s = NULL;
	struct codec_wish wish;
	struct err e = { 0 };
	struct content c;
	unsigned int n;

	assert_int_equal(codec_parse(how, &wish, &e), 0);
	n = codec_steps(&wish, UINT64_MAX, steps);
	assert_int_equal(source_none(vm, &s, &e), 0);
	assert_int_equal(content_measure(vm, s, 1u << 20, reuse, &c, &e), 0);
	assert_int_equal(content_pack(vm, s, steps, n, reuse, &c, &e), 0);
	s->ops->close(s, false);
	return c;
}

static struct content packed(const struct vm *vm, const char *how)
{
	return packed_beside(vm, how, NULL);
}

/* Only pages that go with their bytes count: neither holes, nor zeros, nor poison. */
static void test_pack(void **state)
{
	struct vm vm = { .nblocks = 2 };
	struct content c;

	(void)state;
	open_blocks(&vm);
	c = packed(&vm, "auto");
	assert_int_equal(c.n, 0);
	fill(vm.blocks[0].fd, 10, 3000, 0);
	fill(vm.blocks[0].fd, 5000, 2000, 'x');
	c = packed(&vm, "auto");
	assert_int_equal(c.same_pages, 2000);
	assert_int_equal(c.n, 0);
	fill_half(vm.blocks[1].fd, 1000, 2500);
	c = packed(&vm, "auto");
	assert_int_equal(c.allocated_pages, 7500);
	assert_int_equal(c.n, CHOOSE_STEPS);
	assert_null(c.packed[0].choice.codec);
	assert_float_equal(c.packed[0].page_bytes, PAGE_BYTES, 1e-6);
	for (unsigned int i = 1; i < c.n; i++) {
		assert_non_null(c.packed[i].choice.codec);
		assert_true(c.packed[i].page_bytes > 2030 && c.packed[i].page_bytes < 2200);
		assert_true(c.packed[i].page_ns > 100 && c.packed[i].page_ns < 1e6);
	}
	/* Raw costs no CPU. */
	assert_true(c.packed[0].page_ns < c.packed[1].page_ns / 10);
	c = packed(&vm, "zlib:9");
	assert_int_equal(c.n, 1);
	assert_ptr_equal(c.packed[0].choice.codec, &codec_zlib);
	assert_true(c.packed[0].page_bytes > 2000 && c.packed[0].page_bytes < 2200);
	c = packed(&vm, "off");
	assert_int_equal(c.n, 1);
	assert_float_equal(c.packed[0].page_bytes, PAGE_BYTES, 1e-6);
	close_blocks(&vm, 5000, 2500);
}

/* A file with these pages of the RAM, the first of them at its page 0, and whatever follows. */
static struct reusable *file_of(int ram, uint64_t first, uint64_t count, bool other, uint64_t memory, struct reusable_state *st)
{
	char path[] = "/tmp/godwit-test-XXXXXX";
	int fd = mkstemp(path);
	struct reusable *reuse;
	struct err e = { 0 };

	assert_true(fd >= 0);
	for (uint64_t i = 0; i < count; i++) {
		uint8_t page[PAGE_BYTES];

		assert_int_equal(pread(ram, page, sizeof(page), (off_t)((first + i) * PAGE_BYTES)), PAGE_BYTES);
		assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)(i * PAGE_BYTES)), PAGE_BYTES);
	}
	assert_int_equal(reusable_open(path, other, memory, &reuse, &e), 0);
	assert_int_equal(reusable_wait(reuse, st, &e), 0);
	unlink(path);
	close(fd);
	return reuse;
}

/* What is in the file is found by content, at another place, and only what is left is packed. */
static void test_reuse(void **state)
{
	struct vm vm = { .nblocks = 2 };
	struct reusable_state st;
	struct reusable *reuse;
	struct content c;

	(void)state;
	open_blocks(&vm);
	fill(vm.blocks[0].fd, 10, 1000, 0);
	fill(vm.blocks[0].fd, 4000, 500, 'x');
	fill_half(vm.blocks[1].fd, 1000, 4000);
	for (int other = 0; other < 2; other++) {
		reuse = file_of(vm.blocks[1].fd, 2000, 2000, other, 1u << 20, &st);
		assert_int_equal(st.entries, 2000);
		assert_int_equal(st.left_out, 0);
		assert_int_equal(st.memory, 2000 * 20);
		assert_true(st.ns > 0);
		c = packed_beside(&vm, "zstd:1", reuse);
		assert_int_equal(c.allocated_pages, 5500);
		assert_int_equal(c.zero_pages, 1000);
		assert_int_equal(c.same_pages, 500);
		assert_int_equal(c.reused_pages, 2000);
		/* They follow each other as in the file: one reference for 64, or fewer at the ends. */
		assert_true(c.reference_bytes >= 24. / 64 && c.reference_bytes < 24. / 30);
		assert_true(c.hash_ns > 50 && c.hash_ns < 1e6);
		assert_int_equal(c.n, 1);
		assert_true(c.packed[0].page_bytes > 2030 && c.packed[0].page_bytes < 2200);
		reusable_close(reuse);
	}
	/* Without the file the same pages all count. */
	c = packed(&vm, "zstd:1");
	assert_int_equal(c.reused_pages, 0);
	assert_true(c.hash_ns == 0);
	/* All of it: nothing is left to pack. */
	reuse = file_of(vm.blocks[1].fd, 1000, 4000, false, 1u << 20, &st);
	c = packed_beside(&vm, "zstd:1", reuse);
	assert_int_equal(c.reused_pages, 4000);
	assert_int_equal(c.n, 0);
	reusable_close(reuse);
	/* A sender has room for fewer entries than a receiver: 28 bytes, and 20. */
	reuse = file_of(vm.blocks[1].fd, 1000, 4000, false, 1000 * 28, &st);
	assert_int_equal(st.entries, 1000);
	assert_int_equal(st.left_out, 3000);
	c = packed_beside(&vm, "zstd:1", reuse);
	assert_int_equal(c.reused_pages, 1000);
	reusable_close(reuse);
	/* None of it. */
	reuse = file_of(vm.blocks[0].fd, 10, 100, false, 1u << 20, &st);
	assert_int_equal(st.entries, 0);
	c = packed_beside(&vm, "zstd:1", reuse);
	assert_int_equal(c.reused_pages, 0);
	assert_true(c.hash_ns > 0);
	reusable_close(reuse);
	close_blocks(&vm, 1500, 4000);
}

static void test_files_that_are_none(void **state)
{
	struct reusable *reuse = NULL;
	struct err e = { 0 };

	(void)state;
	assert_true(reusable_open("/tmp/godwit-test-none", false, 1u << 20, &reuse, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_null(reuse);
	reusable_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_content), cmocka_unit_test(test_pack), cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_files_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
