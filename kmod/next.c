// SPDX-License-Identifier: GPL-2.0-only
/*
 * NEXT_DATA and NEXT_PINNED: what RAM has, without touching what it has not.
 *
 * Of a RAM file the page cache knows. Of private RAM the VMM's page tables do; what they do not
 * have is a hole, unless the file below a private mapping of it has something there. What appears
 * after the look is a write, and the ledger has it.
 */
#include <linux/pagemap.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/writeback.h>

#include "compat.h"
#include "internal.h"
#include "ledger/sweep.h"

/* Of addresses, between two chances for others to take mmap_lock. */
#define STRETCH		((unsigned long)SZ_1G)

/*
 * The first run of what the page cache has of pages [first, end): where it begins, and ends. False:
 * it has none.
 */
static bool next_cached(struct address_space *mapping, unsigned int page_shift, u64 first, u64 end,
			u64 *at, u64 *stop)
{
	unsigned int shift = page_shift - PAGE_SHIFT;	/* 4 KiB pages in a native page, log2 */
	unsigned int index_shift = godwit_hugetlb_index_shift(page_shift);
	unsigned long index = first >> shift << (shift - index_shift);
	unsigned long step = 1UL << (shift - index_shift);

	if (first >= end ||
	    !xa_find(&mapping->i_pages, &index,
		     ((end - 1) >> shift << (shift - index_shift)) + step - 1, XA_PRESENT))
		return false;
	*at = (u64)round_down(index, step) << index_shift;
	for (*stop = *at; *stop < end; *stop += 1ULL << shift) {
		if (!xa_load(&mapping->i_pages, *stop >> index_shift))
			break;
		cond_resched();
	}
	*at = max(*at, first);
	*stop = min(*stop, end);
	return true;
}

static void answer(struct godwit_range *range, u64 at, u64 stop)
{
	range->first_page = at;
	range->npages = stop - at;
}

/* hugetlbfs, where lseek() and, in another process, mincore() do not know. */
static int file_next_data(struct godwit_ram *ram, struct godwit_range *range)
{
	u64 at, stop;

	if (ram->page_shift == PAGE_SHIFT)
		return -EOPNOTSUPP;	/* tmpfs: lseek() does it */
	if (!next_cached(ram->mapping, ram->page_shift, range->first_page,
			 range->first_page + range->npages, &at, &stop))
		return -ENXIO;
	answer(range, at, stop);
	return 0;
}

/*
 * Grows a run of pages [first, stop) by a folio that is pinned. False: the run ends before this
 * one.
 */
static bool add_pinned(struct folio *folio, u64 *first, u64 *stop)
{
	u64 at = godwit_page_pgoff(folio, &folio->page);

	if (!folio_maybe_dma_pinned(folio))
		return *first == *stop;
	if (*first == *stop)
		*first = at;
	else if (*stop != at)
		return false;
	*stop = at + folio_nr_pages(folio);
	return true;
}

/*
 * The page cache once more. A folio of one page has no count of its pins: each adds 1024 to its
 * reference count, so one that a thousand processes map looks the same.
 */
static int file_next_pinned(struct godwit_ram *ram, struct godwit_range *range)
{
	unsigned int index_shift = godwit_hugetlb_index_shift(ram->page_shift), i;
	u64 end = range->first_page + range->npages, first = 0, stop = 0;
	pgoff_t index = range->first_page >> index_shift;
	struct folio_batch batch;
	bool more = range->npages;

	folio_batch_init(&batch);
	while (more && filemap_get_folios(ram->mapping, &index, (end - 1) >> index_shift, &batch)) {
		for (i = 0; more && i < folio_batch_count(&batch); i++)
			more = add_pinned(batch.folios[i], &first, &stop);
		folio_batch_release(&batch);
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	if (first == stop)
		return -ENXIO;
	answer(range, max(first, range->first_page), min(stop, end));
	return 0;
}

/**
 * struct look - at addresses of the VMM
 * @wanted: of what is there; folio: NULL if it is swapped out or under migration
 * @files: what the file below a private mapping has counts too
 * @first: of the run that was found; as long as it is @stop, none was
 */
struct look {
	struct godwit_walk walk;
	bool (*wanted)(struct folio *folio);
	bool files;
	unsigned long first;
	unsigned long stop;
};

/* The huge zero page has no mapping. */
static bool is_data(struct folio *folio)
{
	return !folio || folio->mapping;
}

static bool is_pinned(struct folio *folio)
{
	return folio && folio_maybe_dma_pinned(folio);
}

/* Grows the run by one entry. False: it ends before this one. */
static bool add_entry(struct godwit_walk *w, unsigned long *entry, struct page *page,
		      unsigned long addr, unsigned long bytes)
{
	struct look *l = container_of(w, struct look, walk);

	if (!l->wanted(page ? page_folio(page) : NULL))
		return l->first == l->stop;
	if (l->first == l->stop)
		l->first = addr;
	else if (l->stop != addr)
		return false;
	l->stop = addr + bytes;
	return true;
}

/* [addr, end) ends where the page tables have something: what the file has there comes first. */
static void look_into_file(struct look *l, unsigned long addr, unsigned long end)
{
	struct vm_area_struct *vma = l->walk.vma;
	unsigned int shift = is_vm_hugetlb_page(vma) ? huge_page_shift(hstate_vma(vma)) :
						       PAGE_SHIFT;
	u64 pgoff = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT), at, stop;

	if (!next_cached(vma->vm_file->f_mapping, shift, pgoff,
			 pgoff + ((end - addr) >> PAGE_SHIFT), &at, &stop))
		return;
	l->first = addr + ((at - pgoff) << PAGE_SHIFT);
	l->stop = addr + ((stop - pgoff) << PAGE_SHIFT);
}

