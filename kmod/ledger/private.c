// SPDX-License-Identifier: GPL-2.0-only
/*
 * Row "mapping", private RAM: a range of addresses of the VMM's own mm, whose pages no other
 * mapping shows.
 *
 * Its mappings are the VMAs in the range, each with an anon_vma, the handle by which rmap finds the
 * entries of its pages. So rmap is kept out by the rwsem of the anon_vma's root, held for writing;
 * mmap_lock, held for reading around it, keeps the VMA, its page tables and the anon_vma, and keeps
 * out what takes it for writing. Both are let go after each slice. An anonymous page has a VMA with
 * an anon_vma; a VMA that has none yet has no bit to take, or gets it now, for the next harvest.
 *
 * The look publishes the VMAs (areas) before any bit is taken, for the block row: a block device
 * that has read into a page is noted by the anon_vma's root and the page's index, against the
 * areas. Bits are taken only where a VMA still is what was published. What was not published keeps
 * its bits, and a page that was faulted in for a device has one until a harvest that has published
 * its VMA takes it: so where a completion finds no area, the bit is still to come. (A page may come
 * back from swap without one, and be written to without a fault: Linux 6.12. But in a VMA that was
 * not published it is younger than the last harvest, and the row "unmap" has noted that it went.)
 *
 * Pages come into the range without a dirty bit when the VMM puts another mapping there (mremap
 * moves clean entries along). So what was not mapped at the last look and is now counts as written;
 * so does what had its mapping taken away since then, which the watch has heard, as in between both
 * may have been.
 *
 * Not seen: UFFDIO_MOVE of pages from elsewhere into the range; and what others write to the file
 * below a private mapping of it, where the VMM has no page of its own.
 */
#include <linux/hugetlb.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "compat.h"
#include "sweep.h"

/* Of a session: the block row goes through them for each page that was read. */
#define AREAS_MAX	1024

/* 0, or why what is mapped there is no private RAM; the contract of ADD_RAM. */
int godwit_private_kind(struct vm_area_struct *vma)
{
	if (vma->vm_flags & (VM_PFNMAP | VM_MIXEDMAP | VM_IO))
		return -ENODEV;
	if (vma->vm_flags & (VM_SHARED | VM_MAYSHARE))
		return -ENOTUNIQ;
	if (vma_is_anonymous(vma) || is_vm_hugetlb_page(vma) || !vma->vm_file ||
	    file_inode(vma->vm_file)->i_sb->s_magic == TMPFS_MAGIC)
		return 0;
	return -EMEDIUMTYPE;
}

static unsigned int native_shift(struct vm_area_struct *vma)
{
	return is_vm_hugetlb_page(vma) ? huge_page_shift(hstate_vma(vma)) : PAGE_SHIFT;
}

/* The smallest native page, log2; -errno: some of it is no private RAM. */
static int look_at_vmas(struct mm_struct *mm, unsigned long addr, unsigned long end)
{
	unsigned int shift = BITS_PER_LONG;
	struct vm_area_struct *vma;
	int r;

	for (; addr < end; addr = vma->vm_end) {
		vma = find_vma(mm, addr);
		if (!vma || vma->vm_start > addr)
			return -EADDRNOTAVAIL;
		r = godwit_private_kind(vma);
		if (r)
			return r;
		shift = min(shift, native_shift(vma));
		cond_resched();
	}
	return shift;
}

/* ADD_RAM of private RAM: what is there now. A job. */
int godwit_job_look_private(struct godwit_session *s, void *arg)
{
	struct godwit_look_private *look = arg;
	unsigned long end = look->addr + (look->npages << PAGE_SHIFT);
	int r;

	if (!s->mm)
		return -ENOTCONN;
	if (godwit_slots_guest_memfd(s->kvm, look->addr, end))
		return -EOPNOTSUPP;
	if (!mmget_not_zero(s->mm))
		return -EOWNERDEAD;
	mmap_read_lock(s->mm);
	r = look_at_vmas(s->mm, look->addr, end);
	mmap_read_unlock(s->mm);
	mmput_async(s->mm);
	if (r < 0)
		return r;
	look->page_shift = r;
	return 0;
}

static unsigned long end_of(const struct godwit_ram *ram)
{
	return ram->addr + (ram->npages << PAGE_SHIFT);
}

