// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "mapping": stores through user mappings of the RAM file, in whatever process, seen by the
 * dirty bit that the CPU sets in the page table entry.
 *
 * A sweep first looks which shared, writable mappings the file has, and has those watched that are
 * new. Then it walks their page tables and takes the dirty bits:
 *
 *	- i_mmap_rwsem, held for writing, keeps the VMAs in the tree and their page tables from
 *	  being freed, and keeps rmap out until the TLBs are flushed: see flush.c. The lock of the
 *	  table's page (pmd_lock, and the lock of the page of entries) keeps it from being split,
 *	  collapsed or unshared under us.
 *	- The folio is marked dirty before its entry is cleaned: the entry may be the only place that knows,
 *	  and reclaim throws away what nobody calls dirty.
 *	- No MMU notifier runs: KVM keeps its mappings, and the guest feels nothing.
 *
 * Others wait for that lock meanwhile: reclaim, faults of hugetlbfs, whoever maps or unmaps the
 * file. So the file is swept in slices. A slice is over, flush included, as soon as somebody queues
 * for the lock, or the CPU is wanted, or after SLICE_NS; that is looked at after each stride, a
 * stretch of the file so short that all its mappings have no more than STRIDE_ENTRIES entries (or
 * one page table each).
 */
#include <linux/hugetlb.h>
#include <linux/interval_tree_generic.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rbtree.h>
#include <linux/sched/mm.h>

#include "compat.h"
#include "internal.h"

#define NEWS_MAX	256
#define SLICE_NS	(1000 * 1000)	/* worth many flushes */
#define STRIDE_ENTRIES	65536		/* read in 0.1 ms if all are clean */

/* A mapping that is not watched yet, found while i_mmap_rwsem forbids to allocate. */
struct news {
	struct mm_struct *mm;	/* by mmgrab */
	struct godwit_span span;
};

struct sweep {
	struct godwit_session *s;
	struct godwit_ram *ram;
	bool discard;
	bool cleaned;		/* a CPU may hold a translation that it believes to be marked */
	u64 pages;
	struct news news[NEWS_MAX];
	unsigned int nr_news;
	bool overflow;		/* more unknown mappings than NEWS_MAX: look again */
};

/* Takes the dirty bit of one entry, of whatever size, wherever it is; the page table lock is held. */
static bool take_dirty(struct sweep *sw, unsigned long *entry, struct page *page)
{
	struct folio *folio;

	if (!(READ_ONCE(*entry) & _PAGE_DIRTY_BITS))
		return false;
	folio = page_folio(page);
	if (!folio_test_dirty(folio))
		folio_mark_dirty(folio);
	sw->cleaned = true;
	return atomic_long_fetch_andnot(_PAGE_DIRTY_BITS, (atomic_long_t *)entry) & _PAGE_DIRTY_BITS;
}

static void report(struct sweep *sw, struct vm_area_struct *vma, unsigned long addr, unsigned long bytes)
{
	if (!sw->discard)
		sw->pages += godwit_ram_mark(sw->ram, vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT),
					     bytes >> PAGE_SHIFT);
}

/* The one dirty bit of a huge page stands for all of it, also for what is not in this stride. */
static void report_leaf(struct sweep *sw, struct vm_area_struct *vma, unsigned long addr,
			unsigned long bytes)
{
	unsigned long start = max(round_down(addr, bytes), vma->vm_start);
	unsigned long end = min(round_down(addr, bytes) + bytes, vma->vm_end);

	report(sw, vma, start, end - start);
}

/* Most entries are clean. */
static bool line_is_clean(const pte_t *pte)
{
	return !(godwit_line((const unsigned long *)pte) & _PAGE_DIRTY_BITS);
}

static void sweep_ptes(struct sweep *sw, struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr, unsigned long end)
{
	pte_t *pte = (pte_t *)pmd_page_vaddr(*pmd) + pte_index(addr);

	for (; addr < end; addr += PAGE_SIZE, pte++) {
		pte_t entry;

		while (IS_ALIGNED(pte_index(addr), GODWIT_LINE_WORDS) &&
		       end - addr >= GODWIT_LINE_WORDS * PAGE_SIZE && line_is_clean(pte)) {
			addr += GODWIT_LINE_WORDS * PAGE_SIZE;
			pte += GODWIT_LINE_WORDS;
		}
		if (addr == end)
			break;
		entry = READ_ONCE(*pte);
		if (!pte_present(entry) || pte_special(entry))
			continue;
		if (take_dirty(sw, (unsigned long *)pte, pte_page(entry)))
			report(sw, vma, addr, PAGE_SIZE);
	}
}

