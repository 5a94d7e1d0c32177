// SPDX-License-Identifier: GPL-2.0-only
/* What writes guest RAM unseen is refused by name; what can be seen is let through. */
#include <fcntl.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_proc.h"
#include "qmp_peer.h"
#include "vmm/devices.h"
#include "vmm/vm.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define PLAIN	"pos:\t0\nflags:\t02\n"
#define DIRECT	"pos:\t0\nflags:\t040002\n"

static void test_device_names(void **state)
{
	static const char *const pin[] = {
		"/dev/vfio/12", "/dev/vfio/vfio", "/dev/vfio/devices/vfio0", "anon_inode:[vfio-device]", "/dev/vhost-vdpa-0",
		"/dev/infiniband/uverbs0", "/dev/iommu", "/var/lib/c/dev/vfio/3", "/dev/vfio/12 (deleted)", "/dev/vhost-scsi", "/dev/uio0",
		"/dev/dsa/wq0.0", "/dev/iax/wq1.0",
	};
	static const char *const fine[] = {
		"/dev/kvm", "anon_inode:kvm-vm", "anon_inode:[eventfd]", "socket:[12]", "/dev/vhost-net", "/dev/net/tun", "/dev/shm/x",
		"/dev/vhost-vsock", "anon_inode:[io_uring]", "/dev/nvme0n1", "pipe:[3]", "",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pin); i++)
		assert_non_null(device_that_writes(pin[i]));
	for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
		assert_null(device_that_writes(fine[i]));
	assert_string_equal(device_that_writes("/dev/vhost-vdpa-0")->what, "a vDPA device");
	assert_null(device_that_writes("/dev/vfio/12")->way_out);
	assert_non_null(strstr(device_that_writes("/dev/uio3")->way_out, "vfio-pci"));
	assert_non_null(device_that_writes("/dev/vhost-scsi")->way_out);
	assert_non_null(device_that_writes("/dev/dsa/wq0.0")->way_out);
	assert_non_null(device_that_writes("/dev/iax/wq1.0")->way_out);
}

