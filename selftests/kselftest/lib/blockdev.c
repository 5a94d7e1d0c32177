// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "blockdev.h"
#include "host.h"

#define QUIET		" >/dev/null 2>&1"
#define SOON_MS		5000

#define BRD		"modprobe brd rd_nr=1 rd_size=16384" QUIET
#define DM(name, table)	BRD " && modprobe dm-mod" QUIET " && dmsetup --noudevsync --noudevrules create " name \
			" --table '" table "'" QUIET
#define DM_DROP(name)	"dmsetup --noudevsync remove --retry " name QUIET
#define KEY		"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5aa5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"
#define DM_SHOWN	"/sys/block/dm-*"

#define SCSI		"modprobe sd_mod" QUIET "; modprobe scsi_debug dev_size_mb=8 delay=0" QUIET
/* The disk of the driver's only host. */
#define SCSI_SHOWN	"/sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/sd*"

const struct blockdev blockdevs[] = {
	[DEV_NULL_BLK] = { "null_blk", "modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=512" QUIET,
			   "modprobe -r null_blk" QUIET, "/sys/block/nullb0", NULL },
	[DEV_SCSI_DEBUG] = { "scsi_debug", SCSI, "modprobe -r scsi_debug" QUIET, SCSI_SHOWN, NULL },
	[DEV_BRD] = { "brd", BRD, "modprobe -r brd" QUIET, "/sys/block/ram0", NULL },
	[DEV_DM_LINEAR] = { "dm-linear", DM("kst-linear", "0 32768 linear /dev/ram0 0"),
			    DM_DROP("kst-linear"), DM_SHOWN, "kst-linear" },
	[DEV_DM_CRYPT] = { "dm-crypt", DM("kst-crypt", "0 32768 crypt aes-xts-plain64 " KEY " 0 /dev/ram0 0"),
			   DM_DROP("kst-crypt"), DM_SHOWN, "kst-crypt" },
	[DEV_ZRAM] = { "zram", "modprobe zram num_devices=1" QUIET, "modprobe -r zram" QUIET, "/sys/block/zram0", NULL },
};

static bool is_mapped(const char *shown, const char *name)
{
	char path[256], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/dm/name", shown);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	require(read(fd, text, sizeof(text) - 1) > 0, path);
	close(fd);
	text[strcspn(text, "\n")] = '\0';
	return !strcmp(text, name);
}

/* devtmpfs has its node by the name that sysfs has, mapped devices too. */
static bool find(const struct blockdev *dev, char *node)
{
	bool found = false;
	glob_t all;
	size_t i;

	if (glob(dev->shown, 0, NULL, &all))
		return false;
	for (i = 0; i < all.gl_pathc && !found; i++) {
		found = !dev->mapped || is_mapped(all.gl_pathv[i], dev->mapped);
		snprintf(node, BLOCKDEV_NODE, "/dev/%s", strrchr(all.gl_pathv[i], '/') + 1);
	}
	globfree(&all);
	return found;
}

/* Under emulation modprobe and dmsetup take longer than most tests. */
int blockdev_make(const struct blockdev *dev, char *node)
{
	uint64_t end = now_ms() + SOON_MS;

	if (find(dev, node))
		return 0;
	if (system(dev->make))
		return -ENODEV;
	/* A disk appears a little later than its driver. */
	while (!find(dev, node) || access(node, F_OK)) {
		if (now_ms() > end)
			return -ENODEV;
		sleep_ms(5);
	}
	return 0;
}

static void fill(int fd)
{
	uint64_t *words = mmap(NULL, BLOCKDEV_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), i;

	require(words != MAP_FAILED, "mmap");
	for (i = 0; i < BLOCKDEV_BYTES / sizeof(*words); i++)
		words[i] = i + 1;
	require(pwrite(fd, words, BLOCKDEV_BYTES, 0) == (ssize_t)BLOCKDEV_BYTES, "write to a block device");
	munmap(words, BLOCKDEV_BYTES);
}

int blockdev_open(const struct blockdev *dev)
{
	char node[BLOCKDEV_NODE];
	int r = blockdev_make(dev, node), fd;

	if (r)
		return r;
	fd = open(node, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fill(fd);
	return fd;
}

/* Of what it has nothing in btrfs reads nothing, so the device may keep there what it has. */
static void write_image(int to)
{
	static const char zeros[65536];
	static char part[65536] __attribute__((aligned(4096)));
	char self[4096] = "", path[8192];
	int from;
	off_t at;

	require(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "/proc/self/exe");
	snprintf(path, sizeof(path), "%s/" BTRFS_IMAGE, dirname(self));
	from = open(path, O_RDONLY | O_CLOEXEC);
	require(from >= 0, path);
	for (at = 0; pread(from, part, sizeof(part), at) == sizeof(part); at += sizeof(part))
		if (memcmp(part, zeros, sizeof(part)))
			require(pwrite(to, part, sizeof(part), at) == sizeof(part), "write to a block device");
	require(at > 0 && pread(from, part, 1, at) == 0, path);
	close(from);
}

int blockdev_open_btrfs(const struct blockdev *dev)
{
	char node[BLOCKDEV_NODE];
	int r = blockdev_make(dev, node), fs, top, fd;

	if (r)
		return r;
	fd = open(node, O_WRONLY | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	write_image(fd);
	close(fd);
	if (system("modprobe btrfs" QUIET))
		return -ENOSYS;
	fs = fsopen("btrfs", FSOPEN_CLOEXEC);
	require(fs >= 0 && !fsconfig(fs, FSCONFIG_SET_STRING, "source", node, 0) &&
		!fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0), "btrfs");
	top = fsmount(fs, FSMOUNT_CLOEXEC, 0);
	require(top >= 0, "fsmount");
	fd = openat(top, "disk", O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	require(fd >= 0, "a file on btrfs");
	close(top);
	close(fs);
	fill(fd);
	return fd;
}

/* Mapped devices lie on others, which come before them. Another process (udev) may have a new disk open. */
static bool drop(const struct blockdev *dev)
{
	uint64_t end = now_ms() + SOON_MS;
	char node[BLOCKDEV_NODE];

	while (find(dev, node) && system(dev->drop)) {
		if (now_ms() > end)
			return false;
		sleep_ms(100);
	}
	return true;
}

unsigned int blockdevs_there(void)
{
	unsigned int i, there = 0;
	char node[BLOCKDEV_NODE];

	for (i = 0; i < ARRAY_LEN(blockdevs); i++)
		there |= (unsigned int)find(&blockdevs[i], node) << i;
	return there;
}

bool blockdevs_drop_but(unsigned int these)
{
	bool gone = true;
	unsigned int i;

	for (i = ARRAY_LEN(blockdevs); i--; )
		gone = (these >> i & 1 || drop(&blockdevs[i])) && gone;
	return gone;
}
