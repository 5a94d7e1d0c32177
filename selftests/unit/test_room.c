// SPDX-License-Identifier: GPL-2.0-only
/* RAM files with huge pages where there is no room: an error that says so, and never SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "each_engine.h"
#include "ram_rig.h"
#include "ram/thp.h"

#define AT	"/tmp"
#define POOL	"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
#define THP_BYTES	((size_t)THP_PAGES * PAGE_BYTES)

/* A mount that no other process sees, above what is there; unmounted by teardown(). */
static bool mount_here(const char *type, const char *options)
{
	return !unshare(CLONE_NEWNS) && !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("godwit-test", AT, type, 0, options);
}

static int file_here(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_return_code(fd, errno);
	assert_return_code(ftruncate(fd, (off_t)bytes), errno);
	return fd;
}

static void move_block(struct ram_block *b)
{
	close(b->fd);
	b->fd = file_here(AT "/ram", b->pages * PAGE_BYTES);
}

/* Another file takes all that is left. */
static void fill(void)
{
	static const uint8_t page[PAGE_BYTES] = { 1 };
	int fd = file_here(AT "/other", 0);

	while (write(fd, page, sizeof(page)) == sizeof(page))
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

static long pool(void)
{
	FILE *f = fopen(POOL, "re");
	long n = -1;

	if (f && fscanf(f, "%ld", &n) != 1)
		n = -1;
	if (f)
		fclose(f);
	return n;
}

static bool set_pool(long n)
{
	FILE *f = fopen(POOL, "we");

	if (!f)
		return false;
	fprintf(f, "%ld", n);
	return !fclose(f) && pool() == n;
}

static long pool_before = -1;

static int teardown(void **state)
{
	rig_teardown(state);
	umount2(AT, MNT_DETACH);
	if (pool_before >= 0)
		set_pool(pool_before);
	pool_before = -1;
	return 0;
}

/* The destination's RAM on a tmpfs that has huge pages, and is smaller than the RAM. */
static bool mapped_destination(struct rig *rig, const char *options)
{
	if (!mount_here("tmpfs", options))
		return false;
	ram_writer_close(&rig->place);
	move_block(&rig->dst.blocks[0]);
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &rig->e), 0);
	assert_non_null(rig->place.base[0]);
	return true;
}

static void assert_no_room(struct rig *rig)
{
	struct err e = { 0 };

	assert_int_not_equal(receive_streams_wait_round(rig->receiving, rig->rounds, false, NULL, &e), 0);
	assert_int_equal(e.exit, GW_NO_ROOM);
	assert_non_null(strstr(e.text, "no room at the destination for RAM \"ram0\": its tmpfs"));
	assert_non_null(strstr(e.text, strerror(ENOSPC)));
}

static uint64_t allocated(int fd)
{
	struct stat st;

	assert_return_code(fstat(fd, &st), errno);
	return (uint64_t)st.st_blocks * 512 / PAGE_BYTES;
}

static void a_full_tmpfs_takes_no_data(void **state)
{
	struct rig *rig = *state;

	if (!mapped_destination(rig, "size=64k,huge=always"))
		skip();		/* root may */
	rig_connect(rig, engine, engine, 2, 0);
	rig_write_run(rig, 0, 50, 1);
	rig_send(rig, ROUND_PRECOPY);
	assert_no_room(rig);
}

/* Data that became a hole, as whole huge pages of zeros do, needs no room to be zero once more. */
static void a_full_tmpfs_keeps_its_holes(void **state)
{
	struct rig *rig = *state;

	if (!mapped_destination(rig, "size=4m,huge=always"))
		skip();
	rig_connect(rig, engine, engine, 1, 0);
	for (int value = 1; value >= 0; value--) {
		rig_write_run(rig, 0, THP_PAGES, value);
		rig_round(rig, ROUND_PRECOPY);
	}
	fill();
	rig_write_run(rig, 7, 3, 0);
	rig_round(rig, ROUND_LAST);
	assert_int_equal(allocated(rig->dst.blocks[0].fd), 0);
}

/* Another process has emptied the file meanwhile. */
static void a_full_tmpfs_takes_no_zeros(void **state)
{
	struct rig *rig = *state;

	if (!mapped_destination(rig, "size=4m,huge=always"))
		skip();
	rig_connect(rig, engine, engine, 1, 0);
	rig_write_run(rig, 0, 10, 1);
	rig_round(rig, ROUND_PRECOPY);
	assert_return_code(fallocate(rig->dst.blocks[0].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, THP_BYTES), errno);
	fill();
	rig_write_run(rig, 7, 3, 0);
	rig_send(rig, ROUND_PRECOPY);
	assert_no_room(rig);
}

