// SPDX-License-Identifier: GPL-2.0-only
/*
 * Retirement: the way back, in the background, slot by slot.
 *
 * Switching a slot's log off makes KVM zap what it had split, which can take long for large guests
 * and is the reason why it must not stand in any caller's way. Each slot whose log we have switched
 * on gets back the flags that were found, and only if it still is the slot that was found; what the
 * VMM changed meanwhile is its own.
 *
 * A VMM that wants the log, too, for a migration of its own, cannot be told from one that does not:
 * to ask for the flags that a slot has is no change, and leaves no trace in KVM. It would lose
 * writes. So it is the helper's part to keep its session open until its VMM has no migration under
 * way (user/txn/foreign.h); a helper that is killed has another process that holds the session.
 *
 * Between two slots there is a pause, and it goes on while the CPUs that run the VM are busy, up
 * to a limit: a guest that is never calm gets its huge pages back all the same. A task that waits
 * for the VM ends all pauses.
 */
#include <linux/cpufreq.h>
#include <linux/delay.h>
#include <linux/kvm_host.h>

#include "internal.h"
#include "trace.h"

#define RETIRE_TRIES	100

struct load {
	u64 idle_us;
	u64 wall_us;
};

/* Of all CPUs that a vCPU ran on last, each counted once a vCPU: the weight is the guest's. */
static struct load load_of(struct kvm *kvm)
{
	struct load sum = {};
	struct kvm_vcpu *vcpu;
	unsigned long i;

	/*
	 * On 6.1 the macro would go to the end of all numbers, where it may meet the first vCPU
	 * while that is being made, or freed because that failed.
	 */
	if (!atomic_read(&kvm->online_vcpus))
		return sum;
	kvm_for_each_vcpu(i, vcpu, kvm) {
		int cpu = READ_ONCE(vcpu->cpu);
		u64 wall;

		if (cpu < 0 || !cpu_online(cpu))
			continue;	/* not running: not busy either */
		sum.idle_us += get_cpu_idle_time(cpu, &wall, 0);
		sum.wall_us += wall;
	}
	return sum;
}

/*
 * Pauses, and returns how busy the VM's CPUs were meanwhile, in percent; 100
 * when that cannot be said.
 */
static unsigned int pause_and_look(struct godwit_session *s, unsigned int ms)
{
	struct load before = load_of(s->kvm), after;
	u64 idle, wall;

	godwit_slots_settle(s, ms);
	after = load_of(s->kvm);
	wall = after.wall_us - before.wall_us;
	idle = after.idle_us - before.idle_us;
	if (!wall)
		return 0;	/* no vCPU has run yet */
	/* A vCPU came, went or moved: the two sums are not of the same CPUs. Look again. */
	if ((s64)wall < 0 || idle > wall)
		return 100;
	return 100 - div64_u64(100 * idle, wall);
}

/* What is left of *busy_ms is how long this retirement may still wait for calm. */
static void pause_before_slot(struct godwit_session *s, unsigned int ms, unsigned int *busy_ms)
{
	unsigned int limit = READ_ONCE(godwit_tunables.retire_busy_percent);

	while (pause_and_look(s, ms) > limit && *busy_ms && !godwit_session_hurried(s)) {
		ms = min_t(unsigned int, GODWIT_SETTLE_MS, *busy_ms);
		*busy_ms -= ms;
	}
}

/* The mm is borrowed for one attempt at a time, so that an exiting VMM never waits for a pause. */
static int clear_log_flag(struct godwit_session *s, struct godwit_slot *slot)
{
	struct godwit_scratch sc = {};
	int r;

	r = godwit_borrow_mm(s);
	if (r)
		return r;
	r = godwit_slot_set_flags(s, &sc, slot, slot->flags & ~KVM_MEM_LOG_DIRTY_PAGES);
	godwit_scratch_unmap(&sc);
	godwit_return_mm(s);
	return r;
}

/* The VMM changes slots, or memory is short, the VMM's or ours: both pass. Only we would retry. */
static bool passes(int r)
{
	return r == -EAGAIN || r == -ENOMEM || r == -EFAULT;
}

static void retire_slot(struct godwit_session *s, struct godwit_slot *slot)
{
	u64 start = ktime_get_ns(), end = start;
	int tries, r;

	for (tries = 0; tries < RETIRE_TRIES; tries++) {
		r = clear_log_flag(s, slot);
		if (!passes(r))
			break;
		/* Even in a hurry: an attempt that follows at once fails like the last one. */
		msleep(r == -EAGAIN ? 1 : 10);
	}
	godwit_stats_spent(s, GODWIT_PHASE_RETIRE, &end);
	trace_godwit_retire(s, slot, end - start, r);
	if (r && r != -ENOENT && r != -EOWNERDEAD)
		pr_warn_ratelimited("godwit: dirty logging stays on in memslot %u:%u (error %d); the VMM's next migration ends it\n",
				    slot->as_id, slot->id, r);
}

/* All slots whose log is on because of us. */
static void retire_slots(struct godwit_session *s)
{
	unsigned int busy_ms = READ_ONCE(godwit_tunables.retire_busy_wait_ms), pause_ms = 0, i;

	for (i = 0; i < s->view.nr_slots && !READ_ONCE(s->vm_gone); i++) {
		if (!s->view.slots[i].ours)
			continue;
		pause_before_slot(s, pause_ms, &busy_ms);
		retire_slot(s, &s->view.slots[i]);
		pause_ms = READ_ONCE(godwit_tunables.retire_pause_ms);
	}
}

void godwit_retire_work(struct work_struct *work)
{
	struct godwit_session *s = container_of(to_delayed_work(work), struct godwit_session,
						retire);
	u64 start = ktime_get_ns();
	unsigned int i;

	mutex_lock(&s->lock);
	s->state = GODWIT_STATE_RETIRING;
	godwit_block_untrack(s);
	retire_slots(s);
	if (s->mm) {
		if (READ_ONCE(s->vm_gone))
			godwit_netlink_event(s, GODWIT_CMD_VM_GONE);
		trace_godwit_detach(s, READ_ONCE(s->vm_gone), ktime_get_ns() - start);
	}
	godwit_view_free(&s->view);
	/* Before the files go: a watch's spans point to them. */
	godwit_watch_free(s);
	for (i = 0; i < s->nr_rams; i++)
		godwit_ram_drop_file(s->rams[i]);
	godwit_session_retired(s);	/* unlocks */
}