/* Addresses [start, end), as far as they are this RAM's. */
static u64 mark(struct godwit_ram *ram, unsigned long start, unsigned long end,
		u64 (*how)(struct godwit_ram *ram, u64 first, u64 npages))
{
	start = max(start, ram->addr);
	end = min(end, end_of(ram));
	if (start >= end)
		return 0;
	return how(ram, (start - ram->addr) >> PAGE_SHIFT, (end - start) >> PAGE_SHIFT);
}

static void count_changed(struct sweep *sw, unsigned long start, unsigned long end)
{
	if (sw->discard || start >= end)
		return;
	sw->s->changes++;
	sw->changed += mark(sw->ram, start, end, godwit_ram_mark_changed);
}

/* How many VMAs there are; -errno: what one of them is. */
static int count_vmas(struct mm_struct *mm, const struct godwit_ram *ram)
{
	unsigned long addr = ram->addr;
	struct vm_area_struct *vma;
	int n = 0, r;

	while (addr < end_of(ram) && (vma = find_vma(mm, addr)) && vma->vm_start < end_of(ram)) {
		r = godwit_private_kind(vma);
		if (r)
			return r;
		if (++n > AREAS_MAX)
			return -ENOSPC;
		addr = vma->vm_end;
	}
	return n;
}

static void read_areas(struct godwit_areas *areas, struct mm_struct *mm,
		       const struct godwit_ram *ram)
{
	unsigned long addr = ram->addr;
	struct vm_area_struct *vma;

	while (addr < end_of(ram) && (vma = find_vma(mm, addr)) && vma->vm_start < end_of(ram)) {
		struct anon_vma *anon_vma = READ_ONCE(vma->anon_vma);

		areas->area[areas->nr++] = (struct godwit_area) {
			.start = vma->vm_start,
			.end = vma->vm_end,
			.pgoff = vma_start_anon_pgoff(vma),
			.root = anon_vma ? anon_vma->root : NULL,
		};
		addr = vma->vm_end;
	}
}

static unsigned int other_areas(const struct sweep *sw)
{
	unsigned int i, n = 0;

	for (i = 0; i < sw->s->nr_rams; i++) {
		const struct godwit_areas *areas =
			rcu_dereference_protected(sw->s->rams[i]->areas, true);

		if (areas && sw->s->rams[i] != sw->ram)
			n += areas->nr;
	}
	return n;
}

/* What is mapped now, and was not at the last look. */
static void count_new(struct sweep *sw, const struct godwit_areas *old,
		      const struct godwit_areas *new)
{
	unsigned int i, j = 0;

	for (i = 0; i < new->nr; i++) {
		unsigned long at = new->area[i].start, end = new->area[i].end;

		for (; j < old->nr && at < end; j++) {
			count_changed(sw, at, min(end, old->area[j].start));
			at = max(at, old->area[j].end);
			if (old->area[j].end > end)
				break;
		}
		count_changed(sw, at, end);
	}
}

/* The areas as they are now. Context: mmap_lock is held for reading. */
static int publish(struct sweep *sw)
{
	struct godwit_ram *ram = sw->ram;
	struct godwit_areas *areas, *old = rcu_dereference_protected(ram->areas, true);
	unsigned long start, end;
	int n = count_vmas(sw->s->mm, ram);

	if (n < 0)
		return n;
	if (n + other_areas(sw) > AREAS_MAX)
		return -ENOSPC;
	areas = kvzalloc(struct_size(areas, area, n), GFP_KERNEL);
	if (!areas)
		return -ENOMEM;
	read_areas(areas, sw->s->mm, ram);
	if (godwit_watch_take_gone(sw->s, ram, &start, &end))
		count_changed(sw, start, end);
	if (old)
		count_new(sw, old, areas);
	rcu_assign_pointer(ram->areas, areas);
	if (old)
		kvfree_rcu(old, rcu);
	return 0;
}

static bool lock_mm(struct sweep *sw)
{
	if (!mmget_not_zero(sw->s->mm))
		return false;
	sw->mm = sw->s->mm;
	mmap_read_lock(sw->mm);
	return true;
}

static void private_unlock(struct sweep *sw)
{
	if (sw->rmap)
		godwit_sweep_release(sw);
	if (!sw->mm)
		return;
	mmap_read_unlock(sw->mm);
	mmput_async(sw->mm);
	sw->mm = NULL;
}

