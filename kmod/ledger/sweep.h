/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Row "mapping": the walk over page tables, the sweep that takes dirty bits, and two ways to find
 * mappings.
 */
#ifndef GODWIT_SWEEP_H
#define GODWIT_SWEEP_H

#include <linux/mm.h>
#include <linux/rwsem.h>

#include "internal.h"

/**
 * struct godwit_walk - over the page table entries of a part of a VMA
 * @mask: entries without any of these bits are passed over, a cache line of them with one test
 * @entry: called for each other entry, under its lock; false: ends the walk. page: NULL for what is
 * not present (swapped out, under migration); addr, bytes: what the entry maps, which may begin
 * before the part and end behind it. Special entries (the zero page) are passed over
 *
 * The caller keeps the VMA and its page tables.
 */
struct godwit_walk {
	struct vm_area_struct *vma;
	unsigned long mask;
	bool (*entry)(struct godwit_walk *w, unsigned long *entry, struct page *page,
		      unsigned long addr, unsigned long bytes);
};

/* walk.c. Addresses [addr, end) of the VMA. Returns whether all of them were gone through. */
bool godwit_walk(struct godwit_walk *w, unsigned long addr, unsigned long end);

#define NEWS_MAX	256

/* A mapping that is not watched yet, found where it is forbidden to allocate. */
struct news {
	struct mm_struct *mm;	/* by mmgrab */
	struct godwit_span span;
};

/**
 * struct sweep
 * @walk: walk.vma is where the finder walks
 * @cleaned: a CPU may hold a translation that it believes to be marked
 * @rmap: what keeps rmap out of the entries: held for writing from the first bit that is taken
 * until the flush
 * @rmap_open: for tests: held for reading only
 * @mm: whose mmap_lock the finder holds as well; may be NULL
 * @events: godwit_watch_events() when the finder took its lock
 * @changed: pages of mappings that came or went, which were counted as written
 * @overflow: more unknown mappings than NEWS_MAX: look again
 * @leaving_first: pages of the RAM that unknown mappings of processes show that exit, from here on
 * @leaving_end: and up to here; 0: none
 */
struct sweep {
	struct godwit_walk walk;
	struct godwit_session *s;
	struct godwit_ram *ram;
	bool discard;
	bool cleaned;
	struct rw_semaphore *rmap;
	bool rmap_open;
	struct mm_struct *mm;
	u64 events;
	u64 pages;
	u64 changed;
	struct news news[NEWS_MAX];
	unsigned int nr_news;
	bool overflow;
	u64 leaving_first;
	u64 leaving_end;
};

/**
 * struct finder - how the mappings of RAM are found, and what keeps rmap out of their entries
 * @look: godwit_sweep_news() for all of them; 0 or why they cannot be swept
 * @lock: from page first of the RAM on; returns the page where what is locked ends. Leaves
 * sweep->rmap NULL where no bit is to be taken
 * @stride: walks what shows pages [first, end)
 * @report: what an entry at addr, of walk.vma, stands for was written
 * @settle: after the flush of a slice in which bits were taken, still under the lock; may be NULL
 */
struct finder {
	int (*look)(struct sweep *sw);
	u64 (*lock)(struct sweep *sw, u64 first);
	void (*stride)(struct sweep *sw, u64 first, u64 end);
	void (*report)(struct sweep *sw, unsigned long addr, unsigned long bytes);
	void (*settle)(struct sweep *sw, u64 first, u64 end);
	void (*unlock)(struct sweep *sw);
};

/* shared.c: of a RAM file. private.c: of private RAM. */
extern const struct finder godwit_shared_finder, godwit_private_finder;

/* sweep.c, for finders */
void godwit_sweep_news(struct sweep *sw, struct mm_struct *mm, const struct godwit_span *span);
void godwit_sweep_hold(struct sweep *sw, struct rw_semaphore *rmap);
void godwit_sweep_release(struct sweep *sw);

#endif /* GODWIT_SWEEP_H */
