// SPDX-License-Identifier: GPL-2.0-only
/* From query-memdev to RAM files: a scripted QEMU and a /proc/PID made of plain files. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ram_bench.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define TWO		"[" MEMDEV("ram1", "1048576") ", " MEMDEV("ram0", "2097152") "]"

/* A QEMU with these backends, all shared files, ram0's with this mem-path (as JSON). */
#define QEMU(memdevs, path0) { \
	{ "query-memdev", "", memdevs }, \
	{ "qom-get", "\"property\":\"type\"", "\"memory-backend-file\"" }, \
	{ "qom-get", "\"property\":\"share\"", "true" }, \
	{ "qom-get", "/objects/ram0\",\"property\":\"mem-path\"", path0 }, \
	{ "qom-get", "/objects/ram1\",\"property\":\"mem-path\"", "\"/mem/ram1\"" }, \
	{ NULL, NULL, NULL } }

static void test_two_backends(void **state)
{
	static const struct peer_answer qemu[] = QEMU(TWO, "\"/mem/ram0\"");
	char name[512];
	struct stat a, b;
	struct bench t;

	(void)state;
	for (int write = 0; write < 2; write++) {
		bench_new(&t);
		fake_map(&t.proc, "file1", PLACE, MIB, 0, "rw-s", "/mem/ram1");
		fake_map(&t.proc, "file0", 0x1000, MIB, MIB, "rw-s", "/mem/ram0");	/* one backend, two mappings */
		fake_map(&t.proc, "file0", PLACE + 4 * MIB, MIB, 0, "rw-s", "/mem/ram0");
		fake_map(&t.proc, "/proc/version", PLACE + 8 * MIB, MIB, 0, "rw-s", "/mem/ram00");
		assert_int_equal(find(&t, qemu, write), 0);
		assert_int_equal(t.vm.nblocks, 2);
		assert_string_equal(t.vm.blocks[0].name, "ram0");
		assert_string_equal(t.vm.blocks[1].name, "ram1");
		assert_int_equal(t.vm.blocks[0].pages, 512);
		assert_int_equal(t.vm.blocks[1].pages, 256);
		assert_int_equal(t.vm.blocks[0].page_size, 4096);
		assert_false(t.vm.blocks[0].hugetlb);
		assert_int_equal(fcntl(t.vm.blocks[0].fd, F_GETFL) & O_ACCMODE, write ? O_RDWR : O_RDONLY);
		assert_true(fcntl(t.vm.blocks[0].fd, F_GETFD) & FD_CLOEXEC);
		assert_int_equal(fstat(t.vm.blocks[0].fd, &a), 0);
		assert_int_equal(stat(fake_path(&t.proc, "file0", name), &b), 0);
		assert_int_equal(a.st_ino, b.st_ino);
		bench_free(&t);
	}
}

static void test_ways_to_find(void **state)
{
	static const struct {
		const char *mem_path, *shown, *link;	/* link: of root/ or cwd/, to the file */
	} cases[] = {
		{ "\"/mem/ram0\"", "/mem/ram0 (deleted)", NULL },
		{ "\"/mem/dir\"", "/mem/dir/qemu_back_mem.ram0.jRnvXQ (deleted)", NULL },
		{ "\"/mem/dir/\"", "/mem/dir/qemu_back_mem.ram0.jRnvXQ", NULL },
		{ "\"/mem/dir\"", "/mem/dir/qemu_back_mem._objects_ram0.jRnvXQ (deleted)", NULL },
		{ "\"/dir\"", "/elsewhere/qemu_back_mem.ram0.jRnvXQ (deleted)", NULL },
		{ "\"/mem/a\\nb\"", "/mem/a\\012b", NULL },
		{ "\"./rel.ram\"", "/some/where/rel.ram", "cwd/rel.ram" },
		{ "\"/mem//link\"", "/some/where/else", "root/mem/link" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct peer_answer qemu[] = QEMU(ONE, cases[i].mem_path);
		char target[512], link[512];
		struct bench t;

		bench_new(&t);
		fake_map(&t.proc, "file1", 0x1000, MIB, 0, "rw-s", "/lib/other");
		fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-s", cases[i].shown);
		if (cases[i].link)
			assert_int_equal(symlink(fake_path(&t.proc, "file0", target), fake_path(&t.proc, cases[i].link, link)), 0);
		expect_found(&t, qemu);
	}
}

/* A QEMU whose RAM is a memfd; list: of x-query-ramblock. */
#define MEMFD(list) { \
	{ "query-memdev", "", ONE }, \
	{ "qom-get", "\"property\":\"type\"", "\"memory-backend-memfd\"" }, \
	{ "qom-get", "\"property\":\"share\"", "true" }, \
	{ "x-query-ramblock", "", list }, \
	{ NULL, NULL, NULL } }

