// SPDX-License-Identifier: GPL-2.0-only
/*
 * A huge page that the kernel is making of a RAM file's pages: up to Linux 6.3 SEEK_DATA takes it for a hole, and a read waits
 * until it is there. The kernel is played; the file is one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include "page/page.h"
#include "ram/ram_block.h"
#include "ram/thp.h"

#define HUGE_PAGES	4u
#define PAGES		(HUGE_PAGES * THP_PAGES)

off_t __real_lseek(int fd, off_t at, int whence);
off_t __wrap_lseek(int fd, off_t at, int whence);
ssize_t __real_pread(int fd, void *buf, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t at);

static struct ram_block ram;
static bool collapsing[HUGE_PAGES];
/* When the first of these has been waited for, the second begins. */
static int then = -1;
static unsigned int reads;

static bool is_at_work(off_t at)
{
	return (uint64_t)at < PAGES * PAGE_BYTES && collapsing[(uint64_t)at / PAGE_BYTES / THP_PAGES];
}

off_t __wrap_lseek(int fd, off_t at, int whence)
{
	const off_t huge = THP_PAGES * PAGE_BYTES;

	if (whence == SEEK_HOLE && is_at_work(at))
		return at;
	at = __real_lseek(fd, at, whence);
	while (whence == SEEK_DATA && at >= 0 && is_at_work(at))
		at = __real_lseek(fd, (at / huge + 1) * huge, whence);
	return at;
}

ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t at)
{
	reads++;
	if (is_at_work(at)) {
		collapsing[(uint64_t)at / PAGE_BYTES / THP_PAGES] = false;
		if (then >= 0)
			collapsing[then] = true;
		then = -1;
	}
	return __real_pread(fd, buf, len, at);
}

static int next(uint64_t from, uint64_t *first, uint64_t *count)
{
	struct err e = { 0 };

	return ram_ops(&ram)->next_data(&ram, from, PAGES, true, first, count, &e);
}

static void data_is_no_hole(void **state)
{
	uint64_t first, count;

	(void)state;
	collapsing[1] = true;
	assert_int_equal(next(0, &first, &count), 1);
	assert_int_equal(first, THP_PAGES + 3);
	assert_int_equal(count, 7);
	assert_false(collapsing[1]);
}

/* Nothing but holes, as it seems. */
static void nor_at_the_end(void **state)
{
	uint64_t first, count;

	(void)state;
	collapsing[2] = true;
	assert_int_equal(next(THP_PAGES + 20, &first, &count), 1);
	assert_int_equal(first, 2 * THP_PAGES);
	assert_int_equal(count, 1);
	assert_int_equal(next(2 * THP_PAGES + 1, &first, &count), 0);
}

/* One ends while the hole before it is waited for, and where data was another begins. */
static void nor_is_the_next_one(void **state)
{
	uint64_t first, count;

	(void)state;
	collapsing[0] = true;
	then = 1;
	assert_int_equal(next(0, &first, &count), 1);
	assert_int_equal(first, THP_PAGES + 3);
	assert_int_equal(count, 7);
	assert_false(collapsing[1]);
}

static void holes_stay(void **state)
{
	const uint64_t before = ram_ops(&ram)->allocated(&ram);
	uint64_t first, count;

	(void)state;
	assert_int_equal(next(0, &first, &count), 1);
	assert_int_equal(first, THP_PAGES + 3);
	assert_int_equal(reads, 2);	/* one for each huge page that the hole may be */
	assert_int_equal(next(2 * THP_PAGES + 1, &first, &count), 0);
	assert_int_equal(ram_ops(&ram)->allocated(&ram), before);
}

/* Where the kernel is newer a hole costs no read. */
static void elsewhere_nothing_is_read(void **state)
{
	uint64_t first, count;

	(void)state;
	ram.waits = false;
	assert_int_equal(next(0, &first, &count), 1);
	assert_int_equal(first, THP_PAGES + 3);
	assert_int_equal(reads, 0);
}

static int make(void **state)
{
	static uint8_t page[PAGE_BYTES];

	(void)state;
	ram = (struct ram_block) { .pages = PAGES, .page_size = PAGE_BYTES, .fd = memfd_create("ram", MFD_CLOEXEC), .waits = true };
	assert_int_equal(ftruncate(ram.fd, PAGES * PAGE_BYTES), 0);
	for (unsigned int i = 0; i < 7; i++)
		assert_int_equal(pwrite(ram.fd, page, sizeof(page), (THP_PAGES + 3 + i) * PAGE_BYTES), sizeof(page));
	assert_int_equal(pwrite(ram.fd, page, sizeof(page), 2 * THP_PAGES * PAGE_BYTES), sizeof(page));
	for (unsigned int i = 0; i < HUGE_PAGES; i++)
		collapsing[i] = false;
	then = -1;
	reads = 0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	close(ram.fd);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(data_is_no_hole, make, end),
		cmocka_unit_test_setup_teardown(nor_at_the_end, make, end),
		cmocka_unit_test_setup_teardown(nor_is_the_next_one, make, end),
		cmocka_unit_test_setup_teardown(holes_stay, make, end),
		cmocka_unit_test_setup_teardown(elsewhere_nothing_is_read, make, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
