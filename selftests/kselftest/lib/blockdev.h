/* SPDX-License-Identifier: GPL-2.0-only */
/* Block devices of the kernel's own test drivers. */
#ifndef KST_BLOCKDEV_H
#define KST_BLOCKDEV_H

#include <stdbool.h>

#define BLOCKDEV_BYTES	(2UL << 20)	/* of them the tests read; the devices have 8 MiB or more */
#define BTRFS_IMAGE	"btrfs.img"	/* beside the programs: 16 MiB, which brd and what lies on it have */
#define BLOCKDEV_NODE	64

/**
 * struct blockdev - a kind of block device
 * @make: shell command that makes one
 * @drop: shell command
 * @shown: where sysfs shows it, a pattern
 * @mapped: its name, of a mapped device
 */
struct blockdev {
	const char *name;
	const char *make;
	const char *drop;
	const char *shown;
	const char *mapped;
};

enum { DEV_NULL_BLK, DEV_SCSI_DEBUG, DEV_BRD, DEV_DM_LINEAR, DEV_DM_CRYPT, DEV_ZRAM };
extern const struct blockdev blockdevs[];

/*
 * If none is there: a later test of the program uses it again. node: its path, BLOCKDEV_NODE bytes at most.
 * Returns 0, or -ENODEV: the host has no such driver.
 */
int blockdev_make(const struct blockdev *dev, char *node);
/* The same; fills BLOCKDEV_BYTES of it with words that count from 1. Returns a descriptor with O_DIRECT, or -errno. */
int blockdev_open(const struct blockdev *dev);
/*
 * The same with a file on btrfs on it. It is mounted nowhere, and goes with the descriptor. -ENOSYS: the kernel has no btrfs.
 */
int blockdev_open_btrfs(const struct blockdev *dev);
/* Which of them are there: a bit each. */
unsigned int blockdevs_there(void);
/* All others go. False: one stays. */
bool blockdevs_drop_but(unsigned int these);

#endif /* KST_BLOCKDEV_H */
