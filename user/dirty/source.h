/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where dirty pages come from: one struct of functions. source_kmod() asks godwit.ko; source_none()
 * is for a VM that godwit stops before it reads the first page (--pause). The unit tests have a
 * source that plays a scripted history.
 *
 * The order that misses no write: clear first, then take the bit, then read the page, then send it.
 */
#ifndef GODWIT_SOURCE_H
#define GODWIT_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "page/page.h"
#include "vmm/vm.h"

struct dirty_source;
struct lease;

/**
 * struct dirty_ops - a kind of dirty source
 * @name: for messages
 * @start: begin to watch: from now on every page counts as dirty; fills in map[]
 * @harvest: set in map[] the bit of each page that was written since it was cleared
 * @clear: the caller is about to read those of these pages whose bit is set in map[]: report writes
 *	to them from now on
 * @next_data: the first run of allocated pages in [first, end): 1 and *run, 0 when there is none,
 *	or -errno. Without exact the run may be cut short, and may have holes, which read as zeros,
 *	between its first page and its last: so the cost depends on the pages examined, and not on
 *	what the file has
 * @mappers: the processes that map the RAM and can store to it, the VMM among them, as of the last
 *	harvest or start. Return: how many, or -errno; the first room of them are in pids[], 0 for a
 *	process that cannot be seen from our pid namespace. NULL: this source does not know
 * @next_pinned: as @next_data, the first run of pages that are pinned for DMA; NULL if @mappers is
 * @close: end watching; the VM is as before soon after. With hurry it is so before @close returns,
 *	so that QEMU's own migration may begin
 */
struct dirty_ops {
	const char *name;
	int (*start)(struct dirty_source *s, struct err *e);
	int (*harvest)(struct dirty_source *s, struct err *e);
	int (*clear)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count,
		     struct err *e);
	int (*next_data)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end,
			 bool exact, uint64_t *run_first, uint64_t *run_count, struct err *e);
	int (*mappers)(struct dirty_source *s, uint32_t *pids, unsigned int room, struct err *e);
	int (*next_pinned)(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end,
			   uint64_t *run_first, uint64_t *run_count, struct err *e);
	void (*close)(struct dirty_source *s, bool hurry);
};

/**
 * struct dirty_source - embedded in each implementation
 * @ops: its functions
 * @vm: the VM whose RAM it watches
 * @map: for each block, one bit a page; set by @harvest, cleared by the thread that takes the page
 * @beside: a process beside the VMM maps the RAM, as of source_check_mappers()
 * @changed: a harvest saw memslots or mappings change since source_check_mappers(), which a thread
 *	may call beside the last round
 * @unmapped: pages were unmapped since the start: some may have become holes after they were sent
 * @lease: a thread clears only under it (lease.h); NULL: this source clears no log, or there is no
 *	QEMU to ask if another migration reads it
 * @renew: asks for more of it; NULL: the caller of @clear does not
 * @renew_arg: for it
 */
struct dirty_source {
	const struct dirty_ops *ops;
	const struct vm *vm;
	uint64_t *map[WIRE_BLOCKS_MAX];
	atomic_bool beside;
	atomic_bool changed;
	bool unmapped;
	struct lease *lease;
	int (*renew)(void *arg, struct err *e);
	void *renew_arg;
};

/*
 * dev: the descriptor of a new session of godwit.ko, which source_kmod() takes over, also after an
 * error; -1: source_kmod() opens one.
 */
int source_kmod(const struct vm *vm, int dev, struct dirty_source **out, struct err *e);
int source_none(const struct vm *vm, struct dirty_source **out, struct err *e);

/*
 * Waits until godwit.ko has switched off the dirty logging of an earlier session of this VM, if
 * there was one. A migration of QEMU's that began before that would lose its dirty log, unnoticed.
 */
void source_kmod_hurry(int vm_fd);

/*
 * GW_PINNED, naming process and device: a device may write guest RAM unseen through a process
 * beside the VMM that maps the RAM. Call it after start, after a harvest that saw a change, and
 * once more with the guest stopped. root: "/proc", or a test's directory.
 */
int source_check_mappers(struct dirty_source *s, const char *root, struct err *e);

/*
 * The next run, from this page on, of pages that are dirty and allocated, or of a few dirty ones.
 * 1, 0 at the end, -errno. data: what next_data found last; zeros at the beginning of a walk.
 */
int source_next_dirty(struct dirty_source *s, unsigned int block, uint64_t from,
		      struct bitmap_runs *walk, struct run *data, struct run *out, struct err *e);
/*
 * How many pages are dirty and allocated. No more exact than next_data: holes between such pages
 * may be among them, and a few dirty pages by themselves count as allocated.
 */
int source_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);
/* How many pages are allocated. */
int source_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);

#endif
