// SPDX-License-Identifier: GPL-2.0-only
/* The facts of a host: from a tree like /proc and /sys, from RAM files, and from a scripted QEMU. */
#include <linux/memfd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "fit/mounts.h"
#include "host_rig.h"
#include "page/page.h"

#define PAGES		2048u
#define THP_BYTES	(2u << 20)

static void test_mounts(void **state)
{
	char line[] = "36 35 0:27 /a\\040b /dev/my\\040shm rw,nosuid shared:1 master:2 - tmpfs none rw,size=8k,min_size=4k\n";
	static const char *const odd[] = {
		"", "\n", " - ", "1 2 3", "36 35 0:27 / /dev/shm rw - tmpfs\n", "36 35 0:27 / /dev/shm rw - tmpfs none\n",
		"36 35 x / /dev/shm rw - tmpfs none rw\n", "36 35 0:27 / rw - tmpfs none rw\n",
	};
	struct mount m;

	(void)state;
	assert_int_equal(mounts_parse(line, &m), 0);
	assert_int_equal(m.dev, makedev(0, 27));
	assert_string_equal(m.root, "/a b");
	assert_string_equal(m.point, "/dev/my shm");
	assert_string_equal(m.type, "tmpfs");
	assert_true(mounts_option(m.options, "size"));
	assert_true(mounts_option(m.options, "min_size"));
	assert_false(mounts_option(m.options, "siz"));
	assert_false(mounts_option(m.options, "8k"));
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		char copy[128];

		strcpy(copy, odd[i]);
		assert_int_equal(mounts_parse(copy, &m), -EPROTO);
	}
}

/* A host that hides all, and a QEMU that knows no command: only the RAM files are left. */
static void test_nothing_known(void **state)
{
	struct end *end = *state;

	add_block(end, "ram0", memfd_create("ram", 0), PAGES * PAGE_BYTES);
	look(end, true, NULL);
	assert_number(end, "ram/ram0/bytes", PAGES * PAGE_BYTES);
	assert_number(end, "ram/ram0/allocated", 0);
	assert_int_equal(json_object_size(fact(end, "fs")), 1);
	assert_int_equal(json_object_size(fact(end, "memory")), 0);
	assert_int_equal(json_array_size(fact(end, "cgroups")), 0);
	assert_int_equal(json_object_size(fact(end, "backends")), 0);
	assert_null(fact(end, "kvm"));
	assert_null(fact(end, "nested"));
	assert_null(fact(end, "tsc-set"));
	assert_null(fact(end, "tsc-hz"));
	assert_null(fact(end, "tsc-scaling"));
}

/* A QEMU that has gone is an error. */
static void test_qemu_ends(void **state)
{
	struct end *end = *state;
	struct peer peer;
	struct qmp *q;

	assert_int_equal(peer_start(&peer, peer_negotiate, NULL, 4), 0);
	assert_int_equal(qmp_open(peer.path, 2000, &q, &end->e), 0);
	end->view = json_object();
	for (int destination = 0; destination < 2; destination++) {
		end->e = (struct err) { 0 };
		assert_true(host_view(end->view, q, &end->vm, "/nowhere", "/nowhere", destination, &end->e) < 0);
		assert_int_equal(end->e.exit, GW_VM_GONE);
	}
	peer_qemu_end(&peer, q);
}

