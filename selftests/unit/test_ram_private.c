// SPDX-License-Identifier: GPL-2.0-only
/* From query-memdev to private RAM: where QEMU says that it is, if the kernel says the same of it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ram_bench.h"

/* A QEMU whose RAM is private. */
#define PRIVATE(list) { \
	{ "query-memdev", "", ONE }, \
	{ "qom-get", "\"property\":\"type\"", "\"memory-backend-ram\"" }, \
	{ "qom-get", "\"property\":\"share\"", "false" }, \
	{ "x-query-ramblock", "", list }, \
	{ NULL, NULL, NULL } }

/* Anonymous memory: it has no file. */
static void map_anonymous(struct bench *b, uint64_t start, uint64_t bytes, const char *perms)
{
	char text[128];

	snprintf(text, sizeof(text), "%08" PRIx64 "-%08" PRIx64 " %s 00000000 00:00 0 \n", start, start + bytes, perms);
	fake_write(&b->proc, "maps", text);
}

static void test_anonymous(void **state)
{
	static const struct peer_answer told[] = PRIVATE(LIST), silent[] = PRIVATE(NULL);
	const struct ram_block *b;
	struct bench t;

	(void)state;
	/* Part of a larger mapping, as the kernel merges them, or several with other attributes. */
	for (int i = 0; i < 2; i++) {
		bench_new(&t);
		map_anonymous(&t, PLACE, (i ? 5 : 16) * MIB, "rw-p");
		if (i)
			map_anonymous(&t, PLACE + 5 * MIB, MIB, "rw-p");
		assert_int_equal(find(&t, told, i), 0);
		b = &t.vm.blocks[0];
		assert_int_equal(b->hva, PLACE + 4 * MIB);
		assert_int_equal(b->pages, 512);
		assert_int_equal(b->page_size, 4096);
		assert_int_equal(b->pid, getpid());
		assert_true(b->fd < 0 && !b->ino && !b->memfd && !b->hugetlb);
		bench_free(&t);
	}
	bench_new(&t);
	map_anonymous(&t, PLACE, 16 * MIB, "rw-p");
	expect_refused(&t, silent, GW_RAM_PRIVATE, "before version 6.2");
	/* Nothing there; too little; a gap; a part of it is shared. */
	bench_new(&t);
	expect_refused(&t, told, GW_RAM_PRIVATE, "not mapped where QEMU says");
	bench_new(&t);
	map_anonymous(&t, PLACE, 5 * MIB, "rw-p");
	expect_refused(&t, told, GW_RAM_PRIVATE, "not mapped where QEMU says");
	bench_new(&t);
	map_anonymous(&t, PLACE + 4 * MIB, MIB / 2, "rw-p");
	map_anonymous(&t, PLACE + 5 * MIB, MIB, "rw-p");
	expect_refused(&t, told, GW_RAM_PRIVATE, "not mapped where QEMU says");
	bench_new(&t);
	map_anonymous(&t, PLACE + 4 * MIB, MIB, "rw-p");
	fake_map(&t.proc, "file1", PLACE + 5 * MIB, MIB, 0, "rw-s", "/mem/other");
	expect_refused(&t, told, GW_RAM_PRIVATE, "shared in part");
}

