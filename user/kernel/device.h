/* SPDX-License-Identifier: GPL-2.0-only */
/* /dev/godwit, with messages instead of errnos. The contract is in <linux/godwit.h>. */
#ifndef GODWIT_DEVICE_H
#define GODWIT_DEVICE_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

/* The session's descriptor, or -errno with GW_NO_MODULE: closing it ends the session. */
int device_open(struct err *e);
/* GW_BUSY, GW_DIRTY_RING, GW_VM_GONE. */
int device_attach(int dev, int vm_fd, struct err *e);
/* Adds a RAM file; *map is its dirty bitmap, *map_bytes for munmap(). */
int device_add_ram(int dev, int ram_fd, uint64_t pages, uint64_t **map, uint64_t *map_bytes, struct err *e);
int device_start(int dev, struct err *e);
int device_harvest(int dev, struct godwit_harvest *h, struct err *e);
int device_clear(int dev, unsigned int ram, uint64_t first, uint64_t count, struct err *e);
/* hugetlbfs only: 1 and the run, 0: none, -errno. */
int device_next_data(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		     uint64_t *run_count, struct err *e);
/* The same for pages that are pinned, on any file system. */
int device_next_pinned(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		       uint64_t *run_count, struct err *e);
/* How many processes map the RAM, of which the first room are in pids; or -errno. */
int device_mappers(int dev, uint32_t *pids, unsigned int room, struct err *e);

#endif
