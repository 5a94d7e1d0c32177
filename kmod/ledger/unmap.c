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
 * otherwise report the whole guest again and again. Where the kernel loses that of a huge page
 * (Kbuild) the huge pages count that are there at the end: each that was changed is one still, or
 * has been split or taken away meanwhile, which is another invalidation. And see may_leave_table().
 *
 * An mm that exits first calls release: no thread of it can store any more, and no invalidation is
 * reported from then on. So release counts all its spans, whose entries are dropped right after.
 * An invalidation by another task may be under way then (a hole that is punched), which began with
 * us and ends without us. All that was stored to the pages it takes was stored before release,
 * which has noted them, as its end would have: none is in flight any more.
 */
#include <linux/hugetlb.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/userfaultfd_k.h>

#include "compat.h"
#include "internal.h"
#include "ledger/watch.h"

/* What is noted at once, in pages: some 30 us, in a spinlock that who unmaps from the mm needs. */
#define NOTE_PAGES	(1UL << (30 - PAGE_SHIFT))

static unsigned long first_page(const struct godwit_span *span, unsigned long start)
{
	return span->pgoff + ((start - span->start) >> PAGE_SHIFT);
}

static unsigned long count_pages(unsigned long start, unsigned long end)
{
	return (PAGE_ALIGN(end) - (start & PAGE_MASK)) >> PAGE_SHIFT;
}

/* [*start, *end) covers [lo, hi) as well, and what is in between; *end is 0: nothing yet. */
static void widen(unsigned long *start, unsigned long *end, unsigned long lo, unsigned long hi)
{
	*start = *end ? min(*start, lo) : lo;
	*end = max(*end, hi);
}

/*
 * Any process that has the file open can map terabytes of it and exit. What is too much to be noted
 * here is owed: the next harvest marks it, in godwit_unmap_in_flight().
 */
static void note_range(struct godwit_watch *w, unsigned long start, unsigned long end)
{
	unsigned long room = NOTE_PAGES, npages;
	struct godwit_span *span;

	lockdep_assert_held(&w->lock);
	if (!godwit_row_on(GODWIT_ROW_UNMAP))
		return;
	list_for_each_entry(span, &w->spans, node) {
		unsigned long lo = max(start, span->start), hi = min(end, span->end);

		if (lo >= hi)
			continue;
		npages = count_pages(lo, hi);
		if (npages > room) {
			widen(&span->owed_start, &span->owed_end, lo, hi);
			continue;
		}
		room -= npages;
		godwit_ledger_note(span->ram, GODWIT_ROW_UNMAP, first_page(span, lo), npages);
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
		widen(&span->gone_start, &span->gone_end, lo, hi);
	}
}

/*
 * Processes that map the same GiB of hugetlbfs with pages of 2 MiB share its page table, with the
 * dirty bits of all of them. A change of protection leaves that table to the others: its bits are
 * not lost, but they are no longer where this mm's VMA is walked, and the others may be watched by
 * nobody yet, and unmap before the next sweep. Whether it is shared can change until the kernel has
 * its locks, after the start; so what could be shared counts. The kernel has widened the range to
 * all that may go. It does so within one VMA, which stays as it is from the start to the end: who
 * changes protection holds the mmap_lock, for reading at least. What a userfaultfd write-protects
 * is never shared, and each page that it protects would count for a GiB.
 */
static bool may_leave_table(const struct mmu_notifier_range *range)
{
	struct vm_area_struct *vma = find_vma(range->mm, range->start);

	return vma && is_vm_hugetlb_page(vma) && vma->vm_start <= range->start &&
	       (vma->vm_flags & VM_MAYSHARE) && !userfaultfd_wp(vma) &&
	       huge_page_size(hstate_vma(vma)) < PUD_SIZE &&
	       round_up(range->start, PUD_SIZE) < round_down(range->end, PUD_SIZE);
}

