// SPDX-License-Identifier: GPL-2.0-only
/* Where a process maps the RAM files: every line of its maps that matters, and none that does not. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "page/page.h"
#include "postcopy/guest_maps.h"

static struct vm vm = {
	.nblocks = 3,
	.blocks = {
		{ .name = "own", .pages = 16, .ino = 10, .hva = 0x1000 },
		{ .name = "low", .pages = 16, .ino = 10 },
		{ .name = "high", .pages = 32, .ino = 11 },
	},
};
static struct guest_maps maps;
static struct err e;

static int find(const char *text, bool whole)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	struct proc_maps all;
	int r;

	for (unsigned int i = 0; i < vm.nblocks; i++)
		vm.blocks[i].dev = makedev(0, 27);
	assert_non_null(f);
	assert_return_code(proc_read_range(f, 0, UINT64_MAX, &all), 0);
	fclose(f);
	guest_maps_free(&maps);
	e = (struct err) { 0 };
	r = guest_maps_of(&all, &vm, whole, &maps, &e);
	proc_free_maps(&all);
	return r;
}

#define LOW	"10000-20000 rw-s 00000000 00:1b 10 /dev/shm/low\n"
#define HIGH	"50000-70000 rw-s 00000000 00:1b 11 /dev/shm/high\n"

static void each_block_is_found(void **state)
{
	uint64_t page = 0;

	(void)state;
	assert_return_code(find("1000-2000 r-xp 00000000 08:01 10 /usr/bin/qemu\n" LOW
				"30000-40000 rw-s 00000000 00:01 10 /memfd:x (deleted)\n"
				"48000-49000 rw-s 00000000 00:1b 10 /SYSV00000000 (deleted)\n" HIGH
				"80000-90000 rw-p 00000000 00:00 0\n", true), 0);
	assert_int_equal(maps.n, 2);
	assert_true(maps.map[0].block == 1 && maps.map[0].start == 0x10000 && maps.map[0].end == 0x20000);
	assert_true(maps.map[1].block == 2 && maps.map[1].first == 0);
	assert_ptr_equal(guest_maps_at(&maps, 0x1ffff, &page), &maps.map[0]);
	assert_int_equal(page, 15);
	assert_null(guest_maps_at(&maps, 0x20000, &page));
	assert_null(guest_maps_at(&maps, 0xffff, &page));
	assert_ptr_equal(guest_maps_at(&maps, 0x53001, &page), &maps.map[1]);
	assert_int_equal(page, 3);
}

/* The kernel shows one mapping in pieces, as after UFFDIO_REGISTER of a part; and a program may map a page twice. */
static void pieces_are_one_mapping(void **state)
{
	struct guest_maps whole;
	uint64_t page = 0;

	(void)state;
	assert_return_code(find(LOW HIGH, true), 0);
	whole = maps;
	maps = (struct guest_maps) { 0 };
	assert_return_code(find("10000-13000 rw-s 00000000 00:1b 10 /dev/shm/low\n"
				"13000-20000 r--s 00003000 00:1b 10 /dev/shm/low\n" HIGH, true), 0);
	assert_int_equal(maps.n, 2);
	assert_true(guest_maps_same(&whole, &maps));
	/* Next to each other, and of other pages. */
	assert_return_code(find("10000-13000 rw-s 00000000 00:1b 10 /dev/shm/low\n"
				"13000-20000 r--s 00002000 00:1b 10 /dev/shm/low\n", false), 0);
	assert_int_equal(maps.n, 2);
	assert_false(guest_maps_same(&whole, &maps));
	assert_non_null(guest_maps_at(&maps, 0x13000, &page));
	assert_int_equal(page, 2);
	assert_return_code(find(LOW HIGH "80000-90000 rw-s 00000000 00:1b 10 /dev/shm/low\n", true), 0);
	assert_int_equal(maps.n, 3);
	assert_false(guest_maps_same(&whole, &maps));
	/* As many, elsewhere. */
	assert_return_code(find(LOW "60000-80000 rw-s 00000000 00:1b 11 /dev/shm/high\n", true), 0);
	assert_int_equal(maps.n, whole.n);
	assert_false(guest_maps_same(&whole, &maps));
	/* At the same addresses, other pages; the same pages, at other addresses. */
	assert_return_code(find("10000-14000 rw-s 00004000 00:1b 10 /dev/shm/low\n", false), 0);
	guest_maps_free(&whole);
	whole = maps;
	maps = (struct guest_maps) { 0 };
	assert_return_code(find("10000-14000 rw-s 00000000 00:1b 10 /dev/shm/low\n", false), 0);
	assert_false(guest_maps_same(&whole, &maps));
	assert_return_code(find("0f000-14000 rw-s 00004000 00:1b 10 /dev/shm/low\n", false), 0);
	assert_false(guest_maps_same(&whole, &maps));
	guest_maps_free(&whole);
}

