// SPDX-License-Identifier: GPL-2.0-only
/*
 * Retirement: the way back, in the background, slot by slot.
 *
 * Switching a slot's log off makes KVM zap what it had split, which can take long for large guests and
 * is the reason why it must not stand in anybody's way. Each slot gets back the flags that were found,
 * and only if it still is the slot that was found; what the VMM changed meanwhile is its own.
 */
#include "internal.h"

#include <linux/kvm_host.h>

static void retire_slot(struct godwit_session *s, struct godwit_slot *slot)
{
	struct godwit_scratch sc;
	int tries, r = -EAGAIN;

	if (slot->given & KVM_MEM_LOG_DIRTY_PAGES)
		return;		/* it was on before we came */
	/* The mm is borrowed for one slot at a time, so that an exiting VMM never waits for a pause. */
	if (godwit_borrow_mm(s))
		return;
	r = godwit_scratch_map(&sc);
	if (!r) {
		for (tries = 0; tries < 100; tries++) {
			r = godwit_slot_set_flags(s, &sc, slot, slot->flags & ~KVM_MEM_LOG_DIRTY_PAGES);
			if (r != -EAGAIN)
				break;
			godwit_session_pause(s, 1);
		}
		godwit_scratch_unmap(&sc);
	}
	godwit_return_mm(s);
	if (r && r != -ENOENT)
		pr_warn("godwit: dirty logging stays on in memslot %u:%u (error %d); the VMM's next migration ends it\n",
			slot->as_id, slot->id, r);
}

void godwit_retire_work(struct work_struct *work)
{
	struct godwit_session *s = container_of(to_delayed_work(work), struct godwit_session, retire);
	unsigned int i;

	mutex_lock(&s->lock);
	s->state = GODWIT_RETIRED;
	godwit_block_untrack(s);
	for (i = 0; i < s->view.nr_slots && !READ_ONCE(s->vm_gone); i++) {
		if (i)
			godwit_session_pause(s, godwit_retire_pause_ms());
		retire_slot(s, &s->view.slots[i]);
	}
	godwit_view_free(&s->view);
	/* Before the files go: a watch's spans point to them. */
	godwit_watch_free(s);
	for (i = 0; i < s->nr_rams; i++)
		godwit_ram_drop_file(s->rams[i]);
	godwit_session_retired(s);	/* unlocks */
}