/* Short holes are read with what lies around them. On a full tmpfs none of them can become a page, and none needs to. */
static void a_full_source_is_read(void **state)
{
	static const uint64_t data[] = { 3, 5, 9, 40, 3 + FRAME_PAGES - 1 };
	uint8_t page[PAGE_BYTES];
	struct rig *rig = *state;
	int fd;

	if (!mount_here("tmpfs", "size=64k,huge=advise"))
		skip();
	move_block(&rig->src.blocks[0]);
	fd = rig->src.blocks[0].fd;
	memset(rig->ram, 0, PAGES * PAGE_BYTES);
	for (unsigned int i = 0; i < sizeof(data) / sizeof(data[0]); i++) {
		memset(page, (int)(i + 1), sizeof(page));
		assert_int_equal(pwrite(fd, page, sizeof(page), (off_t)(data[i] * PAGE_BYTES)), sizeof(page));
		memcpy(rig->ram + data[i] * PAGE_BYTES, page, sizeof(page));
	}
	fill();
	rig_connect(rig, engine, engine, 1, 0);
	bitmap_set(rig->source.map[0], 0, 2 * FRAME_PAGES);
	rig_round(rig, ROUND_PRECOPY);
	assert_memory_equal(rig->ram, rig->there, PAGES * PAGE_BYTES);
	assert_int_equal(rig->count.data_pages, sizeof(data) / sizeof(data[0]));
	assert_int_equal(allocated(fd), sizeof(data) / sizeof(data[0]));
}

/* Four huge pages more than before; what the mount gives is these four at most, so no others are taken. */
static bool hugetlb_destination(struct rig *rig)
{
	struct ram_block *b = &rig->dst.blocks[0];

	pool_before = pool();
	if (pool_before < 0 || !set_pool(pool_before + 4) || !mount_here("hugetlbfs", "pagesize=2M,size=8M")) {
		print_message("skipped: this host lacks huge pages, or refuses a mount\n");
		return false;
	}
	ram_writer_close(&rig->place);
	move_block(b);
	b->hugetlb = true;
	b->page_size = THP_BYTES;
	return true;
}

static void too_few_huge_pages(void **state)
{
	struct rig *rig = *state;
	struct err e = { 0 };

	if (!hugetlb_destination(rig))
		skip();
	assert_int_equal(rig->dst.blocks[0].pages, 8 * THP_PAGES);
	assert_int_not_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &e), 0);
	assert_non_null(strstr(e.text, "no room at the destination for RAM \"ram0\": too few huge pages of 2048 KiB"));
	assert_non_null(strstr(e.text, POOL));
}

/* Pages that were there, and were punched out, are reserved again: no other file takes them. */
static void a_hole_in_hugetlbfs_is_reserved(void **state)
{
	struct rig *rig = *state;
	struct ram_block *b = &rig->dst.blocks[0];
	int other;
	void *p;

	if (!hugetlb_destination(rig))
		skip();
	b->pages = 4 * THP_PAGES;
	assert_return_code(fallocate(b->fd, 0, 0, 4 * THP_BYTES), errno);
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &rig->e), 0);
	assert_int_equal(allocated(b->fd), 0);
	other = file_here(AT "/other", THP_BYTES);
	p = mmap(NULL, THP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
	close(other);
	rig_connect(rig, engine, engine, 2, 0);
	rig_write_run(rig, 0, 4 * THP_PAGES, 1);
	rig_round(rig, ROUND_PRECOPY);
	assert_ptr_equal(p, MAP_FAILED);
	assert_memory_equal(rig->ram, rig->place.base[0], 4 * THP_BYTES);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_full_tmpfs_takes_no_data, rig_setup, teardown),
	cmocka_unit_test_setup_teardown(a_full_tmpfs_keeps_its_holes, rig_setup, teardown),
	cmocka_unit_test_setup_teardown(a_full_tmpfs_takes_no_zeros, rig_setup, teardown),
	cmocka_unit_test_setup_teardown(a_full_source_is_read, rig_setup, teardown),
	cmocka_unit_test_setup_teardown(too_few_huge_pages, rig_setup, teardown),
	cmocka_unit_test_setup_teardown(a_hole_in_hugetlbfs_is_reserved, rig_setup, teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
