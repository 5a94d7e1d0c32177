// SPDX-License-Identifier: GPL-2.0-only
/* Parsers of /proc text: what kernels write is understood, and what they would never write is refused. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "proc/proc.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* In an allocation of its exact size, for ASan. */
static int parse(const char *text, struct proc_map *m, char **copy)
{
	*copy = strdup(text);
	return proc_parse_map(*copy, m);
}

static void test_good_map(void **state)
{
	static const char ram[] = "7f2569fff000-7f256bfff000 rw-s 00200000 08:1b 10                         /dev/shm/x.ram";
	struct proc_map m;
	char *copy;

	(void)state;
	assert_int_equal(parse(ram, &m, &copy), 0);
	assert_int_equal(m.start, 0x7f2569fff000);
	assert_int_equal(m.end, 0x7f256bfff000);
	assert_int_equal(m.offset, 0x200000);
	assert_int_equal(m.dev, makedev(8, 0x1b));
	assert_int_equal(m.ino, 10);
	assert_true(m.shared);
	assert_string_equal(m.path, "/dev/shm/x.ram");
	free(copy);

	assert_int_equal(parse("00400000-00401000 r-xp 00000000 fd:00 18446744073709551615", &m, &copy), 0);
	assert_false(m.shared);
	assert_string_equal(m.path, "");
	assert_true(m.ino == UINT64_MAX);
	free(copy);

	assert_int_equal(parse("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]", &m, &copy), 0);
	assert_true(m.start == 0xffffffffff600000);
	assert_string_equal(m.path, "[vsyscall]");
	free(copy);

	assert_int_equal(parse("1000-2000 r--s 00000000 00:01 14 /memfd:a b  (deleted)", &m, &copy), 0);
	assert_string_equal(m.path, "/memfd:a b  (deleted)");
	free(copy);
}

static void test_bad_maps(void **state)
{
	static const char *const lines[] = {
		"", " ", "1000", "1000-", "1000-2000", "1000-2000 ", "1000-2000 rw-s", "1000-2000 rw-s 0", "1000-2000 rw-s 0 00:00",
		"1000-2000 rw-s 0 00:00 ", "1000-2000 rw-s 0 00:00 x", "1000-2000 rw-s 0 00:00 1x", "1000-2000 rw-s 0 00:00 0x1",
		"2000-1000 rw-s 0 00:00 1 /a", "1000-1000 rw-s 0 00:00 1 /a", "-1000-2000 rw-s 0 00:00 1 /a", " 1000-2000 rw-s 0 00:00 1 /a",
		"0x1000-2000 rw-s 0 00:00 1 /a", "1000-2000 rwws 0 00:00 1 /a", "1000-2000 rw-x 0 00:00 1 /a", "1000-2000 rw- 0 00:00 1 /a",
		"1000-2000  rw-s 0 00:00 1 /a", "1000-2000 rw-s -1 00:00 1 /a", "1000-2000 rw-s 8000000000000000 00:00 1 /a",
		"1000-10000000000000000 rw-s 0 00:00 1 /a", "1000-2000 rw-s 0 100000000:00 1 /a", "1000-2000 rw-s 0 00:100000000 1 /a",
		"1000-2000 rw-s 0 00:00 18446744073709551616 /a", "1000-2000 rw-s 0 00-00 1 /a", "G000-2000 rw-s 0 00:00 1 /a",
		"1000-2000\trw-s 0 00:00 1 /a", "1000-2000 rw-s 0 00:00 a /a", "1000-2000 sw-s 0 00:00 1 /a",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct proc_map m;
		char *copy;
		int r = parse(lines[i], &m, &copy);

		if (r != -EPROTO)
			print_message("accepted: %s\n", lines[i]);
		assert_int_equal(r, -EPROTO);
		free(copy);
	}
}

static int read_maps(const char *text, size_t len, struct proc_maps *maps)
{
	FILE *f = fmemopen((void *)text, len, "r");
	int r = proc_read_maps(f, maps);

	fclose(f);
	return r;
}

#define LINE(n, perms, path) #n "000-" #n "fff " perms " 00000000 00:1b 1 " path "\n"

static void test_maps(void **state)
{
	static const char good[] = LINE(1, "rw-s", "/a") LINE(2, "rw-p", "/private") LINE(3, "rw-s", "/b") LINE(4, "rw-s", "[odd]")
				   LINE(5, "r--s", "/c (deleted)") LINE(6, "rw-s", "");
	static const char *const bad[] = { "\n", LINE(1, "rw-s", "/a") "x\n", LINE(1, "rw-s", "/a") "1000-2000 rw-s 0 00:1b 1 /a" };
	static const char nul[] = "1000-2000 rw-s 0 00:1b 1 /a\0b\n";
	struct proc_maps maps;

	(void)state;
	assert_int_equal(read_maps(good, sizeof(good) - 1, &maps), 0);
	assert_int_equal(maps.n, 3);
	assert_string_equal(maps.map[0].path, "/a");
	assert_string_equal(maps.map[1].path, "/b");
	assert_int_equal(maps.map[1].start, 0x3000);
	assert_string_equal(maps.map[2].path, "/c (deleted)");
	proc_free_maps(&maps);
	assert_int_equal(maps.n, 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(read_maps(bad[i], strlen(bad[i]), &maps), -EPROTO);
		proc_free_maps(&maps);
	}
	assert_int_equal(read_maps(nul, sizeof(nul) - 1, &maps), -EPROTO);
	proc_free_maps(&maps);
}

