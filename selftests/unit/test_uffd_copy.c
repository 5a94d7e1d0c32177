// SPDX-License-Identifier: GPL-2.0-only
/* Pages that are made with their content. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "page/page.h"
#include "ram/uffd_copy.h"

#define PAGES	1024u

struct file {
	struct ram_block b;
	struct uffd_copy f;
};

static uint8_t bytes[64 * PAGE_BYTES];

static int setup(void **state)
{
	static struct file file;

	file = (struct file) { .b = { .pages = PAGES, .page_size = PAGE_BYTES, .fd = memfd_create("ram", MFD_CLOEXEC) } };
	assert_return_code(ftruncate(file.b.fd, (off_t)PAGES * PAGE_BYTES), 0);
	uffd_copy_open(&file.f, &file.b);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(1 + i / PAGE_BYTES);
	*state = &file;
	return 0;
}

static int teardown(void **state)
{
	struct file *file = *state;

	uffd_copy_close(&file->f);
	close(file->b.fd);
	return 0;
}

static uint64_t allocated(const struct file *file)
{
	struct stat st;

	assert_return_code(fstat(file->b.fd, &st), 0);
	return (uint64_t)st.st_blocks * 512 / PAGE_BYTES;
}

static void assert_page(const struct file *file, uint64_t page, int value)
{
	uint8_t want[PAGE_BYTES], got[PAGE_BYTES];

	memset(want, value, sizeof(want));
	assert_int_equal(pread(file->b.fd, got, sizeof(got), (off_t)(page * PAGE_BYTES)), sizeof(got));
	assert_memory_equal(got, want, sizeof(got));
}

static void pages_are_made_and_no_others(void **state)
{
	struct file *file = *state;

	assert_true(file->f.fd >= 0);
	assert_int_equal(uffd_copy_put(&file->f, 5, bytes, 64), 64);
	assert_int_equal(uffd_copy_put(&file->f, PAGES - 1, bytes + PAGE_BYTES, 1), 1);
	assert_int_equal(allocated(file), 65);
	for (int i = 0; i < 64; i++)
		assert_page(file, 5 + (uint64_t)i, 1 + i);
	assert_page(file, PAGES - 1, 2);
	assert_page(file, 4, 0);
	assert_page(file, 69, 0);
}

static void it_stops_at_a_page_that_is_there(void **state)
{
	struct file *file = *state;

	assert_int_equal(pwrite(file->b.fd, bytes + 40 * PAGE_BYTES, PAGE_BYTES, 7 * PAGE_BYTES), PAGE_BYTES);
	assert_int_equal(uffd_copy_put(&file->f, 5, bytes, 4), 2);
	assert_int_equal(uffd_copy_put(&file->f, 7, bytes, 1), 0);
	assert_page(file, 6, 2);
	assert_page(file, 7, 41);
	assert_int_equal(allocated(file), 3);
}

static void a_page_that_went_is_made_again(void **state)
{
	struct file *file = *state;

	assert_int_equal(uffd_copy_put(&file->f, 9, bytes, 2), 2);
	assert_return_code(fallocate(file->b.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10 * PAGE_BYTES, PAGE_BYTES), 0);
	assert_int_equal(uffd_copy_put(&file->f, 10, bytes + 7 * PAGE_BYTES, 1), 1);
	assert_page(file, 9, 1);
	assert_page(file, 10, 8);
}

/* Where there is no such thing it says so by making none. */
static void a_file_on_a_disk_has_none(void **state)
{
	struct file disk = { .b = { .pages = 4, .page_size = PAGE_BYTES } };

	(void)state;
	disk.b.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_return_code(disk.b.fd, 0);
	uffd_copy_open(&disk.f, &disk.b);
	assert_int_equal(disk.f.fd, -1);
	assert_null(disk.f.base);
	assert_int_equal(uffd_copy_put(&disk.f, 0, bytes, 1), 0);
	uffd_copy_close(&disk.f);
	close(disk.b.fd);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(pages_are_made_and_no_others, setup, teardown),
	cmocka_unit_test_setup_teardown(it_stops_at_a_page_that_is_there, setup, teardown),
	cmocka_unit_test_setup_teardown(a_page_that_went_is_made_again, setup, teardown),
	cmocka_unit_test(a_file_on_a_disk_has_none),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
