/* SPDX-License-Identifier: GPL-2.0-only */
/* A watch, for the two files that know what is in it: watch.c and unmap.c. */
#ifndef GODWIT_WATCH_H
#define GODWIT_WATCH_H

#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct godwit_session;

/**
 * struct godwit_watch - our notifier on one mm
 * @in_flight: invalidations that began and have not ended
 * @began: how many ever began, and one
 * @start: lowest address of those in flight, widened only, until none is left
 * @end: highest address
 * @released: the mm exits: ends of those that are under way may not come
 */
struct godwit_watch {
	struct mmu_notifier mn;
	struct list_head node;
	struct godwit_session *s;
	struct mm_struct *mm;
	spinlock_t lock;	/* protects what follows; taken in notifier callbacks */
	struct list_head spans;
	unsigned int in_flight;
	u64 began;
	unsigned long start;
	unsigned long end;
	bool released;
};

/* unmap.c */
extern const struct mmu_notifier_ops godwit_unmap_ops;

#endif /* GODWIT_WATCH_H */