/* Without QEMU: what is large enough, whatever else a process has. */
static void test_guessed(void **state)
{
	struct bench t;

	(void)state;
	bench_new(&t);
	map_anonymous(&t, PLACE, 20 * MIB, "rw-p");
	map_anonymous(&t, PLACE - 4 * MIB, 4 * MIB, "rw-p");	/* a stack beside it */
	map_anonymous(&t, PLACE + 20 * MIB, 64 * MIB, "---p");
	map_anonymous(&t, PLACE + 100 * MIB, 5 * MIB, "rw-p");	/* just large enough */
	map_anonymous(&t, PLACE + 200 * MIB, 5 * MIB - 4096, "rw-p");
	fake_map(&t.proc, "/proc/version", PLACE + 300 * MIB, 32 * MIB, 0, "r--p", "/lib/x.so");
	fake_map(&t.proc, "/proc/version", PLACE + 400 * MIB, 8 * MIB, 0, "rw-p", "/lib/x.so");
	fake_write(&t.proc, "maps", "7f2600000000-7f2610000000 rw-p 00000000 00:00 0 [heap]\n");
	fake_map(&t.proc, "file0", PLACE + 0x20000000, 2 * MIB, 0, "rw-s", "/mem/ram0");
	if (ram_find_mapped(t.proc.dir, &t.vm, &t.e))
		fail_msg("%s", t.e.text);
	assert_int_equal(t.vm.nblocks, 3);
	assert_string_equal(t.vm.blocks[0].name, "ram0");
	assert_false(t.vm.blocks[0].hva);
	assert_int_equal(t.vm.blocks[1].hva, PLACE);
	assert_int_equal(t.vm.blocks[1].pages, 20 * MIB / 4096);
	assert_int_equal(t.vm.blocks[2].hva, PLACE + 100 * MIB);
	bench_free(&t);
	/* Small beside a file. */
	bench_new(&t);
	map_anonymous(&t, PLACE, MIB / 2, "rw-p");
	fake_map(&t.proc, "file0", PLACE + 16 * MIB, 2 * MIB, 0, "rw-s", "/mem/ram0");
	assert_int_equal(ram_find_mapped(t.proc.dir, &t.vm, &t.e), 0);
	assert_int_equal(t.vm.nblocks, 1);
	bench_free(&t);
	bench_new(&t);
	map_anonymous(&t, PLACE, MIB / 2, "rw-p");
	assert_true(ram_find_mapped(t.proc.dir, &t.vm, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_RAM_PRIVATE);
	bench_free(&t);
}

/* A private mapping of a file, which is never written. */
static void test_private_file(void **state)
{
	static const struct peer_answer told[] = PRIVATE(LIST);
	const uint64_t at = PLACE + 4 * MIB;
	const struct ram_block *b;
	struct bench t;
	struct stat st;
	char path[512];

	(void)state;
	for (int write = 0; write < 2; write++) {
		bench_new(&t);
		fake_map(&t.proc, "file0", at, 2 * MIB, 0, "rw-p", "/mem/ram0");
		assert_int_equal(find(&t, told, write), 0);
		b = &t.vm.blocks[0];
		assert_int_equal(stat(fake_path(&t.proc, "file0", path), &st), 0);
		assert_true(b->hva == at && b->dev == st.st_dev && b->ino == st.st_ino);
		assert_int_equal(fcntl(b->fd, F_GETFL) & O_ACCMODE, O_RDONLY);
		bench_free(&t);
	}
	bench_new(&t);
	fake_map(&t.proc, "file0", at, 2 * MIB, 4096, "rw-p", "/mem/ram0");
	expect_refused(&t, told, GW_RAM_PRIVATE, "start of its file");
	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 6 * MIB, 0, "rw-p", "/mem/ram0");
	expect_refused(&t, told, GW_RAM_PRIVATE, "start of its file");
	bench_new(&t);
	fake_map(&t.proc, "/proc/version", at, 2 * MIB, 0, "rw-p", "/mem/ram0");
	expect_refused(&t, told, GW_RAM_PRIVATE, "not on tmpfs or hugetlbfs");
	bench_new(&t);
	fake_map(&t.proc, "file0", at, MIB, 0, "rw-p", "/mem/ram0");
	fake_map(&t.proc, "file1", at + MIB, MIB, 0, "rw-p", "/mem/ram1");
	expect_refused(&t, told, GW_RAM_PRIVATE, "in more than one file");
	/* The mapping goes, or changes, between the look and the opening. */
	bench_new(&t);
	fake_map(&t.proc, "file0", at, 2 * MIB, 0, "rw-p", "/mem/ram0");
	snprintf(path, sizeof(path), "%.400s/map_files/%" PRIx64 "-%" PRIx64, t.proc.dir, at, at + 2 * MIB);
	unlink(path);
	expect_refused(&t, told, GW_VM_GONE, "map_files");
	bench_new(&t);
	fake_map(&t.proc, "file0", at, 2 * MIB, 0, "rw-p", "/mem/ram0");
	snprintf(path, sizeof(path), "%.400s/map_files/%" PRIx64 "-%" PRIx64, t.proc.dir, at, at + 2 * MIB);
	unlink(path);
	assert_int_equal(symlink("/proc/version", path), 0);
	expect_refused(&t, told, GW_INTERNAL, "try again");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_anonymous),
	cmocka_unit_test(test_guessed),
	cmocka_unit_test(test_private_file),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
