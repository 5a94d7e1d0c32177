// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a memslot shows: stretches of RAM files, by the mappings behind it, and of private RAM, by
 * their addresses. And what none shows.
 */
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "compat.h"
#include "internal.h"

/* Adds a piece to the last slot, or to the slot's last piece, if it goes on where that ends. */
static int add_piece(struct godwit_view *v, unsigned int *max, const struct godwit_piece *p)
{
	struct godwit_slot *slot = &v->slots[p->slot];
	struct godwit_piece *last = slot->nr_pieces ? &v->pieces[v->nr_pieces - 1] : NULL;

	if (last && last->ram == p->ram && last->first + last->npages == p->first &&
	    last->pgoff + last->npages == p->pgoff) {
		last->npages += p->npages;
		return 0;
	}
	if (v->nr_pieces == *max) {
		unsigned int more = *max ? 2 * *max : 32;
		struct godwit_piece *bigger = kvcalloc(more, sizeof(*bigger), GFP_KERNEL);

		if (!bigger)
			return -ENOMEM;
		if (v->nr_pieces)
			memcpy(bigger, v->pieces, v->nr_pieces * sizeof(*bigger));
		kvfree(v->pieces);
		v->pieces = bigger;
		*max = more;
	}
	if (!slot->nr_pieces++)
		slot->first_piece = v->nr_pieces;
	v->pieces[v->nr_pieces++] = *p;
	return 0;
}

static int ram_of(struct godwit_session *s, const struct vm_area_struct *vma)
{
	unsigned int i;

	if (!vma->vm_file || !(vma->vm_flags & VM_SHARED))
		return -1;
	for (i = 0; i < s->nr_rams; i++)
		if (vma->vm_file->f_mapping == s->rams[i]->mapping)
			return i;
	return -1;
}

/*
 * The private RAM that addr lies in, or -1. *stop, the end of what the caller looks at, becomes the
 * end of that RAM at the latest, or where the next one begins.
 */
static int private_ram_at(struct godwit_session *s, unsigned long addr, unsigned long *stop)
{
	unsigned int i;
	int found = -1;

	for (i = 0; i < s->nr_rams; i++) {
		unsigned long start = s->rams[i]->addr,
			      end = start + (s->rams[i]->npages << PAGE_SHIFT);

		if (!start || addr >= end || *stop <= start)
			continue;
		if (addr >= start)
			found = i;
		*stop = min(*stop, addr >= start ? end : start);
	}
	return found;
}

/* Adds [addr, stop) of slot number n, which shows a RAM from page pgoff on. */
static int show(struct godwit_session *s, struct godwit_view *v, unsigned int n,
		struct godwit_budget *b, int ram, unsigned long addr, unsigned long stop, u64 pgoff)
{
	const struct godwit_slot *slot = &v->slots[n];
	struct godwit_piece p = {
		.slot = n,
		.ram = ram,
		.first = (addr - slot->hva) >> PAGE_SHIFT,
		.npages = (stop - addr) >> PAGE_SHIFT,
		.pgoff = pgoff,
	};

	if (pgoff + p.npages > s->rams[ram]->npages)
		return -EFBIG;	/* its bitmap has no room */
	return add_piece(v, &b->max_pieces, &p);
}

/*
 * Splits slot number n by the private RAM that it shows, whatever is mapped there now, and the
 * mappings behind it. Context: the VM's mmap_lock is held. Return: 0, -ENOMEM, -ENOSPC, -EFBIG,
 * -EOPNOTSUPP.
 */
int godwit_pieces_of_slot(struct godwit_session *s, struct godwit_view *v, unsigned int n,
			  struct godwit_budget *b)
{
	const struct godwit_slot *slot = &v->slots[n];
	unsigned long addr = slot->hva, end = slot->hva + (slot->npages << PAGE_SHIFT), stop;
	struct vm_area_struct *vma;
	int ram, r = 0;

	for (; !r && addr < end; addr = stop) {
		stop = end;
		ram = private_ram_at(s, addr, &stop);
		vma = ram < 0 ? find_vma(s->mm, addr) : NULL;
		if (ram < 0 && (!vma || vma->vm_start >= stop))
			continue;
		if (!b->looks--)
			return -ENOSPC;
		cond_resched();
		if (ram >= 0 && (slot->flags & KVM_MEM_GUEST_MEMFD))
			return -EOPNOTSUPP;
		if (ram >= 0) {
			r = show(s, v, n, b, ram, addr, stop,
				 (addr - s->rams[ram]->addr) >> PAGE_SHIFT);
			continue;
		}
		addr = max(addr, vma->vm_start);
		stop = min(stop, vma->vm_end);
		ram = ram_of(s, vma);
		if (ram >= 0)
			r = show(s, v, n, b, ram, addr, stop,
				 vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT));
	}
	return r;
}

struct shown {
	u32 ram;
	u64 first;
	u64 end;
};

static int compare_shown(const void *a, const void *b)
{
	const struct shown *x = a, *y = b;

	if (x->ram != y->ram)
		return x->ram < y->ram ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorted; NULL: no memory. *n: how many. */
static struct shown *shown_in(const struct godwit_view *v, u32 as_id, unsigned int *n)
{
	struct shown *shown = kvmalloc_array(v->nr_pieces + 1, sizeof(*shown), GFP_KERNEL);
	unsigned int i;

	*n = 0;
	for (i = 0; shown && i < v->nr_pieces; i++) {
		const struct godwit_piece *p = &v->pieces[i];

		if (v->slots[p->slot].as_id == as_id)
			shown[(*n)++] = (struct shown){ p->ram, p->pgoff, p->pgoff + p->npages };
	}
	if (shown)
		sort(shown, *n, sizeof(*shown), compare_shown, NULL);
	return shown;
}

/* Counts as written the pages of all RAM that no slot of an address space shows. 0, -ENOMEM. */
int godwit_pieces_mark_hidden(struct godwit_session *s, const struct godwit_view *v, u32 as_id,
			      u64 *marked)
{
	unsigned int n, i = 0, ram;
	struct shown *shown = shown_in(v, as_id, &n);

	if (!shown)
		return -ENOMEM;
	for (ram = 0; ram < s->nr_rams; ram++) {
		struct godwit_ram *r = s->rams[ram];
		u64 next = 0;

		for (; i < n && shown[i].ram == ram; i++) {
			if (next < shown[i].first)
				*marked += godwit_ram_mark_changed(r, next, shown[i].first - next);
			next = max(next, shown[i].end);
		}
		*marked += godwit_ram_mark_changed(r, next, r->npages);
		cond_resched();
	}
	kvfree(shown);
	return 0;
}
