// SPDX-License-Identifier: GPL-2.0-only
/* A RAM file, and the two bitmaps that are kept of it: 2 bits a page. */
#include <linux/magic.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/writeback.h>

#include "compat.h"
#include "internal.h"

#define MARK_BITS	BIT_ULL(30)

/* Charged to the helper, which is told rather than killed when its memory cgroup has no room. */
static unsigned long *new_bitmap(size_t bytes)
{
	return __vmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
				__GFP_RETRY_MAYFAIL);
}

/* For the file's first npages. -ERANGE: it has not so many. */
struct godwit_ram *godwit_ram_new(struct file *file, u64 npages)
{
	struct inode *inode = file->f_mapping->host;
	struct godwit_ram *ram;
	size_t bytes;

	if (!S_ISREG(inode->i_mode))
		return ERR_PTR(-EMEDIUMTYPE);
	if (inode->i_sb->s_magic != TMPFS_MAGIC && inode->i_sb->s_magic != HUGETLBFS_MAGIC)
		return ERR_PTR(-EMEDIUMTYPE);

	if (!npages)
		return ERR_PTR(-EINVAL);
	if (npages > i_size_read(inode) >> PAGE_SHIFT)
		return ERR_PTR(-ERANGE);

	ram = kzalloc(sizeof(*ram), GFP_KERNEL_ACCOUNT);
	if (!ram)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&ram->node);
	ram->npages = npages;
	ram->page_shift = inode->i_sb->s_magic == HUGETLBFS_MAGIC ? inode->i_blkbits : PAGE_SHIFT;
	ram->words = BITS_TO_LONGS(ram->npages);
	bytes = PAGE_ALIGN(ram->words * sizeof(long));
	ram->dirty = new_bitmap(bytes);
	ram->pending = new_bitmap(bytes);
	if (!ram->dirty || !ram->pending) {
		godwit_ram_free(ram);
		return ERR_PTR(-ENOMEM);
	}
	ram->file = get_file(file);
	ram->mapping = file->f_mapping;
	return ram;
}

void godwit_ram_drop_file(struct godwit_ram *ram)
{
	if (ram->file)
		fput(ram->file);
	ram->file = NULL;
}

void godwit_ram_free(struct godwit_ram *ram)
{
	godwit_ram_drop_file(ram);
	vfree(ram->dirty);
	vfree(ram->pending);
	kfree(ram);
}

/* Sets bits of the helper's bitmap. Returns how many pages of the range exist. */
u64 godwit_ram_mark(struct godwit_ram *ram, u64 first, u64 npages)
{
	u64 at, end, n;

	if (first >= ram->npages)
		return 0;
	npages = min(npages, ram->npages - first);
	end = first + npages;
	/* bitmap_set() counts in int: a file of 8 TiB has more. */
	for (at = first; at < end; at += n) {
		n = min(end - at, MARK_BITS);
		bitmap_set(ram->dirty + BIT_WORD(at), at % BITS_PER_LONG, n);
	}
	return npages;
}

/* Pages of a memslot or mapping that came or went: row "change". */
u64 godwit_ram_mark_changed(struct godwit_ram *ram, u64 first, u64 npages)
{
	return godwit_row_on(GODWIT_ROW_CHANGE) ? godwit_ram_mark(ram, first, npages) : 0;
}

/*
 * The page cache of hugetlbfs knows what lseek() and, in another process, mincore() do not. Looking
 * does not allocate. A page that appears after the look is a write, and the ledger has it.
 */
int godwit_ram_next_data(struct godwit_ram *ram, struct godwit_range *range)
{
	unsigned int shift = ram->page_shift - PAGE_SHIFT;	/* 4 KiB pages in a native page, log2 */
	unsigned int index_shift = godwit_hugetlb_index_shift(ram->page_shift);
	u64 end = range->first_page + range->npages, first, stop;
	unsigned long index = range->first_page >> shift << (shift - index_shift);
	unsigned long step = 1UL << (shift - index_shift);

	if (ram->page_shift == PAGE_SHIFT)
		return -EOPNOTSUPP;	/* tmpfs: lseek() does it */
	if (!range->npages ||
	    !xa_find(&ram->mapping->i_pages, &index, ((end - 1) >> shift << (shift - index_shift)) + step - 1,
		     XA_PRESENT))
		return -ENXIO;
	first = (u64)round_down(index, step) << index_shift;
	for (stop = first; stop < end; stop += 1ULL << shift) {
		if (!xa_load(&ram->mapping->i_pages, stop >> index_shift))
			break;
		cond_resched();
	}
	range->first_page = max(first, range->first_page);
	range->npages = min(stop, end) - range->first_page;
	return 0;
}

/* Grows a run of pages [first, stop) by a folio that is pinned. False: the run ends before this one. */
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
int godwit_ram_next_pinned(struct godwit_ram *ram, struct godwit_range *range)
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
	range->first_page = max(first, range->first_page);
	range->npages = min(stop, end) - range->first_page;
	return 0;
}