/* Addresses [addr, end), under mmap_lock; ends with the VMA in which something was found. */
static void look_at(struct look *l, struct mm_struct *mm, unsigned long addr, unsigned long end)
{
	struct vm_area_struct *vma;

	while (l->first == l->stop && addr < end && (vma = find_vma(mm, addr)) &&
	       vma->vm_start < end) {
		unsigned long stop = min(end, vma->vm_end), before;

		addr = max(addr, vma->vm_start);
		l->walk.vma = vma;
		if (!godwit_private_kind(vma)) {
			godwit_walk(&l->walk, addr, stop);
			/* Only before what was found: to count what the file has takes long. */
			before = l->first == l->stop ? stop : clamp(l->first, addr, stop);
			if (l->files && vma->vm_file && !vma_is_anonymous(vma) && addr < before)
				look_into_file(l, addr, before);
		}
		l->first = l->first == l->stop ? 0 : max(l->first, addr);
		l->stop = min(l->stop, stop);
		addr = stop;
		cond_resched();
	}
}

static int look_through(struct look *l, struct mm_struct *mm, unsigned long addr, unsigned long end)
{
	unsigned long next;
	int r = -ENXIO;

	for (; r == -ENXIO && addr < end; addr = next) {
		next = min(end, round_down(addr, STRETCH) + STRETCH);
		if (mmap_read_lock_killable(mm))
			return -EINTR;
		look_at(l, mm, addr, next);
		mmap_read_unlock(mm);
		if (l->first != l->stop)
			r = 0;
	}
	return r;
}

/* A run may come in several pieces. */
static int private_next(struct godwit_session *s, struct godwit_ram *ram,
			struct godwit_range *range, bool (*wanted)(struct folio *folio), bool files)
{
	struct look l = { .walk = { .mask = ~0UL, .entry = add_entry },
			  .wanted = wanted,
			  .files = files };
	unsigned long addr = ram->addr + (range->first_page << PAGE_SHIFT);
	int r;

	if (!mmget_not_zero(s->mm))
		return -EOWNERDEAD;
	r = look_through(&l, s->mm, addr, addr + (range->npages << PAGE_SHIFT));
	/* The last one waits for the VMM's aio, which no signal ends: not the helper's thread. */
	mmput_async(s->mm);
	if (!r)
		answer(range, (l.first - ram->addr) >> PAGE_SHIFT,
		       (l.stop - ram->addr) >> PAGE_SHIFT);
	return r;
}

int godwit_next_data(struct godwit_session *s, struct godwit_ram *ram, struct godwit_range *range)
{
	if (ram->addr)
		return s->mm ? private_next(s, ram, range, is_data, true) : -EOWNERDEAD;
	return ram->file ? file_next_data(ram, range) : -EOWNERDEAD;
}

int godwit_next_pinned(struct godwit_session *s, struct godwit_ram *ram, struct godwit_range *range)
{
	if (ram->addr)
		return s->mm ? private_next(s, ram, range, is_pinned, false) : -EOWNERDEAD;
	return ram->file ? file_next_pinned(ram, range) : -EOWNERDEAD;
}