/* The same at the start and at the end. */
static bool keeps_dirty_bits(const struct mmu_notifier_range *range)
{
	if (range->event != MMU_NOTIFY_PROTECTION_VMA)
		return range->event == MMU_NOTIFY_SOFT_DIRTY;
	return godwit_pmd_modify_keeps_dirty() && !may_leave_table(range);
}

/* *next: where to look on, at most @end. */
static bool is_huge(struct mm_struct *mm, unsigned long addr, unsigned long end,
		    unsigned long *next)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d;
	pud_t seen;

	*next = pgd_addr_end(addr, end);
	if (pgd_none(*pgd))
		return false;
	*next = p4d_addr_end(addr, end);
	p4d = p4d_offset(pgd, addr);
	if (p4d_none(*p4d))
		return false;
	*next = pud_addr_end(addr, end);
	seen = READ_ONCE(*pud_offset(p4d, addr));
	if (!pud_present(seen) || pud_leaf(seen))
		return false;
	*next = pmd_addr_end(addr, end);
	return pmd_leaf(READ_ONCE(*pmd_offset(&seen, addr)));
}

/*
 * What of [*start, *end) lies between its first huge page and its last; nothing: *start is *end.
 *
 * Who changes protection holds the mmap_lock, for reading at least, so the tables of a VMA stay. An
 * mprotect() is within one, but a PAGEMAP_SCAN names any addresses; and where munmap() has taken
 * the VMAs away already it frees their tables with the lock held for reading. So VMAs are gone
 * through, and nothing in between. hugetlbfs changes its entries in another way; see also
 * may_leave_table().
 */
static void only_huge(struct mm_struct *mm, unsigned long *start, unsigned long *end)
{
	unsigned long first = 0, stop = 0, addr, last, next;
	struct vm_area_struct *vma;

	for (vma = find_vma(mm, *start); vma && vma->vm_start < *end;
	     vma = find_vma(mm, vma->vm_end)) {
		if (is_vm_hugetlb_page(vma))
			continue;
		addr = round_up(max(*start, vma->vm_start), PMD_SIZE);
		last = round_down(min(*end, vma->vm_end), PMD_SIZE);
		for (; addr < last; addr = next) {
			if (is_huge(mm, addr, last, &next))
				widen(&first, &stop, addr, next);
			cond_resched();
		}
	}
	*start = first;
	*end = stop;
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
	unsigned long start = range->start, end = range->end;

	if (keeps_dirty_bits(range))
		return;
	if (range->event == MMU_NOTIFY_PROTECTION_VMA && !may_leave_table(range))
		only_huge(range->mm, &start, &end);
	spin_lock(&w->lock);
	note_range(w, start, end);
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

/* Spans come and go under session->lock only. */
static void pay(struct godwit_watch *w)
{
	struct godwit_span *span;

	list_for_each_entry(span, &w->spans, node) {
		unsigned long start, end;

		spin_lock(&w->lock);
		start = span->owed_start;
		end = span->owed_end;
		span->owed_end = 0;
		spin_unlock(&w->lock);
		if (end)
			godwit_ledger_note_unmapped(span->ram, first_page(span, start),
						    count_pages(start, end));
		cond_resched();
	}
}

/**
 * godwit_unmap_in_flight() - count what is being invalidated right now, and what is owed
 *
 * What is in flight is noted once more when it ends. Nothing that is owed falls between: an end
 * notes, or owes, and is in flight no more, under one hold of the lock. So if it is not in flight
 * when that is looked at, it owes already, and its span is looked at afterwards. If it is, its
 * range is counted here; what it owes when it ends, whether or not that is before its span is
 * looked at, this harvest or the next one marks: godwit_watch_prune() keeps a span that owes.
 *
 * Context: a harvest, after its sweep, before it collects.
 */
void godwit_unmap_in_flight(struct godwit_session *s)
{
	struct godwit_watch *w;

	list_for_each_entry(w, &s->watches, node) {
		spin_lock(&w->lock);
		if (w->in_flight)
			note_range(w, w->start, w->end);
		spin_unlock(&w->lock);
		pay(w);
	}
}