static int private_look(struct sweep *sw)
{
	struct godwit_span span = {
		.ram = sw->ram,
		.start = sw->ram->addr,
		.end = end_of(sw->ram),
		.seen = sw->s->sweeps,
	};
	int r;

	if (!lock_mm(sw))
		return -EOWNERDEAD;
	godwit_sweep_news(sw, sw->mm, &span);
	r = publish(sw);
	private_unlock(sw);
	return r;
}

/* The area of an address, else the next one; NULL: there is none. */
static const struct godwit_area *area_at(const struct godwit_ram *ram, unsigned long addr)
{
	const struct godwit_areas *areas = rcu_dereference_protected(ram->areas, true);
	unsigned int i;

	for (i = 0; i < areas->nr; i++)
		if (areas->area[i].end > addr)
			return &areas->area[i];
	return NULL;
}

static bool is_still(const struct godwit_area *area, struct vm_area_struct *vma, unsigned long addr)
{
	const struct anon_vma *anon_vma;

	if (!vma || vma->vm_start > addr || godwit_private_kind(vma))
		return false;
	anon_vma = READ_ONCE(vma->anon_vma);
	return anon_vma && anon_vma->root == area->root &&
	       vma->vm_start - (vma_start_anon_pgoff(vma) << PAGE_SHIFT) ==
		       area->start - (area->pgoff << PAGE_SHIFT);
}

static u64 private_lock(struct sweep *sw, u64 first)
{
	struct godwit_ram *ram = sw->ram;
	unsigned long addr = ram->addr + (first << PAGE_SHIFT), end;
	const struct godwit_area *area = area_at(ram, addr);
	struct vm_area_struct *vma;

	if (!area)
		return ram->npages;
	end = min(end_of(ram), area->start > addr ? area->start : area->end);
	if (area->start <= addr && area->root && lock_mm(sw)) {
		vma = find_vma(sw->mm, addr);
		if (is_still(area, vma, addr)) {
			sw->walk.vma = vma;
			sw->events = godwit_watch_events(sw->s);
			godwit_sweep_hold(sw, &vma->anon_vma->root->rwsem);
			end = min(end, vma->vm_end);
		} else if (vma) {
			end = min(end, vma->vm_start > addr ? vma->vm_start : vma->vm_end);
		}
	}
	return (end - ram->addr) >> PAGE_SHIFT;
}

static void private_stride(struct sweep *sw, u64 first, u64 end)
{
	godwit_walk(&sw->walk, sw->ram->addr + (first << PAGE_SHIFT),
		    sw->ram->addr + (end << PAGE_SHIFT));
}

/* A huge page may lie in more than one RAM, and has one dirty bit for all of it. */
static void private_report(struct sweep *sw, unsigned long addr, unsigned long bytes)
{
	unsigned int i;

	if (bytes == PAGE_SIZE) {
		sw->pages += mark(sw->ram, addr, addr + bytes, godwit_ram_mark);
		return;
	}
	for (i = 0; i < sw->s->nr_rams; i++)
		if (sw->s->rams[i]->addr)
			sw->pages += mark(sw->s->rams[i], addr, addr + bytes, godwit_ram_mark);
}

/* Reclaim throws away what was given to MADV_FREE, unless it is dirty. */
static bool keep_lazy(struct godwit_walk *w, unsigned long *entry, struct page *page,
		      unsigned long addr, unsigned long bytes)
{
	struct folio *folio = page ? page_folio(page) : NULL;

	if (folio && folio_test_anon(folio) && !folio_test_swapbacked(folio) &&
	    !folio_test_dirty(folio))
		folio_mark_dirty(folio);
	return true;
}

/*
 * MADV_FREE may have come between a bit and the flush, see flush.c: it has an invalidation under
 * way all the time, so this is asked of the watch, and pages are gone through only then.
 */
static void private_settle(struct sweep *sw, u64 first, u64 end)
{
	struct godwit_walk keep = {
		.vma = sw->walk.vma,
		.mask = _PAGE_PRESENT | _PAGE_PROTNONE,
		.entry = keep_lazy,
	};

	if (sw->events && godwit_watch_events(sw->s) == sw->events)
		return;
	if (godwit_row_on(GODWIT_SAFE_LAZY))
		godwit_walk(&keep, sw->ram->addr + (first << PAGE_SHIFT),
			    sw->ram->addr + (end << PAGE_SHIFT));
}

const struct finder godwit_private_finder = {
	.look = private_look,
	.lock = private_lock,
	.stride = private_stride,
	.report = private_report,
	.settle = private_settle,
	.unlock = private_unlock,
};
