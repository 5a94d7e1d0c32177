// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "mapping": stores through user mappings of RAM, seen by the dirty bit that the CPU
 * sets in the page table entry.
 *
 * A sweep first looks which mappings the RAM has, and has those watched that are new. Then it walks
 * their page tables and takes the dirty bits. How mappings are found, and which lock keeps their
 * page tables and keeps rmap out of the entries until the TLBs are flushed (see flush.c), is the
 * finder's: of a RAM file shared.c, of private RAM private.c.
 *
 *	- The folio is marked dirty before its entry is cleaned: the entry may be the only place
 *	  that knows, and reclaim throws away what is marked dirty nowhere. A folio of private
 *	  memory may be in the swap cache, with an older copy on the device, or have been given to
 *	  MADV_FREE and written since.
 *	- No MMU notifier runs: KVM keeps its mappings, and the guest feels nothing.
 *
 * Others wait for that lock meanwhile: reclaim, faults of hugetlbfs, tasks that map or unmap
 * the file. So RAM is swept in slices. A slice is over, flush included, as soon as a task
 * queues for the lock, or the CPU is wanted, or after SLICE_NS; that is looked at after each
 * stride, a stretch of the RAM so short that all its mappings have no more than STRIDE_ENTRIES
 * entries (or one page table each).
 */
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "sweep.h"

#define SLICE_NS	(1000 * 1000)	/* worth many flushes */
#define STRIDE_ENTRIES	65536		/* read in 0.1 ms if all are clean */

static const struct finder *finder_of(const struct godwit_ram *ram)
{
	return ram->addr ? &godwit_private_finder : &godwit_shared_finder;
}

/* Takes the dirty bit of one entry, of whatever size, wherever it is; the page table lock is held.
 */
static bool take_dirty(struct godwit_walk *w, unsigned long *entry, struct page *page,
		       unsigned long addr, unsigned long bytes)
{
	struct sweep *sw = container_of(w, struct sweep, walk);
	struct folio *folio;

	if (!page)
		return true;
	folio = page_folio(page);
	if (sw->ram->addr && !folio->mapping)
		return true;	/* the huge zero page */
	if (!folio_test_dirty(folio) && godwit_row_on(GODWIT_SAFE_FOLIO))
		folio_mark_dirty(folio);
	sw->cleaned = true;
	if ((atomic_long_fetch_andnot(_PAGE_DIRTY_BITS, (atomic_long_t *)entry) &
	     _PAGE_DIRTY_BITS) &&
	    !sw->discard)
		finder_of(sw->ram)->report(sw, addr, bytes);
	return true;
}

/*
 * A mapping of a process that exits cannot be watched, and no thread stores through it any more. It
 * stays until the last aio of that process ends, and there may be more than NEWS_MAX of them: as
 * news they would make the look begin again, and again, until then.
 */
static void note_leaving(struct sweep *sw, const struct godwit_span *span)
{
	u64 end = span->pgoff + ((span->end - span->start) >> PAGE_SHIFT);

	sw->leaving_first = sw->leaving_end ? min(sw->leaving_first, span->pgoff) : span->pgoff;
	sw->leaving_end = max(sw->leaving_end, end);
}

/* A mapping that a finder has found: unless it is watched, it is news. */
void godwit_sweep_news(struct sweep *sw, struct mm_struct *mm, const struct godwit_span *span)
{
	struct news *news = &sw->news[sw->nr_news];

	if (godwit_watch_knows(sw->s, mm, span))
		return;
	if (!atomic_read(&mm->mm_users)) {
		note_leaving(sw, span);
		return;
	}
	if (sw->nr_news == NEWS_MAX) {
		sw->overflow = true;
		return;
	}
	mmgrab(mm);
	news->mm = mm;
	news->span = *span;
	sw->nr_news++;
}

/*
 * From the first bit that is taken until the flush. Held for reading only it lets rmap in: a test
 * wants to see that.
 */
void godwit_sweep_hold(struct sweep *sw, struct rw_semaphore *rmap)
{
	sw->rmap = rmap;
	sw->rmap_open = !godwit_row_on(GODWIT_SAFE_RMAP);
	if (sw->rmap_open)
		down_read(rmap);
	else
		down_write(rmap);
}

void godwit_sweep_release(struct sweep *sw)
{
	if (sw->rmap_open)
		up_read(sw->rmap);
	else
		up_write(sw->rmap);
	sw->rmap = NULL;
}

