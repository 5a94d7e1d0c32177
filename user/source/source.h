/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where dirty pages come from: one struct of functions. source_kmod() asks godwit.ko; source_none() is for a VM
 * that is stopped before the first page is read (--pause). The unit tests play a written history.
 *
 * The order that misses nothing: clear first, then take the bit, then read the page, then send it.
 */
#ifndef GODWIT_SOURCE_H
#define GODWIT_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "vmm/vm.h"

struct dirty_source;

/**
 * struct dirty_ops - a kind of dirty source
 * @start: begin to watch: from here on every page counts as written; fills in map[]
 * @harvest: OR what was written since it was cleared into map[]
 * @clear: of these pages, those whose bit is set in map[] are about to be read: tell of writes from now on
 * @next_data: the first run of allocated pages in [first, end): 1 and *run, 0 when there is none, or -errno. Not @exact:
 *	it may be cut short, and hold holes, which read as zeros, between its first page and its last: so it costs what is
 *	looked at, and not what the file has
 * @mappers: which processes map the RAM and can store to it, the VMM among them, as of the last harvest or start; 0 for one
 *	that cannot be seen: how many, of which the first room are in pids[], or -errno. NULL: nobody knows
 * @next_pinned: as @next_data, the first run of pages that are pinned for DMA; NULL with @mappers
 * @close: end watching; the VM is as before soon after. hurry: before it returns, so that QEMU's own migration may begin
 */
struct dirty_ops {
	const char *name;
	int (*start)(struct dirty_source *s, struct err *e);
	int (*harvest)(struct dirty_source *s, struct err *e);
	int (*clear)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count, struct err *e);
	int (*next_data)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, bool exact,
			 uint64_t *run_first, uint64_t *run_count, struct err *e);
	int (*mappers)(struct dirty_source *s, uint32_t *pids, unsigned int room, struct err *e);
	int (*next_pinned)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, uint64_t *run_first,
			   uint64_t *run_count, struct err *e);
	void (*close)(struct dirty_source *s, bool hurry);
};

/**
 * struct dirty_source - embedded in each implementation
 * @ops: its functions
 * @vm: whose RAM
 * @map: for each block, one bit a page; set by harvest, cleared by whoever takes a page over
 * @changed: memslots or mappings were seen to change since the mappers were looked at
 * @unmapped: pages were unmapped since the start: some may have become holes since they were sent
 */
struct dirty_source {
	const struct dirty_ops *ops;
	const struct vm *vm;
	uint64_t *map[WIRE_BLOCKS_MAX];
	bool changed;
	bool unmapped;
};

/* dev: a session of godwit.ko that is new, ours from here on, also after an error; -1: none yet. */
int source_kmod(const struct vm *vm, int dev, struct dirty_source **out, struct err *e);
int source_none(const struct vm *vm, struct dirty_source **out, struct err *e);

/*
 * Waits until godwit.ko has switched off what a session of this VM had on, if there was one. A migration of QEMU's that began before
 * would lose its dirty log to that, unnoticed.
 */
void source_kmod_hurry(int vm_fd);

/*
 * Refuses what writes guest RAM unseen by way of processes beside the VMM, which map it: GW_PINNED, naming process and device.
 * After start, after a harvest that saw a change, and once more at rest. root: "/proc", or what a test puts in its place.
 */
int source_check_mappers(struct dirty_source *s, const char *root, struct err *e);

/* SEEK_DATA and SEEK_HOLE, for files that have them; the same on the whole range for those that do not. */
int file_next_data(int fd, uint64_t first, uint64_t end, bool exact, uint64_t *run_first, uint64_t *run_count, struct err *e);

#endif