/* The entries of a PMD that is a table. Its lock is held; the entries' lock may be the same one. */
static void sweep_table(struct sweep *sw, struct vm_area_struct *vma, pmd_t *pmd, unsigned long addr,
			unsigned long end, spinlock_t *pmd_ptl)
{
	spinlock_t *ptl = pte_lockptr(vma->vm_mm, pmd);

	if (ptl == pmd_ptl) {
		sweep_ptes(sw, vma, pmd, addr, end);
		return;
	}
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	sweep_ptes(sw, vma, pmd, addr, end);
	spin_unlock(ptl);
}

/* One PMD's worth of addresses, [addr, end), or a part of it. */
static void sweep_pmd(struct sweep *sw, struct vm_area_struct *vma, pmd_t *pmd,
		      unsigned long addr, unsigned long end)
{
	spinlock_t *ptl = pmd_lock(vma->vm_mm, pmd);

	if (!pmd_none(*pmd) && pmd_present(*pmd)) {
		if (!pmd_leaf(*pmd))
			sweep_table(sw, vma, pmd, addr, end, ptl);
		else if (take_dirty(sw, (unsigned long *)pmd, pmd_page(*pmd)))
			report_leaf(sw, vma, addr, PMD_SIZE);
	}
	spin_unlock(ptl);
}

static void sweep_pmds(struct sweep *sw, struct vm_area_struct *vma, pud_t *pud, unsigned long addr,
		       unsigned long end)
{
	pmd_t *pmd = pmd_offset(pud, addr);
	unsigned long next;

	for (; addr < end; addr = next, pmd++) {
		next = pmd_addr_end(addr, end);
		/* No lock for what is not there: what comes now is written through after this harvest began. */
		if (!pmd_none(READ_ONCE(*pmd)))
			sweep_pmd(sw, vma, pmd, addr, next);
	}
}

/* A 1 GiB hugetlbfs page. */
static void sweep_pud_leaf(struct sweep *sw, struct vm_area_struct *vma, pud_t *pud,
			   unsigned long addr)
{
	spinlock_t *ptl = &vma->vm_mm->page_table_lock;

	spin_lock(ptl);
	if (pud_present(*pud) && pud_leaf(*pud) &&
	    take_dirty(sw, (unsigned long *)pud, pud_page(*pud)))
		report_leaf(sw, vma, addr, PUD_SIZE);
	spin_unlock(ptl);
}

/* Addresses [addr, end) of a VMA. */
static void sweep_range(struct sweep *sw, struct vm_area_struct *vma, unsigned long addr,
			unsigned long end)
{
	unsigned long next;

	for (; addr < end; addr = next) {
		pgd_t *pgd = pgd_offset(vma->vm_mm, addr);
		p4d_t *p4d;
		pud_t *pud;

		/* pgd_addr_end() and its kin: no overflow at the top, never beyond the end. */
		next = pgd_addr_end(addr, end);
		if (pgd_none(*pgd))
			continue;
		next = p4d_addr_end(addr, end);
		p4d = p4d_offset(pgd, addr);
		if (p4d_none(*p4d))
			continue;
		next = pud_addr_end(addr, end);
		pud = pud_offset(p4d, addr);
		if (pud_none(*pud) || !pud_present(*pud))
			continue;
		if (pud_leaf(*pud))
			sweep_pud_leaf(sw, vma, pud, addr);
		else
			sweep_pmds(sw, vma, pud, addr, next);
	}
}

static void note_news(struct sweep *sw, struct vm_area_struct *vma)
{
	struct news *news = &sw->news[sw->nr_news];
	struct godwit_span span = {
		.ram = sw->ram,
		.start = vma->vm_start,
		.end = vma->vm_end,
		.pgoff = vma->vm_pgoff,
		.seen = sw->s->sweeps,
	};

	if (godwit_watch_knows(sw->s, vma->vm_mm, &span))
		return;
	if (sw->nr_news == NEWS_MAX) {
		sw->overflow = true;
		return;
	}
	mmgrab(vma->vm_mm);
	news->mm = vma->vm_mm;
	news->span = span;
	sw->nr_news++;
}

/* A private mapping's dirty pages are its own; a read-only descriptor's mapping never writes. */
static bool stores_reach_the_file(const struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == (VM_SHARED | VM_MAYWRITE);
}

/* Finds the mappings that are not watched yet, as many as fit. */
static void look(struct sweep *sw)
{
	struct address_space *mapping = sw->ram->mapping;
	struct rb_node *node;

	sw->nr_news = 0;
	sw->overflow = false;
	i_mmap_lock_read(mapping);
	for (node = rb_first_cached(&mapping->i_mmap); node && !sw->overflow;
	     node = rb_next(node)) {
		struct vm_area_struct *vma = rb_entry(node, struct vm_area_struct, shared.rb);

		if (stores_reach_the_file(vma))
			note_news(sw, vma);
		cond_resched();
	}
	i_mmap_unlock_read(mapping);
}