/* In pages of the RAM: whole native pages, at least a page table's worth. */
static u64 stride_of(const struct sweep *sw)
{
	unsigned int native = sw->ram->page_shift - PAGE_SHIFT;
	unsigned int mappings = sw->ram->addr ? 1 : max(sw->s->nr_spans, 1U);
	u64 entries = max(STRIDE_ENTRIES / mappings, 1U);

	return round_up(entries << native, max(PTRS_PER_PTE, 1UL << native));
}

static bool slice_is_over(const struct sweep *sw, u64 began_ns)
{
	return rwsem_is_contended(sw->rmap) || (sw->mm && mmap_lock_is_contended(sw->mm)) ||
	       need_resched() || ktime_get_ns() - began_ns > SLICE_NS;
}

/*
 * From page first on, as far as the finder's lock and a slice reach; returns the page where that
 * is.
 */
static u64 sweep_slice(struct sweep *sw, const struct finder *finder, u64 first, u64 stride)
{
	u64 end = finder->lock(sw, first), from = first, next, began_ns = ktime_get_ns();

	while (sw->rmap && first < end) {
		next = min(first + stride, end);
		finder->stride(sw, first, next);
		first = next;
		if (slice_is_over(sw, began_ns))
			break;
	}
	if (!sw->rmap)
		first = end;
	/* Under the lock: see flush.c. */
	if (sw->cleaned) {
		godwit_pause_before_flush();
		godwit_flush();
		if (finder->settle)
			finder->settle(sw, from, first);
	}
	sw->cleaned = false;
	finder->unlock(sw);
	return first;
}

static void sweep_ram(struct sweep *sw, const struct finder *finder)
{
	u64 first = 0, stride = stride_of(sw);

	while (first < sw->ram->npages) {
		first = sweep_slice(sw, finder, first, stride);
		cond_resched();
	}
}

/*
 * A mapping that appeared since the last sweep: from now on it is watched. What was written through
 * it, and unmapped, before that is not known, so all of it counts as written; and the caller
 * flushes, as CPUs may still store through what they have kept of it.
 *
 * The first that cannot be watched makes the sweep fail, so no other is tried: each may take long.
 * They are news to the next sweep again.
 */
static int welcome(struct sweep *sw)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < sw->nr_news; i++) {
		struct news *news = &sw->news[i];

		if (!r)
			r = godwit_watch_add(sw->s, news->mm, &news->span);
		mmdrop(news->mm);
		if (sw->discard)
			continue;
		sw->s->changes++;
		sw->changed +=
			godwit_ram_mark_changed(sw->ram, news->span.pgoff,
						(news->span.end - news->span.start) >> PAGE_SHIFT);
	}
	if (sw->leaving_end && !sw->discard) {
		sw->s->changes++;
		sw->changed += godwit_ram_mark_changed(sw->ram, sw->leaving_first,
						       sw->leaving_end - sw->leaving_first);
	}
	return r;
}

static int look_and_sweep(struct sweep *sw)
{
	const struct finder *finder = finder_of(sw->ram);
	int r, err;

	do {
		sw->nr_news = 0;
		sw->overflow = false;
		sw->leaving_end = 0;
		r = finder->look(sw);
		err = welcome(sw);
		r = r ?: err;
	} while (!r && sw->overflow);
	if (!r && godwit_row_on(GODWIT_ROW_MAPPING))
		sweep_ram(sw, finder);
	return r;
}

/**
 * godwit_mapping_sweep() - take the dirty bits of all mappings of all RAM
 * @discard: only clean them: what they say is of no interest
 * @pages: per row; MAPPING and CHANGE are added to
 *
 * Context: a job. Has flushed the TLBs of all CPUs when it returns, if any bit was taken. Return:
 * 0, -ENOMEM, -ENOSPC (more mappings than can be watched), -EAGAIN (processes that have newly
 * mapped RAM do not let go of their mmap_locks), -EOWNERDEAD (private RAM: the VMM exits), what
 * godwit_private_kind() says; all that was taken is marked in any case.
 */
int godwit_mapping_sweep(struct godwit_session *s, bool discard, u64 *pages)
{
	struct sweep *sw = kvzalloc(sizeof(*sw), GFP_KERNEL);
	unsigned int i;
	int r = 0;

	if (!sw)
		return -ENOMEM;
	sw->walk.mask = _PAGE_DIRTY_BITS;
	sw->walk.entry = take_dirty;
	sw->s = s;
	sw->discard = discard;
	godwit_watch_begin(s);
	for (i = 0; i < s->nr_rams && !r; i++) {
		sw->ram = s->rams[i];
		r = look_and_sweep(sw);
	}
	pages[GODWIT_ROW_MAPPING] += sw->pages;
	pages[GODWIT_ROW_CHANGE] += sw->changed;
	kvfree(sw);
	return r;
}
