// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "blockdev.h"
#include "host.h"

#define QUIET		" >/dev/null 2>&1"
#define RETRY(command)	"for i in 1 2 3 4 5 6 7 8 9; do " command " && break; sleep 0.2; done"

#define BRD		"modprobe brd rd_nr=1 rd_size=8192" QUIET
#define BRD_DROP	"modprobe -r brd" QUIET

/* Without udev the node of a mapped device may not be there; devtmpfs has one by number. */
#define DM_CREATE	"dmsetup --noudevsync --noudevrules create kst --table "
#define DM_NODE		"echo /dev/dm-$(dmsetup info -c --noheadings -o minor kst)"
#define DM(table)	BRD " && modprobe dm-mod" QUIET " && " DM_CREATE "'" table "'" QUIET " && " DM_NODE
#define DM_DROP		"dmsetup --noudevsync remove --retry kst" QUIET "; " BRD_DROP
#define KEY		"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5aa5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"

#define NULL_BLK	"modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=512" QUIET
/* The disk of the driver's only host; it appears a little later. */
#define SCSI_DIR	"/sys/bus/pseudo/drivers/scsi_debug/adapter0/host*/target*/*/block/sd*"
#define SCSI_NODE	RETRY("ls -d " SCSI_DIR " 2>/dev/null | sed 's,.*/,/dev/,' | grep .")
#define SCSI		"modprobe sd_mod" QUIET "; modprobe scsi_debug dev_size_mb=8 delay=0" QUIET " && " SCSI_NODE

const struct blockdev blockdevs[] = {
	[DEV_NULL_BLK] = { "null_blk", NULL_BLK " && echo /dev/nullb0", "modprobe -r null_blk" QUIET },
	[DEV_SCSI_DEBUG] = { "scsi_debug", SCSI, RETRY("modprobe -r scsi_debug" QUIET) },
	[DEV_BRD] = { "brd", BRD " && echo /dev/ram0", BRD_DROP },
	[DEV_DM_LINEAR] = { "dm-linear", DM("0 16384 linear /dev/ram0 0"), DM_DROP },
	[DEV_DM_CRYPT] = { "dm-crypt", DM("0 16384 crypt aes-xts-plain64 " KEY " 0 /dev/ram0 0"), DM_DROP },
};

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
	char path[256] = "";
	FILE *p = popen(dev->make, "re");
	int fd;

	require(p, "popen");
	if (!fgets(path, sizeof(path), p) || pclose(p))
		return -ENODEV;
	path[strcspn(path, "\n")] = '\0';
	fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fill(fd);
	return fd;
}

void blockdev_close(const struct blockdev *dev, int fd)
{
	if (fd >= 0)
		close(fd);
	require(!system(dev->drop), dev->name);
}