static unsigned long first_page_of(struct vm_area_struct *vma)
{
	return vma->vm_pgoff;
}

static unsigned long last_page_of(struct vm_area_struct *vma)
{
	return vma->vm_pgoff + vma_pages(vma) - 1;
}

/* Searching the tree of a file's mappings, whose own functions are not exported. */
INTERVAL_TREE_DEFINE(struct vm_area_struct, shared.rb, unsigned long, shared.rb_subtree_last,
		     first_page_of, last_page_of, static __maybe_unused, i_mmap)

/* Pages [first, end) of the file, in all mappings. */
static void sweep_stride(struct sweep *sw, u64 first, u64 end)
{
	struct vm_area_struct *vma;

	for (vma = i_mmap_iter_first(&sw->ram->mapping->i_mmap, first, end - 1); vma;
	     vma = i_mmap_iter_next(vma, first, end - 1)) {
		u64 lo = max_t(u64, first, first_page_of(vma)) - vma->vm_pgoff;
		u64 hi = min_t(u64, end, last_page_of(vma) + 1) - vma->vm_pgoff;

		if (stores_reach_the_file(vma))
			sweep_range(sw, vma, vma->vm_start + (lo << PAGE_SHIFT),
				    vma->vm_start + (hi << PAGE_SHIFT));
		cond_resched();
	}
}

/* In pages of the file: whole native pages, at least a page table's worth. */
static u64 stride_of(const struct sweep *sw)
{
	unsigned int native = sw->ram->page_shift - PAGE_SHIFT;
	u64 entries = max(STRIDE_ENTRIES / max(sw->s->nr_spans, 1U), 1U);

	return round_up(entries << native, max(PTRS_PER_PTE, 1UL << native));
}

static bool slice_is_over(const struct sweep *sw, u64 began_ns)
{
	return rwsem_is_contended(&sw->ram->mapping->i_mmap_rwsem) || need_resched() ||
	       ktime_get_ns() - began_ns > SLICE_NS;
}

static void sweep_file(struct sweep *sw)
{
	struct address_space *mapping = sw->ram->mapping;
	u64 first = 0, next, stride = stride_of(sw), began_ns;

	while (first < sw->ram->npages) {
		i_mmap_lock_write(mapping);
		began_ns = ktime_get_ns();
		do {
			next = min(first + stride, sw->ram->npages);
			sweep_stride(sw, first, next);
			first = next;
		} while (first < sw->ram->npages && !slice_is_over(sw, began_ns));
		/* Under the lock: see flush.c. */
		if (sw->cleaned)
			godwit_flush();
		sw->cleaned = false;
		i_mmap_unlock_write(mapping);
		cond_resched();
	}
}

/*
 * A mapping that appeared since the last sweep: from now on it is watched. What was written through it,
 * and unmapped, before that is not known, so all of it counts as written; and the caller flushes, as
 * CPUs may still store through what they have kept of it.
 */
static int welcome(struct sweep *sw, u64 *changed)
{
	unsigned int i;
	int r = 0, err;

	for (i = 0; i < sw->nr_news; i++) {
		struct news *news = &sw->news[i];

		err = godwit_watch_add(sw->s, news->mm, &news->span);
		mmdrop(news->mm);
		if (err && !r)
			r = err;
		if (sw->discard)
			continue;
		sw->s->changes++;
		*changed += godwit_ram_mark_changed(sw->ram, news->span.pgoff,
						    (news->span.end - news->span.start) >> PAGE_SHIFT);
	}
	return r;
}

/**
 * godwit_mapping_sweep() - take the dirty bits of all mappings of all RAM files
 * @discard: only clean them: what they say is of no interest
 * @pages: per row; MAPPING and CHANGE are added to
 *
 * Context: a job. Has flushed the TLBs of all CPUs when it returns, if any bit was taken. Return:
 * 0, -ENOMEM, -ENOSPC (more mappings than can be watched); all that was taken is marked in any
 * case.
 */
int godwit_mapping_sweep(struct godwit_session *s, bool discard, u64 *pages)
{
	struct sweep *sw = kvzalloc(sizeof(*sw), GFP_KERNEL);
	unsigned int i;
	int r = 0;

	if (!sw)
		return -ENOMEM;
	sw->s = s;
	sw->discard = discard;
	s->sweeps++;
	for (i = 0; i < s->nr_rams && !r; i++) {
		sw->ram = s->rams[i];
		do {
			look(sw);
			r = welcome(sw, &pages[GODWIT_ROW_CHANGE]);
		} while (!r && sw->overflow);
		if (!r && godwit_row_on(GODWIT_ROW_MAPPING))
			sweep_file(sw);
	}
	pages[GODWIT_ROW_MAPPING] += sw->pages;
	kvfree(sw);
	return r;
}