static void test_memfd(void **state)
{
	static const struct peer_answer told[] = MEMFD(LIST), silent[] = MEMFD(NULL);
	static const char name[] = "/memfd:memory-backend-memfd (deleted)";
	struct stat a, b;
	struct bench t;
	char path[512];

	(void)state;
	/* Of two the one where QEMU says, also if it is mapped in two pieces. */
	bench_new(&t);
	fake_map(&t.proc, "file1", PLACE, 2 * MIB, 0, "rw-s", name);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, MIB, 0, "rw-s", name);
	fake_map(&t.proc, "file0", PLACE + 5 * MIB, MIB, MIB, "rw-s", name);
	assert_int_equal(find(&t, told, false), 0);
	assert_true(t.vm.nblocks == 1 && t.vm.blocks[0].memfd);
	assert_int_equal(fstat(t.vm.blocks[0].fd, &a), 0);
	assert_int_equal(stat(fake_path(&t.proc, "file0", path), &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	bench_free(&t);
	/* QEMU does not say: the only one of that size. */
	bench_new(&t);
	fake_map(&t.proc, "file1", PLACE, MIB, 0, "rw-s", name);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, 2 * MIB, 0, "rw-s", name);
	expect_found(&t, silent);
	bench_new(&t);
	fake_map(&t.proc, "file1", PLACE, 2 * MIB, 0, "rw-s", name);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, 2 * MIB, 0, "rw-s", name);
	expect_refused(&t, silent, GW_RAM_PRIVATE, "fits two files");
	/* That of another file; a part of it; none. */
	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, 2 * MIB, 0, "rw-s", "/memfd:other (deleted)");
	expect_refused(&t, told, GW_RAM_PRIVATE, "has no shared mapping of a memfd");
	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, MIB, 0, "rw-s", name);
	expect_refused(&t, told, GW_RAM_PRIVATE, "larger than what the VMM maps of a memfd");
	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, 2 * MIB, MIB, "rw-s", name);
	expect_refused(&t, told, GW_RAM_PRIVATE, "begin at the start");
}

static void test_not_the_mapping(void **state)
{
	static const char *const paths[] = {
		"/mem/dirt", "/mem/di", "/mem/dir/x", "/mem/dir/qemu_back_mem.ram0.jRnvX", "/mem/dir/qemu_back_mem.ram0.jRnvXQQ",
		"/mem/dir/qemu_back_mem.ram00.jRnvXQ", "/mem/dir/qemu_back_mem.ram0.jRn.XQ", "/mem/dir/sub/qemu_back_mem.ram0.jRnvXQ",
		"/mem/dir (deleted) (deleted)", "/mem/dir/qemu_back_mem.ram0", "/mem/dirqemu_back_mem.ram0.jRnvXQ", "dir", "",
		"/mem/dir/qemu_back_mem.ram0.jRnvXQ/x",
	};
	static char dir[] = "/mem/dir", empty[] = "", made[] = "/qemu_back_mem.ram0.jRnvXQ";
	struct backend b = { .id = "ram0", .mem_path = dir };
	struct proc_map m = { .dev = 3, .ino = 4 };
	struct stat file = { .st_dev = 3, .st_ino = 4, .st_mode = S_IFREG };
	struct stat folder = { .st_dev = 3, .st_mode = S_IFDIR };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		m.path = (char *)paths[i];
		assert_false(ram_path_matches(&b, &m, NULL));
	}
	m.path = dir;
	assert_true(ram_path_matches(&b, &m, NULL));
	b.mem_path = empty;
	assert_false(ram_path_matches(&b, &m, NULL));
	m.path = made;
	assert_false(ram_path_matches(&b, &m, NULL));
	m.path = dir;
	assert_true(ram_path_matches(&b, &m, &file));
	assert_false(ram_path_matches(&b, &m, &folder));
	m.ino = 5;
	assert_false(ram_path_matches(&b, &m, &file));
	m.ino = 4;
	m.dev = 5;
	assert_false(ram_path_matches(&b, &m, &file));
}

