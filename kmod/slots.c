// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which memslots show which RAM file, and what to do when that changes.
 *
 * The VMM may add, delete and move memslots whenever it likes (a guest's reset, PCI BARs,
 * hotplug), and does not tell the module. So each harvest takes a new view of the slots and
 * compares it with the last one:
 *
 *	- a slot or a mapping that is new, or gone, counts as written throughout;
 *	- a slot whose log is off was made anew (or its log was switched
 *	  off): likewise, log on again;
 *	- a slot that was made anew with its log on (by the VMM's own migration) cannot always be
 *	  told from the old one. With manual_dirty_log_protect == 3 (QEMU's setting) it starts with
 *	  all bits set, so nothing is lost; else every change of the generation makes all RAM count
 *	  as written, also one between this look and the reading of the logs;
 *	- a slot that came and went between two views is in neither, its log went with it, and no
 *	  other row has what a vCPU wrote through an entry that was writable and clean already. So a
 *	  change of an address space's generation makes all count as written that no slot of it
 *	  shows: what the guest may write for a moment only (a reset: SeaBIOS writes below 1 MiB,
 *	  where slots are read-only before and after; SMM's RAM, that only SMM sees; BARs that
 *	  move). What a slot of the same address space shows all the time is looked for in that
 *	  slot's log: no VMM shows RAM twice for a moment. To be safe from one that does, all RAM
 *	  would have to count as written at every change; see harvest.c, "What is not seen".
 *
 * A generation that has moved by our own changes alone, which the view has counted, is no change.
 *
 * How flags are changed, and what can go wrong with it, is in slot_flags.c.
 *
 * A view has all slots that the guest may write, not just those that show our RAM files: where the
 * VMM maps something else behind a slot, the slot stays, and with it the log that we have switched
 * on.
 *
 * Views stand in the order of addresses, so two are compared in one pass. A VMM can have 65,528
 * slots, each over all of its 65,530 mappings, or all of its private RAMs; one that makes us look
 * at more than LOOKS_MAX of these is refused (-ENOSPC).
 */
#include <linux/kvm_host.h>
#include <linux/slab.h>

#include "compat.h"
#include "internal.h"

#define LOOKS_MAX	65536U	/* one for each slot that KVM can have */

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
		/* Once: the macro evaluates it many times, and KVM may swap the sets in between. */
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

/* Is the memory of a slot at addresses [start, end) of the VMM elsewhere, or there only in part? */
bool godwit_slots_guest_memfd(struct kvm *kvm, unsigned long start, unsigned long end)
{
	const struct kvm_memory_slot *slot;
	int as, bkt, idx;
	bool any = false;

	idx = srcu_read_lock(&kvm->srcu);
	for (as = 0; as < kvm_arch_nr_memslot_as_ids(kvm); as++) {
		struct kvm_memslots *slots = __kvm_memslots(kvm, as);

		kvm_for_each_memslot(slot, bkt, slots)
			any |= (slot->flags & KVM_MEM_GUEST_MEMFD) && slot->userspace_addr < end &&
			       start < slot->userspace_addr + (slot->npages << PAGE_SHIFT);
	}
	srcu_read_unlock(&kvm->srcu, idx);
	return any;
}

/*
 * Copies KVM's slots that the guest may write, in the order of their addresses, which no two of an
 * address space have in common. -EAGAIN: more came while we counted.
 */
static int read_slots(struct godwit_session *s, struct godwit_view *v)
{
	struct kvm *kvm = s->kvm;
	unsigned int max = godwit_slots_count(kvm, NULL) + 8;
	struct kvm_memslot_iter iter;
	int as, idx, r = 0;

	BUILD_BUG_ON(GODWIT_SPACES < KVM_MAX_NR_ADDRESS_SPACES);
	v->slots = kvcalloc(max, sizeof(*v->slots), GFP_KERNEL);
	if (!v->slots)
		return -ENOMEM;
	idx = srcu_read_lock(&kvm->srcu);
	for (as = 0; as < kvm_arch_nr_memslot_as_ids(kvm) && !r; as++) {
		struct kvm_memslots *slots = __kvm_memslots(kvm, as);

		v->generation[as] = slots->generation;
		kvm_for_each_memslot_in_gfn_range(&iter, slots, 0, ~0ULL) {
			const struct kvm_memory_slot *ks = iter.slot;

			if (ks->id >= KVM_USER_MEM_SLOTS || !GODWIT_SHOWS_WRITES(ks->flags))
				continue;
			if (v->nr_slots == max) {
				r = -EAGAIN;
				break;
			}
			v->slots[v->nr_slots++] = (struct godwit_slot) {
				.as_id = as, .id = ks->id, .flags = ks->flags,
				.base_gfn = ks->base_gfn, .npages = ks->npages,
				.hva = ks->userspace_addr,
				.identity = godwit_slot_identity(ks),
			};
		}
	}
	srcu_read_unlock(&kvm->srcu, idx);
	return r;
}

static int read_view(struct godwit_session *s, struct godwit_view *v)
{
	struct godwit_budget budget = { .looks = LOOKS_MAX };
	unsigned int i;
	int r;

	memset(v, 0, sizeof(*v));
	r = read_slots(s, v);
	if (!r) {
		mmap_read_lock(s->mm);
		for (i = 0; i < v->nr_slots && !r; i++) {
			r = godwit_pieces_of_slot(s, v, i, &budget);
			v->nr_shown += !!v->slots[i].nr_pieces;
		}
		mmap_read_unlock(s->mm);
	}
	if (r)
		godwit_view_free(v);
	return r;
}

static bool same_slot(const struct godwit_slot *a, const struct godwit_slot *b)
{
	return a->as_id == b->as_id && a->id == b->id && a->base_gfn == b->base_gfn &&
	       a->npages == b->npages && a->hva == b->hva && a->identity == b->identity;
}

static int compare_u64(u64 a, u64 b)
{
	return a < b ? -1 : a > b;
}

/* Where one stands before the other in the order of a view. */
static int compare_slots(const struct godwit_slot *a, const struct godwit_slot *b)
{
	return compare_u64(a->as_id, b->as_id) ?: compare_u64(a->base_gfn, b->base_gfn);
}

/* The logs of which slots are on because of us. */
static void carry_over(struct godwit_view *v, const struct godwit_view *old)
{
	unsigned int i, j = 0;

	for (i = 0; i < v->nr_slots; i++) {
		struct godwit_slot *slot = &v->slots[i];

		while (j < old->nr_slots && compare_slots(&old->slots[j], slot) < 0)
			j++;
		if (j < old->nr_slots && same_slot(&old->slots[j], slot))
			slot->ours = old->slots[j].ours;
	}
}

/* As compare_slots(), for pieces of two views. */
static int compare_pieces(const struct godwit_view *v, const struct godwit_piece *p,
			  const struct godwit_view *other, const struct godwit_piece *q)
{
	return compare_slots(&v->slots[p->slot], &other->slots[q->slot]) ?:
	       compare_u64(p->first, q->first);
}

static bool same_piece(const struct godwit_view *v, const struct godwit_piece *p,
		       const struct godwit_view *other, const struct godwit_piece *q)
{
	return p->ram == q->ram && p->first == q->first && p->npages == q->npages &&
	       p->pgoff == q->pgoff && same_slot(&v->slots[p->slot], &other->slots[q->slot]);
}

/* Counts as written what stands in v and not in the other view. */
static u64 mark_missing(struct godwit_session *s, const struct godwit_view *v,
			const struct godwit_view *other)
{
	unsigned int i, j = 0;
	u64 marked = 0;

	for (i = 0; i < v->nr_pieces; i++) {
		const struct godwit_piece *p = &v->pieces[i];

		while (j < other->nr_pieces && compare_pieces(other, &other->pieces[j], v, p) < 0)
			j++;
		if (j == other->nr_pieces || !same_piece(v, p, other, &other->pieces[j]))
			marked += godwit_ram_mark_changed(s->rams[p->ram], p->pgoff, p->npages);
		cond_resched();
	}
	return marked;
}

static u64 mark_slot(struct godwit_session *s, const struct godwit_slot *slot)
{
	u64 marked = 0;
	unsigned int i;

	for (i = slot->first_piece; i < slot->first_piece + slot->nr_pieces; i++) {
		const struct godwit_piece *p = &s->view.pieces[i];

		marked += godwit_ram_mark_changed(s->rams[p->ram], p->pgoff, p->npages);
	}
	return marked;
}

/* The log of a slot that shows our RAM files, which is off. */
static int switch_on(struct godwit_session *s, struct godwit_scratch *sc, struct godwit_slot *slot,
		     u64 *marked)
{
	int r;

	*marked += mark_slot(s, slot);
	if (s->state == GODWIT_STATE_STARTED &&
	    time_before(jiffies, s->changed_jiffies + msecs_to_jiffies(GODWIT_SETTLE_MS)))
		return 0;	/* a later harvest does it */
	r = godwit_slot_set_flags(s, sc, slot, slot->flags | KVM_MEM_LOG_DIRTY_PAGES);
	return r == -ENOENT ? -EAGAIN : r;
}

/*
 * Someone else has changed slots since the old view. What both views show is logged, or stands in
 * one of them alone; a slot that came and went in between stands in neither, and its log is gone.
 * v: the new view.
 */
static int mark_unseen(struct godwit_session *s, const struct godwit_view *v, u64 *marked)
{
	unsigned int i;
	int r = 0;

	if (s->kvm->manual_dirty_log_protect != 3) {
		for (i = 0; i < s->nr_rams; i++)
			*marked += godwit_ram_mark_changed(s->rams[i], 0, s->rams[i]->npages);
		return 0;
	}
	for (i = 0; i < GODWIT_SPACES && !r; i++)
		if (v->generation[i] != s->view.generation[i])
			r = godwit_pieces_mark_hidden(s, v, i, marked);
	return r;
}

static int refresh_once(struct godwit_session *s, struct godwit_scratch *sc, u64 *marked)
{
	struct godwit_view v;
	bool changed;
	unsigned int i;
	int r;

	r = read_view(s, &v);
	if (r)
		return r;
	carry_over(&v, &s->view);
	/* START has no view before its first, and counts everything as written. */
	changed = s->view.slots && memcmp(v.generation, s->view.generation, sizeof(v.generation));
	if (changed)
		r = mark_unseen(s, &v, marked);
	if (r) {
		godwit_view_free(&v);	/* the next harvest compares with the old one again */
		return r;
	}
	if (changed) {
		s->changes++;
		s->changed_jiffies = jiffies;
	}
	*marked += mark_missing(s, &v, &s->view) + mark_missing(s, &s->view, &v);
	swap(s->view, v);
	godwit_view_free(&v);

	for (i = 0; i < s->view.nr_slots && !r; i++) {
		struct godwit_slot *slot = &s->view.slots[i];

		if (slot->nr_pieces && !(slot->flags & KVM_MEM_LOG_DIRTY_PAGES))
			r = switch_on(s, sc, slot, marked);
	}
	return r;
}

/**
 * godwit_slots_refresh() - take a new view of the slots, switch on the log where it is off
 * @changed_pages: how many pages were marked as written because something changed
 *
 * Context: a job, with the mm borrowed. Return: 0; -EAGAIN when the VMM does
 * not stop changing slots.
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
