/* SPDX-License-Identifier: GPL-2.0-only */
/* The ioctls of /dev/godwit, with messages instead of errnos. <linux/godwit.h> is the contract. */
#ifndef GODWIT_DEVICE_H
#define GODWIT_DEVICE_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The session's descriptor, or -errno with GW_NO_MODULE: closing it ends the session. */
int device_open(struct err *e);
/* The same for a migration, which can do without: the error says how. */
int device_open_or_pause(struct err *e);
/* GW_BUSY, GW_DIRTY_RING, GW_VM_GONE. */
int device_attach(int dev, int vm_fd, struct err *e);
/* Adds a RAM file; *map becomes its dirty bitmap, for munmap() with *map_bytes. */
int device_add_ram(int dev, int ram_fd, uint64_t pages, uint64_t **map, uint64_t *map_bytes,
		   struct err *e);
/*
 * The same for private memory of the VMM: pages from the address hva on. After device_attach().
 * Errors: GW_RAM_PRIVATE: it cannot be watched; GW_NO_MODULE: this module watches none.
 */
int device_add_private(int dev, uint64_t hva, uint64_t pages, uint64_t **map, uint64_t *map_bytes,
		       struct err *e);
int device_start(int dev, struct err *e);
int device_harvest(int dev, struct godwit_harvest *h, struct err *e);
int device_clear(int dev, unsigned int ram, uint64_t first, uint64_t count, struct err *e);
/* hugetlbfs and private RAM only. 1: *run_first and *run_count; 0: there is none; or -errno. */
int device_next_data(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		     uint64_t *run_count, struct err *e);
/* The same for pages that are pinned, on any file system. */
int device_next_pinned(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		       uint64_t *run_count, struct err *e);
/* How many processes map the RAM, or -errno; the first room of them are in pids. */
int device_mappers(int dev, uint32_t *pids, unsigned int room, struct err *e);

/*
 * Page faults of other processes, at the destination of a post-copy. The session has no VM. Closing
 * it without device_keep_end() lets the faults wait for another helper.
 */

/*
 * Names what the module keeps for this session; take: what another session has left. How many
 * userfaultfds that is, or -errno: GW_NO_MODULE: this module has no post-copy; GW_BUSY;
 * GW_NO_MIGRATION: there is nothing to take.
 */
int device_keep(int dev, const uint8_t token[GODWIT_TOKEN_BYTES], bool take, struct err *e);
/* /dev/userfaultfd, or -errno: GW_NO_MODULE: this host has none, or we are not root. */
int device_open_userfaultfd(struct err *e);
/*
 * The userfaultfd of the process whose /proc/PID/mem is open as mem_fd for reading and writing.
 * *kept: it is not new; the helper before may have registered mappings, and read faults: wake all.
 * -errno: GW_VM_GONE: the process has exited; GW_BUSY; GW_VM_STATE: too many processes.
 */
int device_uffd(int dev, int mem_fd, int userfaultfd_dev, bool *kept, struct err *e);
/* All pages are there. */
int device_keep_end(int dev, struct err *e);

#endif