static void test_file_systems(void **state)
{
	static const uint64_t seen[] = {
		EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC,
	};
	static const struct { uint64_t type; const char *name; } hidden[] = {
		{ 0x6969, "NFS" }, { 0xff534d42, "CIFS" }, { 0xfe534d42, "SMB" }, { 0xc36400, "CephFS" }, { 0x65735546, "FUSE" },
		{ 0x1021997, "9p" }, { 0x7461636f, "OCFS2" }, { 0x1161970, "GFS2" }, { 0x2fc12fc1, "ZFS" },
		{ 0x12345, "a file system that godwit does not know" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++)
		assert_null(fs_that_hides_reads(seen[i]));
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		assert_string_equal(fs_that_hides_reads(hidden[i].type), hidden[i].name);
}

/* 8:16 is a disk, 8:17 its partition. */
static void test_stable_pages(void **state)
{
	static const char *const dirs[] = {
		"dev", "dev/block", "dev/block/8:16", "dev/block/8:16/queue", "dev/block/8:16/integrity", "dev/block/8:16/sdb1",
	};
	static const char stable[] = "dev/block/8:16/queue/stable_writes", format[] = "dev/block/8:16/integrity/format";
	char path[512], link[512];
	struct fake_proc f;

	(void)state;
	fake_new(&f);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		assert_int_equal(mkdir(fake_path(&f, dirs[i], path), 0700), 0);
	assert_int_equal(symlink(path, fake_path(&f, "dev/block/8:17", link)), 0);
	assert_false(xfs_copies_reads(f.dir, makedev(8, 16), "7.2.13"));
	fake_write(&f, stable, "1\n");
	assert_true(xfs_copies_reads(f.dir, makedev(8, 16), "7.0.1-rc1"));
	assert_true(xfs_copies_reads(f.dir, makedev(8, 17), "10.1"));
	assert_false(xfs_copies_reads(f.dir, makedev(8, 17), "6.19.8+deb14"));
	assert_false(xfs_copies_reads(f.dir, makedev(8, 32), "7.2.13"));
	unlink(fake_path(&f, stable, path));
	fake_write(&f, stable, "0\n");
	fake_write(&f, format, "none\n");
	assert_false(xfs_copies_reads(f.dir, makedev(8, 16), "7.2.13"));
	unlink(fake_path(&f, format, path));
	fake_write(&f, format, "T10-DIF-TYPE1-CRC\n");
	assert_true(xfs_copies_reads(f.dir, makedev(8, 17), "7.2.13"));
	fake_remove(&f);
}

/* Two partitions: ext4's driver has the first one only. */
static void test_old_ext2(void **state)
{
	static const char *const dirs[] = { "dev", "dev/block", "fs", "fs/ext4", "fs/ext4/sdb1" };
	char path[512];
	struct fake_proc f;

	(void)state;
	fake_new(&f);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		assert_int_equal(mkdir(fake_path(&f, dirs[i], path), 0700), 0);
	assert_int_equal(symlink("../../devices/pci0/block/sdb/sdb1", fake_path(&f, "dev/block/8:17", path)), 0);
	assert_int_equal(symlink("../../devices/pci0/block/sdb/sdb2", fake_path(&f, "dev/block/8:18", path)), 0);
	assert_false(ext2_zeroes_holes(f.dir, makedev(8, 17), "6.1.0-56-amd64"));
	assert_true(ext2_zeroes_holes(f.dir, makedev(8, 18), "6.1.0-56-amd64"));
	assert_true(ext2_zeroes_holes(f.dir, makedev(8, 18), "6.4.16"));
	assert_true(ext2_zeroes_holes(f.dir, makedev(8, 19), "6.4.16"));
	assert_false(ext2_zeroes_holes(f.dir, makedev(8, 18), "6.5.0-rc1"));
	assert_false(ext2_zeroes_holes(f.dir, makedev(8, 18), "6.12.95+deb12"));
	assert_false(ext2_zeroes_holes(f.dir, makedev(8, 18), "7.3.4"));
	fake_remove(&f);
}

static int check_files(const char *proc, struct err *e)
{
	int r = devices_check_pins(proc, e);

	if (!r)
		r = devices_check_tracer(proc, "QEMU", 0, e);
	return r ? r : devices_check_direct(proc, e);
}

static void expect_files(const struct fake_proc *f, int r, enum gw_exit exit, const char *part)
{
	struct err e = { 0 };
	int fds = open_fds();

	assert_int_equal(check_files(f->dir, &e), r);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(e.exit, exit);
	assert_non_null(strstr(e.text, part));
	fake_remove(f);
}

/* The test's own files: /proc/version is a regular file on a file system that we do not know. */
static void test_files(void **state)
{
	char path[512];
	struct fake_proc f;

	(void)state;
	fake_new(&f);
	fake_file(&f, "disk", 4096);
	fake_fd(&f, 0, "/dev/null", DIRECT);
	fake_fd(&f, 1, "pipe:[77]", DIRECT);
	fake_fd(&f, 2, "/proc/version", PLAIN);
	fake_fd(&f, 3, fake_path(&f, "disk", path), DIRECT);
	fake_fd(&f, 4, "anon_inode:[io_uring]", "flags:\t02\nUserBufs:\t0\n");
	fake_fd(&f, 5, "/gone", NULL);
	fake_fd(&f, 6, "/proc", DIRECT);
	expect_files(&f, 0, GW_OK, "");

	fake_new(&f);
	fake_fd(&f, 20, "/dev/vfio/12", PLAIN);
	expect_files(&f, -EBUSY, GW_PINNED, "a VFIO device (/dev/vfio/12)");

	fake_new(&f);
	fake_fd(&f, 0, "/dev/null", PLAIN);
	fake_fd(&f, 20, "/proc/version", DIRECT);
	expect_files(&f, -EBUSY, GW_PINNED, "direct I/O on a file system that godwit does not know (/proc/version)");

	fake_new(&f);
	fake_fd(&f, 7, "anon_inode:[io_uring]", "flags:\t02\nUserBufs:\t1\n");
	expect_files(&f, -EBUSY, GW_PINNED, "fixed buffers");

	fake_new(&f);
	fake_fd(&f, 9, "/dev/vhost-scsi", PLAIN);
	expect_files(&f, -EBUSY, GW_PINNED, "vhost-scsi (/dev/vhost-scsi) writes guest RAM unseen by godwit: unplug it first (device_del)");

	/* A debugger that has one thread of many. */
	fake_new(&f);
	fake_thread(&f, 2, 'S', 0);
	fake_thread(&f, 3, 't', 77);
	expect_files(&f, -EBUSY, GW_PINNED, "process 77 (?) traces QEMU, and may write guest RAM unseen by godwit: detach that process");

	fake_new(&f);
	fake_thread(&f, 2, 'S', 0);
	unlink(fake_path(&f, "task/2/status", path));
	fake_write(&f, "task/2/status", "Name:\tx\nTracerPid:\t-1\n");
	expect_files(&f, -EPROTO, GW_INTERNAL, "task/2/status");

	fake_new(&f);
	fake_fd(&f, 7, "/dev/null", "hello\n");
	expect_files(&f, -EPROTO, GW_INTERNAL, "fdinfo/7");

	fake_new(&f);
	rmdir(fake_path(&f, "fd", path));
	expect_files(&f, -ESRCH, GW_VM_GONE, "/fd");
}

static struct {
	const struct fake_proc *proc;
	const char *says;	/* of the ring, in the nap with that number; NULL: that the file was closed */
	unsigned int in, naps;
} busy;

void __wrap_nap_ms(unsigned int ms);
void __wrap_nap_ms(unsigned int ms)
{
	char path[512];

	assert_int_equal(ms, 1);
	if (++busy.naps != busy.in)
		return;
	if (busy.says)
		fake_write(busy.proc, "fdinfo/7", busy.says);
	else
		unlink(fake_path(busy.proc, "fdinfo/7", path));
}

static void expect_ring(const char *says, unsigned int in, int r, const char *part)
{
	struct fake_proc f;

	fake_new(&f);
	fake_fd(&f, 7, "anon_inode:[io_uring]", PLAIN);
	busy.proc = &f;
	busy.says = says;
	busy.in = in;
	busy.naps = 0;
	expect_files(&f, r, r ? GW_PINNED : GW_OK, part);
}

/* While something holds its lock Linux says nothing of a ring. */
static void test_busy_ring(void **state)
{
	(void)state;
	expect_ring("UserBufs:\t1\n", 3, -EBUSY, "an io_uring with fixed buffers");
	assert_int_equal(busy.naps, 3);
	expect_ring("UserBufs:\t0\n", 3, 0, "");
	assert_int_equal(busy.naps, 3);
	expect_ring(NULL, 3, 0, "");
	assert_int_equal(busy.naps, 3);
	expect_ring("", 1, -EBUSY, "an io_uring that is too busy to say whether it has fixed buffers (anon_inode:[io_uring])");
	assert_int_equal(busy.naps, 100);
}

static void test_own_files(void **state)
{
	struct err e = { 0 };
	int r = check_files("/proc/self", &e);

	(void)state;
	if (r)
		print_message("%s\n", e.text);
	assert_int_equal(r, 0);
}

static int check_balloon(const char *type, const char *named, const char *anon, const char *hint, struct err *e)
{
	char list[256];
	const struct peer_answer qemu[] = {
		{ "qom-list", "/machine/peripheral\"", named },
		{ "qom-list", "/machine/peripheral-anon\"", anon ? anon : list },
		{ "qom-get", "\"path\":\"/machine/peripheral-anon/device[1]\",\"property\":\"free-page-hint\"", hint },
		{ "qom-get", "\"path\":\"/machine/peripheral/balloon0\",\"property\":\"free-page-hint\"", hint },
		{ NULL, NULL, NULL },
	};
	struct qmp *q;
	struct peer p;
	int r;

	snprintf(list, sizeof(list), "[{\"name\": \"type\", \"type\": \"string\"}, {\"name\": \"device[1]\", \"type\": \"%s\"}]", type);
	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	r = vm_check_balloon(q, e);
	peer_qemu_end(&p, q);
	return r;
}

static void test_balloon(void **state)
{
	static const char named[] = "[{\"name\": \"balloon0\", \"type\": \"child<virtio-balloon-pci>\"}]";
	struct err e;

	(void)state;
	assert_int_equal(check_balloon("child<virtio-balloon-pci>", "[]", NULL, "true", &e), -EBUSY);
	assert_int_equal(e.exit, GW_PINNED);
	assert_non_null(strstr(e.text, "/machine/peripheral-anon/device[1] has free-page-hint=on"));
	assert_int_equal(check_balloon("child<virtio-balloon-device>", "[]", NULL, "true", &e), -EBUSY);
	assert_int_equal(check_balloon("child<virtio-balloon-pci>", "[]", NULL, "false", &e), 0);
	assert_int_equal(check_balloon("child<virtio-balloon-pci>", "[]", NULL, NULL, &e), 0);
	assert_int_equal(e.exit, GW_OK);
	assert_int_equal(check_balloon("child<virtio-net-pci>", "[]", NULL, "true", &e), 0);
	assert_int_equal(check_balloon("child<virtio-net-pci>", named, NULL, "true", &e), -EBUSY);
	assert_non_null(strstr(e.text, "/machine/peripheral/balloon0 has"));
	/* Shapes that QEMU does not send. */
	assert_int_equal(check_balloon("x", "{}", "[5, {}, {\"name\": 5, \"type\": 5}]", "true", &e), 0);
	assert_int_equal(check_balloon("x", NULL, "[]", "true", &e), -EREMOTEIO);
	assert_int_equal(e.exit, GW_QMP);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_device_names),
	cmocka_unit_test(test_file_systems),
	cmocka_unit_test(test_stable_pages),
	cmocka_unit_test(test_old_ext2),
	cmocka_unit_test(test_files),
	cmocka_unit_test(test_busy_ring),
	cmocka_unit_test(test_own_files),
	cmocka_unit_test(test_balloon),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
