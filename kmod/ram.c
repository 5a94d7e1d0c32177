// SPDX-License-Identifier: GPL-2.0-only
/* A RAM file, or a range of private RAM, and the two bitmaps that are kept of it: 2 bits a page. */
#include <linux/magic.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "internal.h"

#define MARK_BITS	BIT_ULL(30)

/* Charged to the helper, which is told rather than killed when its memory cgroup has no room. */
static unsigned long *new_bitmap(size_t bytes)
{
	return __vmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN |
				__GFP_RETRY_MAYFAIL);
}

static struct godwit_ram *ram_new(u64 npages, unsigned int page_shift)
{
	struct godwit_ram *ram = kzalloc(sizeof(*ram), GFP_KERNEL_ACCOUNT);
	size_t bytes;

	if (!ram)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&ram->node);
	ram->npages = npages;
	ram->page_shift = page_shift;
	ram->words = BITS_TO_LONGS(ram->npages);
	bytes = PAGE_ALIGN(ram->words * sizeof(long));
	ram->dirty = new_bitmap(bytes);
	ram->pending = new_bitmap(bytes);
	if (!ram->dirty || !ram->pending) {
		godwit_ram_free(ram);
		return ERR_PTR(-ENOMEM);
	}
	return ram;
}

/* For the file's first npages. -ERANGE: it has not so many. */
struct godwit_ram *godwit_ram_new(struct file *file, u64 npages)
{
	struct inode *inode = file->f_mapping->host;
	struct godwit_ram *ram;

	if (!S_ISREG(inode->i_mode))
		return ERR_PTR(-EMEDIUMTYPE);
	if (inode->i_sb->s_magic != TMPFS_MAGIC && inode->i_sb->s_magic != HUGETLBFS_MAGIC)
		return ERR_PTR(-EMEDIUMTYPE);

	if (!npages)
		return ERR_PTR(-EINVAL);
	if (npages > i_size_read(inode) >> PAGE_SHIFT)
		return ERR_PTR(-ERANGE);

	ram = ram_new(npages,
		      inode->i_sb->s_magic == HUGETLBFS_MAGIC ? inode->i_blkbits : PAGE_SHIFT);
	if (IS_ERR(ram))
		return ram;
	ram->file = get_file(file);
	ram->mapping = file->f_mapping;
	return ram;
}

/* For npages from addr on; whose address that is add_ram() says. */
struct godwit_ram *godwit_ram_new_private(unsigned long addr, u64 npages, unsigned int page_shift)
{
	struct godwit_ram *ram = ram_new(npages, page_shift);

	if (!IS_ERR(ram))
		ram->addr = addr;
	return ram;
}

/*
 * Do two have pages in common? Ranges also if they only share 1 << shift bytes, aligned to that.
 */
bool godwit_ram_overlaps(const struct godwit_ram *a, const struct godwit_ram *b, unsigned int shift)
{
	if (!a->addr || !b->addr)
		return a->mapping == b->mapping && !a->addr && !b->addr;
	return a->mm == b->mm &&
	       a->addr >> shift <= (b->addr + (b->npages << PAGE_SHIFT) - 1) >> shift &&
	       b->addr >> shift <= (a->addr + (a->npages << PAGE_SHIFT) - 1) >> shift;
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
	kvfree(rcu_dereference_protected(ram->areas, true));
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
