// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changing the flags of a memslot that belongs to the VMM, which may change
 * or delete it at any time.
 *
 * Changing flags has a race: KVM_SET_USER_MEMORY_REGION changes a slot that exists, and creates
 * one that does not. If the VMM deletes the slot after we looked and before KVM takes
 * slots_lock, we would create it again; and the VMM, which may make another one in its place
 * now, would see that fail. There is no lock that we could hold across the ioctl, so three
 * things keep it away, and one repairs it:
 *
 *	- VMMs change slots in bursts (a guest's reset): while the last change is younger than
 *	  GODWIT_SETTLE_MS, flags are left alone, and what is not logged counts as written;
 *	- the last look is under slots_lock, and nothing but a copy of the arguments, which lie
 *	  ready, is between its unlocking and KVM's locking it: well below a microsecond;
 *	- a call that finds slots_lock taken gives up, and its caller comes back later;
 *	- after the ioctl we look again: if the slot is another object than before (the
 *	  metadata that KVM keeps through a change of flags and makes anew for a new
 *	  slot), it is deleted at once.
 */
#include <linux/kvm_host.h>

#include "compat.h"
#include "internal.h"

/*
 * Context: under kvm->srcu; the result is good until it is unlocked. NULL: that slot is no more.
 * Compares what user space named it by, not the identity.
 */
const struct kvm_memory_slot *godwit_slot_find(struct godwit_session *s,
					       const struct godwit_slot *slot)
{
	const struct kvm_memory_slot *ks = id_to_memslot(__kvm_memslots(s->kvm, slot->as_id),
							 slot->id);

	if (!ks || ks->base_gfn != slot->base_gfn || ks->npages != slot->npages ||
	    ks->userspace_addr != slot->hva || !GODWIT_SHOWS_WRITES(ks->flags))
		return NULL;
	return ks;
}

/* KVM keeps this array through a change of flags and allocates another one for a new slot. */
const void *godwit_slot_identity(const struct kvm_memory_slot *ks)
{
	return ks->arch.lpage_info[0];
}

static int look(struct godwit_session *s, const struct godwit_slot *slot, const void **id,
		u32 *flags)
{
	const struct kvm_memory_slot *ks;
	int idx, r = -ENOENT;

	idx = srcu_read_lock(&s->kvm->srcu);
	ks = godwit_slot_find(s, slot);
	if (ks) {
		*id = godwit_slot_identity(ks);
		*flags = ks->flags;
		r = 0;
	}
	srcu_read_unlock(&s->kvm->srcu, idx);
	return r;
}

/**
 * godwit_slot_set_flags() - change the flags of a slot that is still the one we know
 * @slot: its flags are updated on success
 *
 * Return: 0; -EAGAIN: the VMM changes slots right now; -ENOENT: that slot is
 * no more; what KVM answers.
 */
int godwit_slot_set_flags(struct godwit_session *s, struct godwit_scratch *sc,
			  struct godwit_slot *slot, u32 flags)
{
	const void *before, *after;
	u32 now;
	int r;

	r = godwit_kvm_stage_region(sc, slot, flags, slot->npages);
	if (r)
		return r;
	if (!mutex_trylock(&s->kvm->slots_lock))
		return -EAGAIN;
	r = look(s, slot, &before, &now);
	if (!r && before != slot->identity)
		r = -ENOENT;
	mutex_unlock(&s->kvm->slots_lock);
	if (r)
		return r;
	r = godwit_kvm_set_region(s, sc);
	/* -EINVAL, -EEXIST: the slot, or its place, was taken by something else in between. */
	if (r)
		return r == -EINVAL || r == -EEXIST ? -EAGAIN : r;
	if (look(s, slot, &after, &now) || after == before) {
		slot->flags = flags;
		/*
		 * Our own change, as KVM counts it, is no news. Were it counted otherwise, the next
		 * comparison would see a change that is none; it never overlooks one.
		 */
		s->view.generation[slot->as_id] += kvm_arch_nr_memslot_as_ids(s->kvm);
		return 0;
	}
	/* The slot was deleted in between and the ioctl made it anew; see above. */
	if (!godwit_kvm_stage_region(sc, slot, 0, 0))
		godwit_kvm_set_region(s, sc);
	return -EAGAIN;
}

/* Of each address space: changes with every change of a slot of it. */
void godwit_slots_generation(struct godwit_session *s, u64 *generation)
{
	int as, idx;

	memset(generation, 0, GODWIT_SPACES * sizeof(*generation));
	idx = srcu_read_lock(&s->kvm->srcu);
	for (as = 0; as < kvm_arch_nr_memslot_as_ids(s->kvm); as++)
		generation[as] = __kvm_memslots(s->kvm, as)->generation;
	srcu_read_unlock(&s->kvm->srcu, idx);
}

bool godwit_slots_changed(struct godwit_session *s, const u64 *since)
{
	u64 now[GODWIT_SPACES];

	godwit_slots_generation(s, now);
	return memcmp(now, since, sizeof(now));
}

/**
 * godwit_slots_settle() - pause, and go on until the VMM has left its slots alone meanwhile
 * @ms: of one pause; at least GODWIT_SETTLE_MS
 *
 * Ends after some tries, or when a task waits, whatever the VMM does: it only makes a race rarer.
 */
void godwit_slots_settle(struct godwit_session *s, unsigned int ms)
{
	u64 before[GODWIT_SPACES];
	int tries = 20;

	do {
		godwit_slots_generation(s, before);
		godwit_session_pause(s, max_t(unsigned int, ms, GODWIT_SETTLE_MS));
	} while (godwit_slots_changed(s, before) && --tries && !godwit_session_hurried(s));
}
