/* SPDX-License-Identifier: GPL-2.0-only */
/* Block devices of the kernel's own test drivers. */
#ifndef KST_BLOCKDEV_H
#define KST_BLOCKDEV_H

#define BLOCKDEV_BYTES	(2UL << 20)	/* of them the tests read; the devices have 8 MiB or more */

/**
 * struct blockdev - a kind of block device
 * @make: shell command that makes one; prints its path
 * @drop: shell command
 */
struct blockdev {
	const char *name;
	const char *make;
	const char *drop;
};

enum { DEV_NULL_BLK, DEV_SCSI_DEBUG, DEV_BRD, DEV_DM_LINEAR, DEV_DM_CRYPT };
extern const struct blockdev blockdevs[];

/*
 * Fills BLOCKDEV_BYTES of it with words that count from 1. Returns a descriptor with O_DIRECT, or -errno: the host has
 * no such driver.
 */
int blockdev_open(const struct blockdev *dev);
void blockdev_close(const struct blockdev *dev, int fd);

#endif /* KST_BLOCKDEV_H */
