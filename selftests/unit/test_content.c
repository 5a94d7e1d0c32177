// SPDX-License-Identifier: GPL-2.0-only
/* How much of a RAM file is allocated, and how much of that is zeros; reading it allocates nothing. */
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
	assert_int_equal(content_measure(vm, s, sample_pages, &c, &e), 0);
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

static struct content packed(const struct vm *vm, const char *how)
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
	assert_int_equal(content_measure(vm, s, 1u << 20, &c, &e), 0);
	assert_int_equal(content_pack(vm, s, steps, n, &c, &e), 0);
	s->ops->close(s, false);
	return c;
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_content), cmocka_unit_test(test_pack) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
