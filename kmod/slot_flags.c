// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changing the flags of a memslot that belongs to the VMM, which may change
 * or delete it at any time.
 *
 * Changing flags has a race: KVM_SET_USER_MEMORY_REGION changes a slot that exists, and creates
 * one that does not. If the VMM deletes the slot after we looked and before KVM takes
 * slots_lock, we would create it again; and the VMM, which may make another one in its place
 * now, would see that fail. There is no lock that we could hold across the ioctl, so three
 * things keep it away, and one repairs what it can:
 *
 *	- VMMs change slots in bursts (a guest's reset): while the last change is younger than
 *	  GODWIT_SETTLE_MS, flags are left alone, and what is not logged counts as written;
 *	- the last look is under slots_lock, and nothing but a copy of the arguments, which lie
 *	  ready, is between its unlocking and KVM's locking it: well below a microsecond;
 *	- a call that finds slots_lock taken gives up, and its caller comes back later;
 *	- after the ioctl we look again, at KVM's generation of the address space as well, which
 *	  KVM moves on by one step for a slot that is made or has its flags changed, and by two for
 *	  one that is deleted or moved (Linux 6.1 to 7.3):
 *
 *		one step	One change: the slot is the one that we knew.
 *		three steps	If the slot is another object than before (the metadata that KVM
 *				keeps through a change of flags and makes anew for a new slot), it
 *				was deleted, and our ioctl made it: it is deleted again, unless the
 *				VMM changes slots at this moment, too.
 *		else		The VMM has changed slots, this one perhaps; ours was a change of
 *				flags, most likely. The slot stays, as it may be the VMM's: without
 *				it RAM of the guest would be gone. Who asked for it looks anew.
 *
 * What this cannot tell: three steps are also a slot that the VMM itself deleted and made anew
 * with just the flags that we want, so that our ioctl did nothing. To switch a log off that is what
 * every VMM makes; but it would have to do both between the last look and the ioctl, and QEMU makes
 * no slot again that it has just deleted. One step is also a log that the VMM switched on in that
 * moment, and any other number may have one: that log is taken for ours. A slot that our ioctl
 * made stays if the VMM changes more of them then, or KVM finds room for the new metadata where the
 * old one was; and one that the VMM moved then, which QEMU never does, is back in its place.
 */
#include <linux/kvm_host.h>

#include "compat.h"
#include "internal.h"

static const struct kvm_memory_slot *find_in(struct kvm_memslots *slots,
					     const struct godwit_slot *slot)
{
	const struct kvm_memory_slot *ks = id_to_memslot(slots, slot->id);

	if (!ks || ks->base_gfn != slot->base_gfn || ks->npages != slot->npages ||
	    ks->userspace_addr != slot->hva || !GODWIT_SHOWS_WRITES(ks->flags))
		return NULL;
	return ks;
}

/*
 * Context: under kvm->srcu; the result is good until it is unlocked. NULL: that slot is no more.
 * Compares what user space named it by, not the identity.
 */
const struct kvm_memory_slot *godwit_slot_find(struct godwit_session *s,
					       const struct godwit_slot *slot)
{
	return find_in(__kvm_memslots(s->kvm, slot->as_id), slot);
}

/* KVM keeps this array through a change of flags and allocates another one for a new slot. */
const void *godwit_slot_identity(const struct kvm_memory_slot *ks)
{
	return ks->arch.lpage_info[0];
}

/**
 * struct sight - of a slot, and of its address space at the same moment
 * @identity: NULL: it is no more
 * @flags: if it is
 */
struct sight {
	const void *identity;
	u32 flags;
	u64 generation;
};

static struct sight look(struct godwit_session *s, const struct godwit_slot *slot)
{
	const struct kvm_memory_slot *ks;
	struct kvm_memslots *slots;
	struct sight now = {};
	int idx;

	idx = srcu_read_lock(&s->kvm->srcu);
	slots = __kvm_memslots(s->kvm, slot->as_id);
	now.generation = slots->generation;
	ks = find_in(slots, slot);
	if (ks) {
		now.identity = godwit_slot_identity(ks);
		now.flags = ks->flags;
	}
	srcu_read_unlock(&s->kvm->srcu, idx);
	return now;
}

/* What has our ioctl done, which KVM says has worked? See above. */
static int conclude(struct godwit_session *s, struct godwit_scratch *sc, struct godwit_slot *slot,
		    u32 flags, const struct sight *before)
{
	u64 step = kvm_arch_nr_memslot_as_ids(s->kvm);
	bool quiet = mutex_trylock(&s->kvm->slots_lock);
	struct sight now = look(s, slot);

	/* Else the VMM may be making the slot that we would delete. */
	if (quiet)
		mutex_unlock(&s->kvm->slots_lock);
	if (now.generation == before->generation + step) {
		slot->flags = flags;
		slot->ours = flags & KVM_MEM_LOG_DIRTY_PAGES;
		/*
		 * No news for the next view, which would find a change if KVM counted otherwise. If
		 * the VMM has changed slots since this view, it still does.
		 */
		s->view.generation[slot->as_id] += step;
		return 0;
	}
	if (quiet && now.identity && now.identity != before->identity &&
	    now.generation == before->generation + 3 * step) {
		if (!godwit_kvm_stage_region(sc, slot, 0, 0))
			godwit_kvm_set_region(s, sc);
		return -EAGAIN;
	}
	/*
	 * The log of what is there now is on because of us, most likely: VMMs make slots without.
	 * To the next view it is the slot that we knew: all of it counts as written, since it was
	 * not logged until now.
	 */
	if (now.identity && flags & now.flags & KVM_MEM_LOG_DIRTY_PAGES) {
		slot->identity = now.identity;
		slot->ours = true;
	}
	return -EAGAIN;
}

/**
 * godwit_slot_set_flags() - change the flags of a slot that is still the one we know
 * @slot: its flags, and whether its log is ours, are updated
 *
 * Return: 0; -EAGAIN: the VMM changes slots right now; -ENOENT: that slot is
 * no more; what KVM answers.
 */
int godwit_slot_set_flags(struct godwit_session *s, struct godwit_scratch *sc,
			  struct godwit_slot *slot, u32 flags)
{
	struct sight before;
	int r;

	r = godwit_kvm_stage_region(sc, slot, flags, slot->npages);
	if (r)
		return r;
	godwit_pause_in_harvest(GODWIT_PAUSE_LAST_LOOK);
	if (!mutex_trylock(&s->kvm->slots_lock))
		return -EAGAIN;
	before = look(s, slot);
	mutex_unlock(&s->kvm->slots_lock);
	godwit_pause_in_harvest(GODWIT_PAUSE_FLAGS);
	if (before.identity != slot->identity)
		return -ENOENT;
	if (before.flags == flags) {
		/* The VMM was first: its log, and a change that the next view is to find. */
		slot->flags = flags;
		return 0;
	}
	r = godwit_kvm_set_region(s, sc);
	/* -EINVAL, -EEXIST: the slot, or its place, was taken by something else in between. */
	if (r)
		return r == -EINVAL || r == -EEXIST ? -EAGAIN : r;
	return conclude(s, sc, slot, flags, &before);
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
