// SPDX-License-Identifier: GPL-2.0-only
/* The memory cgroups that the receiver is in, of both versions, as a host and as a container see them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "host_rig.h"
#include "page/page.h"

#define V2	"36 35 0:27 / %s/cg rw - cgroup2 cgroup2 rw,memory_recursiveprot\n"

/* %s: the tree. */
static void put_mounts(struct end *end, const char *format)
{
	char text[512];

	snprintf(text, sizeof(text), format, end->tree.dir);
	put(end, "proc/self/mountinfo", text);
}

static void assert_path(struct end *end, const char *path, const char *name)
{
	char whole[512];

	assert_text(end, path, fake_path(&end->tree, name, whole));
}

static void test_version_2(void **state)
{
	struct end *end = *state;

	put_mounts(end, V2);
	put(end, "proc/self/cgroup", "0::/a.slice/b.service\n");
	put(end, "cg/a.slice/b.service/memory.max", "1000000\n");
	put(end, "cg/a.slice/b.service/memory.high", "max\n");
	put(end, "cg/a.slice/b.service/memory.current", "700000\n");
	/* Page cache is dropped first; tmpfs is not among that. */
	put(end, "cg/a.slice/b.service/memory.stat", "anon 5\nfile 600000\ninactive_file 200000\nactive_file 100000\n");
	put(end, "cg/a.slice/b.service/memory.swap.max", "50\n");
	put(end, "cg/a.slice/b.service/memory.swap.current", "20\n");
	put(end, "cg/a.slice/memory.max", "max\n");
	put(end, "cg/a.slice/memory.high", "800000\n");
	put(end, "cg/a.slice/memory.current", "900000\n");
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 2);
	assert_path(end, "cgroups/0/path", "cg/a.slice/b.service");
	assert_number(end, "cgroups/0/limit", 1000000);
	assert_number(end, "cgroups/0/room", 600000);
	assert_number(end, "cgroups/0/swap", 30);
	assert_null(fact(end, "cgroups/0/high"));
	assert_path(end, "cgroups/1/path", "cg/a.slice");
	assert_number(end, "cgroups/1/high", 800000);
	assert_number(end, "cgroups/1/high-room", 0);
	assert_null(fact(end, "cgroups/1/room"));
}

/* In both lists of controllers, and where the memory controller is in version 1. */
static void test_version_1(void **state)
{
	struct end *end = *state;

	put_mounts(end, "1 1 0:1 / /x rw - cgroup cgroup rw,cpu\n"
			"36 35 0:27 / %s/memory rw - cgroup cgroup rw,blkio,memory\n");
	put(end, "proc/self/cgroup", "2:cpu:/c\n4:blkio,memory:/a/b\n0::/d\n");
	put(end, "memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
	put(end, "memory/a/b/memory.usage_in_bytes", "5\n");
	put(end, "memory/a/memory.limit_in_bytes", "1000000\n");
	put(end, "memory/a/memory.usage_in_bytes", "600000\n");
	put(end, "memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 50000\n");
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 1);
	assert_path(end, "cgroups/0/path", "memory/a");
	assert_number(end, "cgroups/0/room", 550000);
	assert_null(fact(end, "cgroups/0/swap"));
	/* Memory and swap together: 300000 of swap are used. */
	put(end, "memory/a/memory.memsw.limit_in_bytes", "1500000\n");
	put(end, "memory/a/memory.memsw.usage_in_bytes", "900000\n");
	look(end, true, NULL);
	assert_number(end, "cgroups/0/room", 550000);
	assert_number(end, "cgroups/0/swap", 200000);
	put(end, "memory/a/memory.memsw.limit_in_bytes", "1000000\n");
	look(end, true, NULL);
	assert_number(end, "cgroups/0/room", 250000);
	assert_number(end, "cgroups/0/swap", 0);
}

/* A container that sees its path at the host, one that does not, and a process outside of its namespace. */
static void test_containers(void **state)
{
	struct end *end = *state;

	put(end, "cg/memory.max", "1000000\n");
	put(end, "cg/memory.current", "1000000\n");
	put_mounts(end, "36 35 0:27 /docker/x %s/cg rw - cgroup2 cgroup2 rw\n");
	put(end, "proc/self/cgroup", "0::/docker/x\n");
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 1);
	assert_path(end, "cgroups/0/path", "cg");
	assert_number(end, "cgroups/0/room", 0);
	put(end, "cgyz/memory.max", "1\n");
	put(end, "cgyz/memory.current", "1\n");
	put(end, "proc/self/cgroup", "0::/docker/xyz\n");
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 0);
	put_mounts(end, V2);
	put(end, "proc/self/cgroup", "0::/\n");
	look(end, true, NULL);
	assert_path(end, "cgroups/0/path", "cg");
	put(end, "proc/self/cgroup", "0::/../other\n");
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 0);
}

/* What makes no sense is no limit. */
static void test_odd_files(void **state)
{
	static const char *const odd[] = { "", "\n", "x\n", "-1\n" };
	struct end *end = *state;

	put_mounts(end, V2);
	put(end, "proc/self/cgroup", "nonsense\n7\n0::/a\n");
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		put(end, "cg/a/memory.max", odd[i]);
		put(end, "cg/a/memory.current", "1\n");
		look(end, true, NULL);
		assert_int_equal(json_array_size(fact(end, "cgroups")), 0);
		put(end, "cg/a/memory.max", "1\n");
		put(end, "cg/a/memory.current", odd[i]);
		look(end, true, NULL);
		assert_int_equal(json_array_size(fact(end, "cgroups")), 0);
	}
}

/* Memory of QEMU's own is charged to QEMU's cgroups, files to the receiver's. */
static void test_private_ram(void **state)
{
	struct end *end = *state;

	put_mounts(end, V2);
	put(end, "proc/self/cgroup", "0::/receiver\n");
	put(end, "proc/4711/cgroup", "0::/qemu\n");
	put(end, "cg/receiver/memory.max", "1000\n");
	put(end, "cg/receiver/memory.current", "1\n");
	put(end, "cg/qemu/memory.max", "2000\n");
	put(end, "cg/qemu/memory.current", "500\n");
	look(end, true, NULL);
	assert_path(end, "cgroups/0/path", "cg/receiver");
	assert_null(fact(end, "qemu-cgroups"));
	add_private(end, "ram0", -1, 16 * PAGE_BYTES);
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 1);
	assert_path(end, "cgroups/0/path", "cg/receiver");
	assert_int_equal(json_array_size(fact(end, "qemu-cgroups")), 1);
	assert_path(end, "qemu-cgroups/0/path", "cg/qemu");
	assert_number(end, "qemu-cgroups/0/room", 1500);
}

/* Deeper than on any real host. */
static void test_many_levels(void **state)
{
	struct end *end = *state;
	char path[256] = "cg", name[512];

	put_mounts(end, V2);
	for (unsigned int i = 0; i < 40; i++) {
		strcat(path, "/d");
		snprintf(name, sizeof(name), "%s/memory.max", path);
		put(end, name, "5\n");
		snprintf(name, sizeof(name), "%s/memory.current", path);
		put(end, name, "1\n");
	}
	snprintf(name, sizeof(name), "0::%s\n", path + strlen("cg"));
	put(end, "proc/self/cgroup", name);
	look(end, true, NULL);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 32);
	assert_number(end, "cgroups/31/room", 4);
}

int main(void)
{
#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_version_2), TEST(test_version_1), TEST(test_containers), TEST(test_odd_files), TEST(test_many_levels),
		TEST(test_private_ram),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
