// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "unmap": page table entries that go away and take their dirty bit along.
 *
 * Reclaim, page migration, hole punching, munmap and exit all call the MMU notifiers of the mm
 * before and after. A watch is our notifier on one mm, with the spans of it that map RAM files
 * (watch.c):
 *
 *	   invalidate start            entry gone             invalidate end
 *	---------|-------------------------|-----------------------|----------->
 *	      in flight: a harvest counts the range           noted for good
 *
 * To note at the start only would lose a write between the start (collected by a harvest) and the
 * moment when the entry is gone; to note at the end only would lose it for the very last harvest.
 *
 * Changes of protection keep the dirty bit and are not counted: automatic NUMA balancing would
 * otherwise report the whole guest again and again.
 *
 * An mm that exits first calls release: no thread of it can store any more, and no invalidation is
 * reported from then on. So release counts all its spans, whose entries are dropped right after.
 * An invalidation by another task may be under way then (a hole that is punched), which began with
 * us and ends without us. All that was stored to the pages it takes was stored before release,
 * which has noted them, as its end would have: none is in flight any more.
 */
#include <linux/mm.h>
#include <linux/mmu_notifier.h>

#include "internal.h"
#include "ledger/watch.h"

static void note_range(struct godwit_watch *w, unsigned long start, unsigned long end)
{
	struct godwit_span *span;

	lockdep_assert_held(&w->lock);
	if (!godwit_row_on(GODWIT_ROW_UNMAP))
		return;
	list_for_each_entry(span, &w->spans, node) {
		unsigned long lo = max(start, span->start), hi = min(end, span->end);

		if (lo < hi)
			godwit_ledger_note(span->ram, GODWIT_ROW_UNMAP,
					   span->pgoff + ((lo - span->start) >> PAGE_SHIFT),
					   (PAGE_ALIGN(hi) - (lo & PAGE_MASK)) >> PAGE_SHIFT);
	}
}

/* Addresses that have lost their mapping, not just entries: see private.c. */
static void note_gone(struct godwit_watch *w, unsigned long start, unsigned long end)
{
	struct godwit_span *span;

	lockdep_assert_held(&w->lock);
	list_for_each_entry(span, &w->spans, node) {
		unsigned long lo = max(start, span->start), hi = min(end, span->end);

		if (!span->ram->addr || lo >= hi)
			continue;
		span->gone_start = span->gone_end ? min(span->gone_start, lo) : lo;
		span->gone_end = max(span->gone_end, hi);
	}
}

static bool keeps_dirty_bits(const struct mmu_notifier_range *range)
{
	return range->event == MMU_NOTIFY_PROTECTION_VMA || range->event == MMU_NOTIFY_SOFT_DIRTY;
}

static int unmap_start(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct godwit_watch *w = container_of(mn, struct godwit_watch, mn);

	if (keeps_dirty_bits(range))
		return 0;
	spin_lock(&w->lock);
	if (w->released) {
		spin_unlock(&w->lock);
		return 0;	/* no end may come */
	}
	w->began++;
	if (!w->in_flight++) {
		w->start = range->start;
		w->end = range->end;
	} else {
		w->start = min(w->start, range->start);
		w->end = max(w->end, range->end);
	}
	spin_unlock(&w->lock);
	return 0;
}

static void unmap_end(struct mmu_notifier *mn, const struct mmu_notifier_range *range)
{
	struct godwit_watch *w = container_of(mn, struct godwit_watch, mn);

	if (keeps_dirty_bits(range))
		return;
	spin_lock(&w->lock);
	note_range(w, range->start, range->end);
	if (range->event == MMU_NOTIFY_UNMAP)
		note_gone(w, range->start, range->end);
	/*
	 * Each end has had its start, as registration waits for those under way
	 * (mm_take_all_locks()); but release may have come in between, and then none is left.
	 */
	if (w->in_flight)
		w->in_flight--;
	spin_unlock(&w->lock);
}

static void unmap_release(struct mmu_notifier *mn, struct mm_struct *mm)
{
	struct godwit_watch *w = container_of(mn, struct godwit_watch, mn);

	spin_lock(&w->lock);
	note_range(w, 0, ULONG_MAX & PAGE_MASK);
	w->released = true;
	w->in_flight = 0;
	spin_unlock(&w->lock);
	if (mm == w->s->mm) {
		WRITE_ONCE(w->s->vm_gone, true);
		godwit_session_retire(w->s, 0);
	}
}

const struct mmu_notifier_ops godwit_unmap_ops = {
	.invalidate_range_start = unmap_start,
	.invalidate_range_end = unmap_end,
	.release = unmap_release,
};

/* Counts what is being invalidated right now; it is noted once more when it ends. */
void godwit_unmap_in_flight(struct godwit_session *s)
{
	struct godwit_watch *w;

	list_for_each_entry(w, &s->watches, node) {
		spin_lock(&w->lock);
		if (w->in_flight)
			note_range(w, w->start, w->end);
		spin_unlock(&w->lock);
	}
}