static void what_lies_behind_the_block_is_left_out(void **state)
{
	(void)state;
	assert_return_code(find("10000-28000 rw-s 00000000 00:1b 10 /dev/shm/low\n" HIGH, true), 0);
	assert_int_equal(maps.map[0].end, 0x20000);
	assert_return_code(find(LOW HIGH "80000-90000 rw-s 00010000 00:1b 10 /dev/shm/low\n", true), 0);
	assert_int_equal(maps.n, 2);
}

static void a_private_mapping_is_refused(void **state)
{
	(void)state;
	assert_int_equal(find(LOW HIGH "80000-90000 r--p 00000000 00:1b 11 /dev/shm/high\n", true), -EINVAL);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "\"high\""));
}

static void a_part_is_refused_of_the_vmm(void **state)
{
	(void)state;
	assert_int_equal(find(LOW "50000-68000 rw-s 00000000 00:1b 11 /dev/shm/high\n", true), -EINVAL);
	assert_non_null(strstr(e.text, "page 24)"));
	assert_int_equal(find(LOW "50000-60000 rw-s 00010000 00:1b 11 /dev/shm/high\n", true), -EINVAL);
	assert_non_null(strstr(e.text, "page 0)"));
	assert_int_equal(find(HIGH, true), -EINVAL);
	assert_non_null(strstr(e.text, "\"low\""));
	/* Another process, as a vhost-user backend, may. */
	assert_return_code(find("50000-68000 rw-s 00000000 00:1b 11 /dev/shm/high\n", false), 0);
	/* In any order, with a page in both. */
	assert_return_code(find(LOW "50000-60000 rw-s 00010000 00:1b 11 /dev/shm/high\n"
				"80000-91000 rw-s 00000000 00:1b 11 /dev/shm/high\n", true), 0);
}

/* Of a process that lives. */
static void of_ourselves(void **state)
{
	int fd = memfd_create("ram", MFD_CLOEXEC);
	struct vm self = { .nblocks = 1, .blocks = { { .name = "ram", .pages = 8, .fd = fd } } };
	struct stat st;
	uint64_t page;
	void *at;

	(void)state;
	assert_return_code(ftruncate(fd, 8 * PAGE_BYTES), errno);
	assert_return_code(fstat(fd, &st), errno);
	self.blocks[0].dev = st.st_dev;
	self.blocks[0].ino = st.st_ino;
	at = mmap(NULL, 8 * PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	guest_maps_free(&maps);
	assert_return_code(guest_maps_find("/proc/self", &self, true, &maps, &e), 0);
	assert_int_equal(maps.n, 1);
	assert_non_null(guest_maps_at(&maps, (uintptr_t)at + 5 * PAGE_BYTES, &page));
	assert_int_equal(page, 5);
	guest_maps_free(&maps);
	assert_true(guest_maps_find("/proc/0", &self, true, &maps, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	munmap(at, 8 * PAGE_BYTES);
	close(fd);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(each_block_is_found),
	cmocka_unit_test(pieces_are_one_mapping),
	cmocka_unit_test(what_lies_behind_the_block_is_left_out),
	cmocka_unit_test(a_private_mapping_is_refused),
	cmocka_unit_test(a_part_is_refused_of_the_vmm),
	cmocka_unit_test(of_ourselves),
};

int main(void)
{
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	guest_maps_free(&maps);
	return r;
}