/* What the mapping or the file is, when it will not do. */
static void test_refused_files(void **state)
{
	static const struct peer_answer qemu[] = QEMU(ONE, "\"/mem/ram0\""), two[] = QEMU(TWO, "\"/mem/ram0\"");
	static const struct peer_answer same[] = QEMU(TWO, "\"/mem/ram1\"");
	char path[512];
	struct bench t;

	(void)state;
	bench_new(&t);
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "no shared mapping of /mem/ram0");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-p", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "no shared mapping of /mem/ram0");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 4096, "rw-s", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "start of its file");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, MIB, 0, "rw-s", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "larger than what the VMM maps");

	bench_new(&t);
	fake_map(&t.proc, "file1", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "too short, 1048576 bytes");

	bench_new(&t);
	fake_map(&t.proc, "/proc/version", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "/mem/ram0, which is not on tmpfs or hugetlbfs");

	bench_new(&t);
	fake_map(&t.proc, "/dev/zero", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "\"ram0\" is /mem/ram0, memory of a device: start QEMU with");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	fake_map(&t.proc, "file1", 0x1000, MIB, 0, "rw-s", "/mem/ram0 (deleted)");
	expect_refused(&t, qemu, GW_RAM_PRIVATE, "fits two files");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram1");
	expect_refused(&t, same, GW_RAM_PRIVATE, "\"ram1\" has the same file as \"ram0\"");

	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	expect_refused(&t, two, GW_RAM_PRIVATE, "\"ram1\" has no shared mapping");

	/* The mapping changes between the look and the opening. */
	bench_new(&t);
	fake_map(&t.proc, "file0", 0x1000, 2 * MIB, 0, "rw-s", "/mem/ram0");
	unlink(fake_path(&t.proc, "map_files/1000-201000", path));
	expect_refused(&t, qemu, GW_VM_GONE, "map_files/1000-201000");
	bench_new(&t);
	fake_map(&t.proc, "file0", 0x1000, 2 * MIB, 0, "rw-s", "/mem/ram0");
	unlink(fake_path(&t.proc, "map_files/1000-201000", path));
	assert_int_equal(symlink("/proc/version", path), 0);
	expect_refused(&t, qemu, GW_INTERNAL, "try again");

	bench_new(&t);
	fake_write(&t.proc, "maps", "hello\n");
	expect_refused(&t, qemu, GW_INTERNAL, "/maps");
	bench_new(&t);
	unlink(fake_path(&t.proc, "maps", path));
	expect_refused(&t, qemu, GW_VM_GONE, "/maps");
}

/* Makes map_files show this in the place of the 2 MiB at an address; NULL: nothing. */
static void remap(struct bench *t, uint64_t at, const char *target)
{
	char name[64], path[512];

	snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, at, at + 2 * MIB);
	assert_int_equal(unlink(fake_path(&t->proc, name, path)), 0);
	if (target)
		assert_int_equal(symlink(target, path), 0);
}

