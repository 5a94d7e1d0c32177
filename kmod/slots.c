// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which memslots show which RAM file, and what to do when that changes.
 *
 * The VMM may add, delete and move memslots whenever it likes (a guest's reset, PCI BARs, hotplug), and
 * tells nobody. So each harvest takes a new view of the slots and compares it with the last one:
 *
 *	- a slot or a mapping that is new, or gone, counts as written throughout;
 *	- a slot whose log is off was made anew (or switched off by somebody): likewise, log on again;
 *	- a slot that was made anew with its log on (by the VMM's own migration) cannot always be told from
 *	  the old one. With manual_dirty_log_protect == 3 (QEMU's setting) it starts with all bits set, so
 *	  nothing is lost; else every change of the generation makes all of them count as written.
 *
 * How flags are changed, and what can go wrong with it, is in slot_flags.c.
 */
#include <linux/kvm_host.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"

void godwit_view_free(struct godwit_view *v)
{
	kvfree(v->slots);
	kvfree(v->pieces);
	memset(v, 0, sizeof(*v));
}

/* logged: how many of them have their dirty log on; may be NULL. */
unsigned int godwit_slots_count(struct kvm *kvm, unsigned int *logged)
{
	const struct kvm_memory_slot *slot;
	unsigned int n = 0, on = 0;
	int as, bkt, idx;

	idx = srcu_read_lock(&kvm->srcu);
	for (as = 0; as < kvm_arch_nr_memslot_as_ids(kvm); as++) {
		/* Once: the macro evaluates it again and again, and KVM may swap the sets in between. */
		struct kvm_memslots *slots = __kvm_memslots(kvm, as);

		kvm_for_each_memslot(slot, bkt, slots) {
			n++;
			on += !!(slot->flags & KVM_MEM_LOG_DIRTY_PAGES);
		}
	}
	srcu_read_unlock(&kvm->srcu, idx);
	if (logged)
		*logged = on;
	return n;
}

/* Copies KVM's slots that the guest may write. -EAGAIN: more came while we counted. */
static int read_slots(struct godwit_session *s, struct godwit_view *v)
{
	struct kvm *kvm = s->kvm;
	const struct kvm_memory_slot *ks;
	unsigned int max = godwit_slots_count(kvm, NULL) + 8, n = 0;
	int as, bkt, idx, r = 0;

	v->slots = kvcalloc(max, sizeof(*v->slots), GFP_KERNEL);
	if (!v->slots)
		return -ENOMEM;
	v->generation = 0;
	idx = srcu_read_lock(&kvm->srcu);
	for (as = 0; as < kvm_arch_nr_memslot_as_ids(kvm); as++) {
		struct kvm_memslots *slots = __kvm_memslots(kvm, as);

		v->generation += slots->generation;
		kvm_for_each_memslot(ks, bkt, slots) {
			if (ks->id >= KVM_USER_MEM_SLOTS || !GODWIT_SHOWS_WRITES(ks->flags))
				continue;
			if (n == max) {
				r = -EAGAIN;
				break;
			}
			v->slots[n++] = (struct godwit_slot) {
				.as_id = as, .id = ks->id, .flags = ks->flags, .given = ks->flags,
				.base_gfn = ks->base_gfn, .npages = ks->npages, .hva = ks->userspace_addr,
				.identity = godwit_slot_identity(ks),
			};
		}
	}
	srcu_read_unlock(&kvm->srcu, idx);
	v->nr_slots = n;
	return r;
}

static int add_piece(struct godwit_view *v, unsigned int *max, const struct godwit_piece *p)
{
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

/* Splits slot number n by the mappings behind it, and drops it from the view if none is ours. */
static int map_slot(struct godwit_session *s, struct godwit_view *v, unsigned int n, unsigned int *max)
{
	const struct godwit_slot *slot = &v->slots[n];
	unsigned long addr = slot->hva, end = slot->hva + (slot->npages << PAGE_SHIFT);
	struct vm_area_struct *vma;
	int ram, r = 0;

	while (!r && addr < end && (vma = find_vma(s->mm, addr)) && vma->vm_start < end) {
		struct godwit_piece p = { .slot = n };
		unsigned long stop = min(end, vma->vm_end);

		addr = max(addr, vma->vm_start);
		ram = ram_of(s, vma);
		if (ram >= 0) {
			p.ram = ram;
			p.first = (addr - slot->hva) >> PAGE_SHIFT;
			p.npages = (stop - addr) >> PAGE_SHIFT;
			p.pgoff = vma->vm_pgoff + ((addr - vma->vm_start) >> PAGE_SHIFT);
			if (p.pgoff + p.npages > s->rams[ram]->npages)
				return -EFBIG;	/* the file grew under us: its bitmap has no room */
			r = add_piece(v, max, &p);
		}
		addr = stop;
	}
	return r;
}

static int read_view(struct godwit_session *s, struct godwit_view *v)
{
	unsigned int i, first, kept = 0, max = 0;
	int r;

	memset(v, 0, sizeof(*v));
	r = read_slots(s, v);
	if (r)
		goto fail;
	mmap_read_lock(s->mm);
	for (i = 0; i < v->nr_slots && !r; i++) {
		first = v->nr_pieces;
		v->slots[kept] = v->slots[i];
		r = map_slot(s, v, kept, &max);
		if (v->nr_pieces > first)
			kept++;
	}
	mmap_read_unlock(s->mm);
	v->nr_slots = kept;
	if (!r)
		return 0;
fail:
	godwit_view_free(v);
	return r;
}

static bool same_slot(const struct godwit_slot *a, const struct godwit_slot *b)
{
	return a->as_id == b->as_id && a->id == b->id && a->base_gfn == b->base_gfn && a->npages == b->npages &&
	       a->hva == b->hva && a->identity == b->identity;
}

static struct godwit_slot *find_same(struct godwit_view *v, const struct godwit_slot *slot)
{
	unsigned int i;

	for (i = 0; i < v->nr_slots; i++)
		if (same_slot(&v->slots[i], slot))
			return &v->slots[i];
	return NULL;
}

/* Is piece p of view v in the other view too, in a slot that is the same? */
static bool same_piece(struct godwit_view *v, const struct godwit_piece *p, struct godwit_view *other)
{
	unsigned int i;

	for (i = 0; i < other->nr_pieces; i++) {
		const struct godwit_piece *q = &other->pieces[i];

		if (p->ram == q->ram && p->first == q->first && p->npages == q->npages && p->pgoff == q->pgoff &&
		    same_slot(&v->slots[p->slot], &other->slots[q->slot]))
			return true;
	}
	return false;
}

/* Counts as written what stands in v and not in the other view. */
static u64 mark_missing(struct godwit_session *s, struct godwit_view *v, struct godwit_view *other)
{
	u64 marked = 0;
	unsigned int i;

	for (i = 0; i < v->nr_pieces; i++) {
		const struct godwit_piece *p = &v->pieces[i];

		if (!same_piece(v, p, other))
			marked += godwit_ram_mark_changed(s->rams[p->ram], p->pgoff, p->npages);
	}
	return marked;
}

static u64 mark_slot(struct godwit_session *s, struct godwit_view *v, unsigned int slot)
{
	u64 marked = 0;
	unsigned int i;

	for (i = 0; i < v->nr_pieces; i++)
		if (v->pieces[i].slot == slot)
			marked += godwit_ram_mark_changed(s->rams[v->pieces[i].ram], v->pieces[i].pgoff,
							  v->pieces[i].npages);
	return marked;
}

static int refresh_once(struct godwit_session *s, struct godwit_scratch *sc, u64 *marked)
{
	struct godwit_view v;
	unsigned int i;
	int r;

	r = read_view(s, &v);
	if (r)
		return r;
	/* Remember what was given before KVM is changed: whatever fails below, retirement knows. */
	for (i = 0; i < v.nr_slots; i++) {
		struct godwit_slot *old = find_same(&s->view, &v.slots[i]);

		if (old)
			v.slots[i].given = old->given;
	}
	if (v.generation != s->view.generation && s->view.nr_slots) {
		s->changes++;
		s->changed_jiffies = jiffies;
		if (s->kvm->manual_dirty_log_protect != 3)
			for (i = 0; i < v.nr_slots; i++)
				*marked += mark_slot(s, &v, i);
	}
	*marked += mark_missing(s, &v, &s->view) + mark_missing(s, &s->view, &v);
	swap(s->view, v);
	godwit_view_free(&v);

	for (i = 0; i < s->view.nr_slots; i++) {
		struct godwit_slot *slot = &s->view.slots[i];

		if (slot->flags & KVM_MEM_LOG_DIRTY_PAGES)
			continue;
		*marked += mark_slot(s, &s->view, i);
		if (s->state == GODWIT_STATE_STARTED &&
		    time_before(jiffies, s->changed_jiffies + msecs_to_jiffies(GODWIT_SETTLE_MS)))
			continue;	/* a later harvest does it */
		r = godwit_slot_set_flags(s, sc, slot, slot->flags | KVM_MEM_LOG_DIRTY_PAGES);
		if (r)
			return r == -ENOENT ? -EAGAIN : r;
	}
	return 0;
}

/**
 * godwit_slots_refresh() - take a new view of the slots, switch on the log where it is off
 * @changed_pages: how many pages were marked as written because something changed
 *
 * Context: a job, with the mm borrowed. Return: 0; -EAGAIN when the VMM does not stop changing slots.
 */
int godwit_slots_refresh(struct godwit_session *s, struct godwit_scratch *sc, u64 *changed_pages)
{
	int tries, r;

	for (tries = 0; tries < 200; tries++) {
		r = refresh_once(s, sc, changed_pages);
		if (r != -EAGAIN)
			break;
		godwit_session_pause(s, 5);
	}
	return r;
}
