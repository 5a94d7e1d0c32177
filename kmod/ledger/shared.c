// SPDX-License-Identifier: GPL-2.0-only
/*
 * Row "mapping", the mappings of a RAM file: all shared, writable ones, in whatever process, by the
 * file's own tree of them. i_mmap_rwsem keeps the VMAs in the tree and their page tables from being
 * freed, and rmap out.
 */
#include <linux/fs.h>
#include <linux/interval_tree_generic.h>
#include <linux/mm.h>
#include <linux/rbtree.h>

#include "sweep.h"

/* A private mapping's dirty pages are its own; a read-only descriptor's mapping never writes. */
static bool stores_reach_the_file(const struct vm_area_struct *vma)
{
	return (vma->vm_flags & (VM_SHARED | VM_MAYWRITE)) == (VM_SHARED | VM_MAYWRITE);
}

static void note_vma(struct sweep *sw, struct vm_area_struct *vma)
{
	struct godwit_span span = {
		.ram = sw->ram,
		.start = vma->vm_start,
		.end = vma->vm_end,
		.pgoff = vma->vm_pgoff,
		.seen = sw->s->sweeps,
	};

	godwit_sweep_news(sw, vma->vm_mm, &span);
}

static int shared_look(struct sweep *sw)
{
	struct address_space *mapping = sw->ram->mapping;
	struct rb_node *node;

	i_mmap_lock_read(mapping);
	for (node = rb_first_cached(&mapping->i_mmap); node && !sw->overflow;
	     node = rb_next(node)) {
		struct vm_area_struct *vma = rb_entry(node, struct vm_area_struct, shared.rb);

		if (stores_reach_the_file(vma))
			note_vma(sw, vma);
		cond_resched();
	}
	i_mmap_unlock_read(mapping);
	return 0;
}

static u64 shared_lock(struct sweep *sw, u64 first)
{
	godwit_sweep_hold(sw, &sw->ram->mapping->i_mmap_rwsem);
	return sw->ram->npages;
}

static void shared_unlock(struct sweep *sw)
{
	godwit_sweep_release(sw);
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

static void shared_stride(struct sweep *sw, u64 first, u64 end)
{
	struct vm_area_struct *vma;

	for (vma = i_mmap_iter_first(&sw->ram->mapping->i_mmap, first, end - 1); vma;
	     vma = i_mmap_iter_next(vma, first, end - 1)) {
		u64 lo = max_t(u64, first, first_page_of(vma)) - vma->vm_pgoff;
		u64 hi = min_t(u64, end, last_page_of(vma) + 1) - vma->vm_pgoff;

		sw->walk.vma = vma;
		if (stores_reach_the_file(vma))
			godwit_walk(&sw->walk, vma->vm_start + (lo << PAGE_SHIFT),
				    vma->vm_start + (hi << PAGE_SHIFT));
		cond_resched();
	}
}

static void shared_report(struct sweep *sw, unsigned long addr, unsigned long bytes)
{
	struct vm_area_struct *vma = sw->walk.vma;
	unsigned long start = max(addr, vma->vm_start), end = min(addr + bytes, vma->vm_end);

	sw->pages += godwit_ram_mark(sw->ram,
				     vma->vm_pgoff + ((start - vma->vm_start) >> PAGE_SHIFT),
				     (end - start) >> PAGE_SHIFT);
}

const struct finder godwit_shared_finder = {
	.look = shared_look,
	.lock = shared_lock,
	.stride = shared_stride,
	.report = shared_report,
	.unlock = shared_unlock,
};