/* What a source says: no more than the destination can compare with. */
static void test_source(void **state)
{
	static const struct peer_answer answers[] = {
		{ "query-kvm", "", "{\"enabled\": true, \"present\": true}" },
		{ NULL, NULL, NULL },
	};
	struct end *end = *state;
	int fd = memfd_create("ram", 0);

	put(end, "proc/4711/cmdline", "qemu");
	put(end, "proc/meminfo", "MemAvailable: 4 kB\n");
	put(end, "proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
	put(end, "proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
	add_block(end, "ram0", fd, PAGES * PAGE_BYTES);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	/* A file that is longer than its block does not hold more than that. */
	add_block(end, "ram1", memfd_create("ram", 0), PAGES * PAGE_BYTES);
	assert_int_equal(fallocate(end->vm.blocks[1].fd, 0, 0, PAGES * PAGE_BYTES), 0);
	end->vm.blocks[1].pages = 1;
	look(end, false, answers);
	assert_bool(end, "kvm", true);
	assert_bool(end, "tsc-set", false);
	assert_in_range(json_integer_value(fact(end, "ram/ram0/allocated")), 1, PAGES * PAGE_BYTES - 1);
	assert_number(end, "ram/ram1/allocated", PAGE_BYTES);
	assert_null(fact(end, "ram/ram0/fs"));
	assert_null(fact(end, "fs"));
	assert_null(fact(end, "memory"));
	assert_null(fact(end, "backends"));
	assert_number(end, "tcp-wmem", 4194304);
	assert_null(fact(end, "tcp-rmem"));
}

/* The line of mountinfo of the file system that this file is on. */
static void put_mount(struct end *end, const char *process, int fd, const char *root, const char *point, const char *options)
{
	char name[64], text[512];
	struct stat st;

	assert_return_code(fstat(fd, &st), errno);
	snprintf(name, sizeof(name), "proc/%s/mountinfo", process);
	snprintf(text, sizeof(text), "1 1 99:1 / /other rw - tmpfs none rw\nno mount\n36 35 %u:%u /sub /bind rw - tmpfs none rw\n"
		 "37 35 %u:%u %s %s rw - tmpfs none %s\n", major(st.st_dev), minor(st.st_dev), major(st.st_dev), minor(st.st_dev),
		 root, point, options);
	put(end, name, text);
}

static void test_tmpfs(void **state)
{
	struct end *end = *state;
	char path[512], fs[64];
	struct stat st;
	int fd = open(fake_path(&end->tree, "ram", path), O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	add_block(end, "ram0", fd, PAGES * PAGE_BYTES);
	put_mount(end, "self", fd, "/", "/mnt/a\\040b", "rw,size=1024k");
	put(end, "proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    2048 kB\nSwapFree: 3 kB\n");
	put(end, "proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
	put(end, "proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
	look(end, true, NULL);
	assert_null(fact(end, "tcp-wmem"));
	assert_number(end, "tcp-rmem", 6291456);
	assert_return_code(fstat(fd, &st), errno);
	snprintf(fs, sizeof(fs), "%u:%u", major(st.st_dev), minor(st.st_dev));
	assert_text(end, "ram/ram0/fs", fs);
	snprintf(fs, sizeof(fs), "fs/%u:%u/type", major(st.st_dev), minor(st.st_dev));
	assert_text(end, fs, "tmpfs");
	snprintf(fs, sizeof(fs), "fs/%u:%u/mount", major(st.st_dev), minor(st.st_dev));
	assert_text(end, fs, "/mnt/a b");
	assert_number(end, "memory/available", 2048 * 1024);
	assert_number(end, "memory/swap", 3 * 1024);
	assert_null(fact(end, "ram/ram0/reserved"));
	assert_null(fact(end, "pool"));
	/* Only the VMM sees it, and only a part of it. */
	put(end, "proc/self/mountinfo", "");
	put_mount(end, "4711", fd, "/part", "/elsewhere", "rw");
	look(end, true, NULL);
	assert_text(end, fs, "/bind");
}

/* It is in no file system, unless it is on hugetlbfs; the process has what it has written. */
static void test_private(void **state)
{
	struct end *end = *state;
	int fd = memfd_create("ram", 0);

	add_private(end, "ram0", -1, PAGES * PAGE_BYTES);
	memset((char *)(uintptr_t)end->vm.blocks[0].hva + PAGE_BYTES, 1, PAGE_BYTES);
	assert_return_code(ftruncate(fd, PAGES * PAGE_BYTES), errno);
	assert_int_equal(pwrite(fd, "x", 1, 0), 1);
	add_private(end, "ram1", fd, PAGES * PAGE_BYTES);
	*((char *)(uintptr_t)end->vm.blocks[1].hva + 5 * PAGE_BYTES) = 1;
	for (int destination = 0; destination < 2; destination++) {
		look(end, destination, NULL);
		assert_bool(end, "ram/ram0/private", true);
		assert_bool(end, "ram/ram1/private", true);
		assert_number(end, "ram/ram0/bytes", PAGES * PAGE_BYTES);
		assert_in_range(json_integer_value(fact(end, "ram/ram0/allocated")), PAGE_BYTES, PAGES * PAGE_BYTES - 1);
		assert_number(end, "ram/ram1/allocated", 2 * PAGE_BYTES);
	}
	assert_text(end, "ram/ram0/fs", "memory");
	assert_text(end, "ram/ram1/fs", "memory");
	assert_int_equal(json_object_size(fact(end, "fs")), 1);
	assert_text(end, "fs/memory/type", "memory");
	assert_null(fact(end, "ram/ram0/reserved"));
}

static void test_huge_pages(void **state)
{
	static const struct peer_answer unreserved[] = {
		{ "qom-get", "\"/objects/ram0\"", "false" }, { "qom-get", "\"/objects/ram1\"", "true" }, { NULL, NULL, NULL },
	};
	static const char dir[] = "sys/kernel/mm/hugepages/hugepages-2048kB";
	struct end *end = *state;
	char name[256];
	int fd = memfd_create("ram", MFD_HUGETLB | MFD_HUGE_2MB);

	if (fd < 0)
		skip();
	add_block(end, "ram0", fd, 2 * THP_BYTES);
	add_block(end, "ram1", memfd_create("ram", MFD_HUGETLB | MFD_HUGE_2MB), THP_BYTES);
	snprintf(name, sizeof(name), "%s/free_hugepages", dir);
	put(end, name, "10\n");
	look(end, true, unreserved);
	assert_null(fact(end, "pool/2097152"));
	snprintf(name, sizeof(name), "%s/resv_hugepages", dir);
	put(end, name, "3\n");
	look(end, true, unreserved);
	assert_number(end, "pool/2097152", 7 * THP_BYTES);
	assert_null(fact(end, "ram/ram0/reserved"));
	assert_number(end, "ram/ram1/reserved", THP_BYTES);
	snprintf(name, sizeof(name), "%s/nr_overcommit_hugepages", dir);
	put(end, name, "5\n");
	snprintf(name, sizeof(name), "%s/surplus_hugepages", dir);
	put(end, name, "4\n");
	/* A QEMU that does not say whether it reserves does. */
	look(end, true, NULL);
	assert_number(end, "pool/2097152", 8 * THP_BYTES);
	assert_number(end, "ram/ram0/reserved", 2 * THP_BYTES);
	/* A mount that has pages of its own among the reserved ones. */
	put_mount(end, "self", fd, "/", "/huge", "rw,min_size=2M");
	look(end, true, NULL);
	assert_null(fact(end, "pool/2097152"));
}

static void test_tsc_and_nesting(void **state)
{
	static const struct peer_answer answers[] = {
		{ "query-cpus-fast", "", "[{\"cpu-index\": 0, \"qom-path\": \"/machine/unattached/device[0]\"}, {\"qom-path\": \"/x\"}]" },
		{ "qom-get", "\"/machine/unattached/device[0]\"", "2400000000" },
		{ NULL, NULL, NULL },
	};
	struct end *end = *state;

	put(end, "proc/4711/cmdline", "-cpu");
	look(end, true, answers);
	assert_bool(end, "tsc-set", false);
	assert_number(end, "tsc-hz", 2400000000);
	assert_null(fact(end, "nested"));
	assert_null(fact(end, "tsc-scaling"));
	put(end, "proc/4711/cmdline", "host,tsc_freq=2G");
	look(end, true, answers);
	assert_bool(end, "tsc-set", true);
	put(end, "proc/4711/cmdline", "host,tsc-frequency=1");
	put(end, "sys/module/kvm_intel/parameters/nested", "N\n");
	put(end, "proc/cpuinfo", "processor : 0\nflags\t\t: fpu tsc_scale\nvmx flags\t: vnmi tsc_scalings\n\nprocessor : 1\nvmx flags : tsc_scaling\n");
	look(end, true, answers);
	assert_bool(end, "tsc-set", true);
	assert_bool(end, "nested/vmx", false);
	assert_null(fact(end, "nested/svm"));
	assert_bool(end, "tsc-scaling", false);
	put(end, "proc/cpuinfo", "flags\t\t: fpu\nvmx flags\t: vnmi tsc_scaling\n");
	look(end, true, answers);
	assert_bool(end, "tsc-scaling", true);
}

static void test_amd(void **state)
{
	struct end *end = *state;

	put(end, "sys/module/kvm_amd/parameters/nested", "1\n");
	put(end, "proc/cpuinfo", "flags : svm tsc_scale\n");
	look(end, true, NULL);
	assert_bool(end, "nested/svm", true);
	assert_bool(end, "tsc-scaling", true);
	put(end, "sys/module/kvm_amd/parameters/tsc_scaling", "0\n");
	look(end, true, NULL);
	assert_bool(end, "tsc-scaling", false);
	put(end, "sys/module/kvm_amd/parameters/nested", "perhaps\n");
	look(end, true, NULL);
	assert_null(fact(end, "nested"));
}

int main(void)
{
#define TEST(name)	cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_mounts), TEST(test_nothing_known), TEST(test_qemu_ends), TEST(test_source), TEST(test_tmpfs),
		TEST(test_huge_pages), TEST(test_tsc_and_nesting), TEST(test_private), TEST(test_amd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