/* Our own, with a mapping that we know. */
static void test_real_maps(void **state)
{
	FILE *f = fopen("/proc/self/maps", "r");
	struct proc_maps maps;
	bool found = false;
	int fd = memfd_create("godwit-test", 0);
	void *p;

	(void)state;
	assert_int_equal(ftruncate(fd, 8192), 0);
	p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	assert_int_equal(proc_read_maps(f, &maps), 0);
	for (size_t i = 0; i < maps.n; i++)
		if (maps.map[i].start == (uintptr_t)p) {
			assert_string_equal(maps.map[i].path, "/memfd:godwit-test (deleted)");
			assert_int_equal(maps.map[i].end - maps.map[i].start, 8192);
			found = true;
		}
	assert_true(found);
	proc_free_maps(&maps);
	fclose(f);
	munmap(p, 8192);
	close(fd);
}

static int read_fdinfo(const char *text, struct proc_fdinfo *info)
{
	FILE *f = fmemopen((void *)text, strlen(text), "r");
	int r = proc_read_fdinfo(f, info);

	fclose(f);
	return r;
}

static void test_fdinfo(void **state)
{
	static const char *const bad[] = {
		"pos:\t0\n", "flags:\n", "flags:\t9\n", "flags:\t-1\n", "flags:\t077777777777777\n", "flags:\t02 x\n",
		"flags:\t02\nUserBufs:\tmany\n", "flags:\t02\nUserBufs:\t99999999999999999999\n",
	};
	struct proc_fdinfo info;

	(void)state;
	assert_int_equal(read_fdinfo("pos:\t0\nflags:\t02140002\nmnt_id:\t29\nino:\t9\n", &info), 0);
	assert_int_equal(info.flags, O_RDWR | O_DIRECT | O_CLOEXEC | 0100000);
	assert_int_equal(info.user_bufs, 0);
	assert_false(info.says_bufs);
	assert_int_equal(read_fdinfo("flags:\t02\nSqMask:\t0x1f\nUserFiles:\t2\nUserBufs:\t3\n    0: 0x7f/4096\n", &info), 0);
	assert_int_equal(info.user_bufs, 3);
	assert_true(info.says_bufs);
	assert_int_equal(read_fdinfo("flags:\t02\nUserBufs:\t0\n", &info), 0);
	assert_true(info.says_bufs);
	assert_false(info.flags & O_DIRECT);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(read_fdinfo(bad[i], &info), -EPROTO);
}

static int read_pid(int (*read)(FILE *f, pid_t *pid), const char *text, pid_t *pid)
{
	FILE *f = fmemopen((void *)text, strlen(text), "r");
	int r = read(f, pid);

	fclose(f);
	return r;
}

static void test_tracer(void **state)
{
	static const char *const bad[] = {
		"Name:\tx\n", "TracerPid:\n", "TracerPid:\t-1\n", "TracerPid:\t1 2\n", "TracerPid:\t4294967296\n", "XTracerPid:\t1\n",
	};
	pid_t tracer = 5;

	(void)state;
	assert_int_equal(read_pid(proc_read_tracer, "Name:\tTracerPid:\nPid:\t8\nTracerPid:\t0\nUid:\t0\n", &tracer), 0);
	assert_int_equal(tracer, 0);
	assert_int_equal(read_pid(proc_read_tracer, "Name:\tx\nTracerPid:\t4711\n", &tracer), 0);
	assert_int_equal(tracer, 4711);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(read_pid(proc_read_tracer, bad[i], &tracer), -EPROTO);
}

static void test_inner_tid(void **state)
{
	static const char *const bad[] = { "NSpid:\n", "NSpid:\t\n", "NSpid:\tx\n", "NSpid:\t1 2\n", "NSpid:\t1", "NSpid:\t4294967296\n" };
	pid_t tid = 5;

	(void)state;
	assert_int_equal(read_pid(proc_read_inner_tid, "Name:\tNSpid:\nPid:\t8\nNSpid:\t8\nUid:\t0\n", &tid), 0);
	assert_int_equal(tid, 8);
	assert_int_equal(read_pid(proc_read_inner_tid, "Name:\tx\nNSpid:\t4711\t12\t3\n", &tid), 0);
	assert_int_equal(tid, 3);
	assert_int_equal(read_pid(proc_read_inner_tid, "NSpid:\t0\n", &tid), -ESRCH);
	assert_int_equal(read_pid(proc_read_inner_tid, "Pid:\t8\n", &tid), -ENODATA);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(read_pid(proc_read_inner_tid, bad[i], &tid), -EPROTO);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_good_map),
	cmocka_unit_test(test_bad_maps),
	cmocka_unit_test(test_maps),
	cmocka_unit_test(test_real_maps),
	cmocka_unit_test(test_fdinfo),
	cmocka_unit_test(test_tracer),
	cmocka_unit_test(test_inner_tid),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