/* Without a QEMU that could be asked: all that may be RAM, and nothing else. */
static void test_guessed(void **state)
{
	struct bench t;

	(void)state;
	bench_new(&t);
	fake_file(&t.proc, "small", MIB / 2);
	fake_file(&t.proc, "gone", 2 * MIB);
	fake_file(&t.proc, "changed", 2 * MIB);
	fake_map(&t.proc, "/proc/version", 0x1000, MIB, 0, "rw-s", "/mem/version");
	fake_map(&t.proc, "small", PLACE, MIB / 2, 0, "rw-s", "/mem/small");
	fake_map(&t.proc, "gone", PLACE + 2 * MIB, 2 * MIB, 0, "rw-s", "/mem/gone");
	fake_map(&t.proc, "changed", PLACE + 4 * MIB, 2 * MIB, 0, "rw-s", "/mem/changed");
	remap(&t, PLACE + 2 * MIB, NULL);
	remap(&t, PLACE + 4 * MIB, "/proc/version");
	assert_int_equal(ram_find_mapped(t.proc.dir, &t.vm, &t.e), -ENOENT);
	assert_int_equal(t.e.exit, GW_RAM_PRIVATE);
	assert_int_equal(t.vm.nblocks, 0);
	t.e = (struct err) { 0 };
	fake_map(&t.proc, "file0", PLACE + 6 * MIB, MIB, 0, "rw-s", "/mem/ram0");
	fake_map(&t.proc, "file0", PLACE + 7 * MIB, MIB, MIB, "rw-s", "/mem/ram0");
	fake_map(&t.proc, "file1", PLACE + 8 * MIB, MIB, 0, "rw-s", "/mem/ram1");
	assert_int_equal(ram_find_mapped(t.proc.dir, &t.vm, &t.e), 0);
	assert_int_equal(t.e.exit, GW_OK);
	assert_int_equal(t.vm.nblocks, 2);
	assert_string_equal(t.vm.blocks[0].name, "ram0");
	assert_int_equal(t.vm.blocks[0].pages, 512);
	assert_int_equal(t.vm.blocks[0].page_size, 4096);
	assert_string_equal(t.vm.blocks[1].name, "ram1");
	bench_free(&t);
	/* What is no answer at all ends the search. */
	bench_new(&t);
	fake_map(&t.proc, "file0", PLACE, 2 * MIB, 0, "rw-s", "/mem/ram0");
	remap(&t, PLACE, "/proc/version/x");
	assert_int_equal(ram_find_mapped(t.proc.dir, &t.vm, &t.e), -ENOTDIR);
	assert_int_equal(t.e.exit, GW_INTERNAL);
	assert_non_null(strstr(t.e.text, "map_files/"));
	bench_free(&t);
}

/* RAM was unplugged and plugged again under its name: the file that we hold open is no longer the guest's. */
static void test_still_mapped(void **state)
{
	struct bench t;
	char path[512];
	struct stat st;

	(void)state;
	bench_new(&t);
	t.vm.nblocks = 3;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(stat(fake_path(&t.proc, i ? "file1" : "file0", path), &st), 0);
		t.vm.blocks[i] = (struct ram_block) { .name = "ram0", .dev = st.st_dev, .ino = st.st_ino, .fd = -1 };
		t.vm.blocks[i].name[3] = (char)('0' + i);
	}
	/* Private RAM that has a file below. */
	t.vm.blocks[2] = (struct ram_block) { .name = "ram2", .dev = 1, .ino = 2, .hva = PLACE, .fd = -1 };
	fake_map(&t.proc, "file0", PLACE, MIB, MIB, "rw-s", "/mem/ram0");
	fake_map(&t.proc, "file1", PLACE + 2 * MIB, MIB, 0, "rw-s", "/mem/ram1");
	assert_int_equal(ram_check_mapped(&t.vm, t.proc.dir, &t.e), 0);
	unlink(fake_path(&t.proc, "maps", path));
	fake_map(&t.proc, "file0", PLACE + 4 * MIB, 2 * MIB, 0, "rw-s", "/mem/ram0");
	fake_map(&t.proc, "file1", PLACE + 6 * MIB, MIB, 0, "rw-p", "/mem/ram1");
	fake_map(&t.proc, "/proc/version", PLACE + 7 * MIB, MIB, 0, "rw-s", "/mem/ram1");
	assert_int_equal(ram_check_mapped(&t.vm, t.proc.dir, &t.e), -EAGAIN);
	assert_int_equal(t.e.exit, GW_VM_STATE);
	assert_non_null(strstr(t.e.text, "does not map the file of RAM \"ram1\" any more"));
	t.e = (struct err) { 0 };
	unlink(fake_path(&t.proc, "maps", path));
	assert_true(ram_check_mapped(&t.vm, t.proc.dir, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_VM_GONE);
	/* Nothing to look for. */
	t.vm.nblocks = 0;
	assert_int_equal(ram_check_mapped(&t.vm, t.proc.dir, &t.e), 0);
	bench_free(&t);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_two_backends),
	cmocka_unit_test(test_ways_to_find),
	cmocka_unit_test(test_memfd),
	cmocka_unit_test(test_not_the_mapping),
	cmocka_unit_test(test_refused_files),
	cmocka_unit_test(test_guessed),
	cmocka_unit_test(test_still_mapped),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
