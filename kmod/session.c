// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a session.
 *
 * A session is born by open(), works in jobs (job.c), and retires once: when its file is closed (by
 * whatever death of its owner) or when the VM's mm is torn down.
 *
 * A VM has one owner at a time. A session that retires still owns its VM; a caller that
 * attaches meanwhile hurries it and waits for it. A RAM file has one as well, from START on,
 * see godwit_block_track().
 */
#include <linux/file.h>
#include <linux/kvm_host.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "compat.h"
#include "internal.h"
#include "job.h"
#include "trace.h"

DEFINE_MUTEX(godwit_sessions_lock);		/* the list, session->kvm and ->retiring */
static LIST_HEAD(sessions);			/* by id */
static u32 last_id;
static DECLARE_WAIT_QUEUE_HEAD(retired_wait);	/* a session left the list, or should hurry */
static bool draining;				/* the module goes: no session pauses any more */

/* ERR_PTR: -ENOMEM; -EAGAIN: the module is not quite there yet. */
struct godwit_session *godwit_session_new(void)
{
	struct godwit_session *s = kzalloc(sizeof(*s), GFP_KERNEL_ACCOUNT);
	int r;

	if (!s)
		return ERR_PTR(-ENOMEM);
	kobject_init(&s->kobj, &godwit_session_ktype);	/* one reference: the open file's */
	mutex_init(&s->lock);
	INIT_LIST_HEAD(&s->node);
	INIT_LIST_HEAD(&s->watches);
	INIT_DELAYED_WORK(&s->retire, godwit_retire_work);
	s->owner_pid = task_tgid_nr(current);
	get_task_comm(s->owner_comm, current);

	mutex_lock(&godwit_sessions_lock);
	s->id = ++last_id;
	r = godwit_stats_publish(s);
	if (!r) {
		list_add_tail(&s->node, &sessions);
		godwit_session_get(s);		/* the list's, until retired */
	}
	mutex_unlock(&godwit_sessions_lock);
	if (r) {
		godwit_session_put(s);
		return ERR_PTR(r);
	}
	return s;
}

void godwit_session_free(struct kobject *kobj)
{
	struct godwit_session *s = container_of(kobj, struct godwit_session, kobj);
	unsigned int i;

	for (i = 0; i < s->nr_rams; i++)
		godwit_ram_free(s->rams[i]);
	mutex_destroy(&s->lock);
	kfree(s);
}

void godwit_session_get(struct godwit_session *s)
{
	kobject_get(&s->kobj);
}

void godwit_session_put(struct godwit_session *s)
{
	kobject_put(&s->kobj);
}

struct godwit_session *godwit_session_next(u32 id)
{
	struct godwit_session *s, *found = NULL;

	mutex_lock(&godwit_sessions_lock);
	list_for_each_entry(s, &sessions, node) {
		if (s->id >= id) {
			godwit_session_get(s);
			found = s;
			break;
		}
	}
	mutex_unlock(&godwit_sessions_lock);
	return found;
}

enum godwit_state godwit_session_state(const struct godwit_session *s)
{
	return READ_ONCE(s->retiring) ? GODWIT_STATE_RETIRING : READ_ONCE(s->state);
}

static struct godwit_session *owner_of(struct kvm *kvm)
{
	struct godwit_session *s;

	lockdep_assert_held(&godwit_sessions_lock);
	list_for_each_entry(s, &sessions, node)
		if (s->kvm == kvm)
			return s;
	return NULL;
}

/* Ends the delay before a retirement, and its pauses. One under way must not be queued again. */
static void hurry(struct godwit_session *s)
{
	lockdep_assert_held(&godwit_sessions_lock);
	WRITE_ONCE(s->hurry, true);
	if (cancel_delayed_work(&s->retire))
		queue_delayed_work(godwit_wq, &s->retire, 0);
}

/* Hurries a session if it retires. False: it does not; true also if it is gone. */
bool godwit_session_hurry(u32 id)
{
	struct godwit_session *s;
	bool retires = true;

	mutex_lock(&godwit_sessions_lock);
	list_for_each_entry(s, &sessions, node) {
		if (s->id != id)
			continue;
		retires = s->retiring;
		if (retires)
			hurry(s);
	}
	mutex_unlock(&godwit_sessions_lock);
	if (retires)
		wake_up_all(&retired_wait);
	return retires;
}

/* -EAGAIN: a retiring session has the VM and was told to hurry. */
static int claim(struct godwit_session *s, struct kvm *kvm)
{
	struct godwit_session *owner;
	bool news = false;
	int r = 0;

	mutex_lock(&godwit_sessions_lock);
	owner = owner_of(kvm);
	if (s->kvm || s->retiring || (owner && !owner->retiring)) {
		r = -EBUSY;
	} else if (owner) {
		news = !owner->hurry;
		hurry(owner);
		r = -EAGAIN;
	} else {
		s->kvm = kvm;
	}
	mutex_unlock(&godwit_sessions_lock);
	/* Once: it wakes us, too. */
	if (news)
		wake_up_all(&retired_wait);
	return r;
}

/* claim(), and waits for a session that retires. -EINTR: killed meanwhile. */
static int wait_claim(struct godwit_session *s, struct kvm *kvm)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	int r;

	add_wait_queue(&retired_wait, &wait);
	while ((r = claim(s, kvm)) == -EAGAIN && !fatal_signal_pending(current))
		wait_woken(&wait, TASK_KILLABLE, MAX_SCHEDULE_TIMEOUT);
	remove_wait_queue(&retired_wait, &wait);
	return r == -EAGAIN ? -EINTR : r;
}

/* What attaching undoes: also the last step of retirement. */
static void release_vm(struct godwit_session *s)
{
	if (s->mm) {
		kvm_put_kvm(s->kvm);	/* not the last one: vm_file has another */
		mmdrop(s->mm);
	}
	s->mm = NULL;
	if (s->vm_file)
		fput(s->vm_file);
	s->vm_file = NULL;
	mutex_lock(&godwit_sessions_lock);
	s->kvm = NULL;
	mutex_unlock(&godwit_sessions_lock);
	wake_up_all(&retired_wait);
}

static int job_attach(struct godwit_session *s, void *arg)
{
	struct godwit_attach *a = arg;
	int r;

	/*
	 * vm_file would keep it as well. But we look into struct kvm, whose layout hangs on how KVM
	 * was built: a kernel with module versions does not load us if this function's type, and so
	 * the struct, is not the one that we were built with.
	 */
	kvm_get_kvm(s->kvm);
	s->mm = s->kvm->mm;
	mmgrab(s->mm);
	r = godwit_kvm_refuse_encrypted(s);
	if (!r)
		r = godwit_watch_vm(s);
	if (r) {
		release_vm(s);
		return r;
	}
	WRITE_ONCE(s->vm_pid, s->kvm->userspace_pid);
	WRITE_ONCE(s->state, GODWIT_STATE_ATTACHED);
	a->abi = GODWIT_ABI_VERSION;
	a->flags = GODWIT_CAN_PRIVATE | GODWIT_CAN_UFFD;
	a->manual_protect = s->kvm->manual_dirty_log_protect;
	a->memslots = godwit_slots_count(s->kvm, &a->logged);
	trace_godwit_attach(s, a);
	godwit_netlink_event(s, GODWIT_CMD_ATTACHED);
	return 0;
}

int godwit_session_attach(struct godwit_session *s, struct godwit_attach *arg, struct file *vm_file)
{
	struct kvm *kvm;
	struct godwit_job *job;
	int r;

	if (!godwit_is_kvm_vm(vm_file))
		return -EMEDIUMTYPE;
	kvm = vm_file->private_data;
	if (kvm->dirty_ring_size || kvm_arch_has_private_mem(kvm))
		return -EOPNOTSUPP;
	/*
	 * What switches a log on waits for each vCPU in KVM, and one of them may wait for a page.
	 * A keep that comes later than this is of a helper that has the VM to itself (user/claim/).
	 */
	if (godwit_keep_has(kvm->mm))
		return -EINPROGRESS;

	/* Before the claim, which only a job that runs can undo. */
	job = godwit_job_new(s, job_attach, arg, sizeof(*arg));
	if (!job)
		return -ENOMEM;
	r = wait_claim(s, kvm);
	if (r) {
		godwit_job_put(job);
		return r;
	}
	/* Ours from here on: the claim lets no other caller write s->vm_file. */
	s->vm_file = get_file(vm_file);
	return godwit_job_run(job, arg, sizeof(*arg));
}

/**
 * godwit_session_retire() - begin to give everything back; later calls change nothing
 * @delay_ms: how long to wait before KVM is touched
 *
 * Context: any that may sleep; also MMU notifier release. Returns at once.
 */
void godwit_session_retire(struct godwit_session *s, unsigned int delay_ms)
{
	mutex_lock(&godwit_sessions_lock);
	if (!s->retiring) {
		WRITE_ONCE(s->retiring, true);
		queue_delayed_work(godwit_wq, &s->retire,
				   msecs_to_jiffies(draining ? 0 : delay_ms));
	}
	mutex_unlock(&godwit_sessions_lock);
}

/* The retirement is over: called by it, last of all; s may be gone afterwards. */
void godwit_session_retired(struct godwit_session *s)
{
	bool had_vm = s->mm;

	release_vm(s);
	mutex_unlock(&s->lock);
	if (had_vm)
		godwit_netlink_event(s, GODWIT_CMD_RETIRED);
	kobject_del(&s->kobj);	/* waits for readers of its files, which take no lock of ours */
	mutex_lock(&godwit_sessions_lock);
	list_del(&s->node);
	mutex_unlock(&godwit_sessions_lock);
	wake_up_all(&retired_wait);
	godwit_session_put(s);
}

bool godwit_session_hurried(const struct godwit_session *s)
{
	return READ_ONCE(draining) || READ_ONCE(s->hurry) || READ_ONCE(s->vm_gone);
}

/* Pause between two steps of a retirement; cut short when a task waits. */
void godwit_session_pause(struct godwit_session *s, unsigned int ms)
{
	wait_event_idle_timeout(retired_wait, godwit_session_hurried(s), msecs_to_jiffies(ms));
}

/* Module exit: every file is closed, so every session retires already. */
void godwit_sessions_drain(void)
{
	struct godwit_session *s;

	mutex_lock(&godwit_sessions_lock);
	draining = true;
	list_for_each_entry(s, &sessions, node)
		hurry(s);
	mutex_unlock(&godwit_sessions_lock);
	wake_up_all(&retired_wait);
	/* Idle: a VMM that hangs may make this long. */
	wait_event_idle(retired_wait, list_empty_careful(&sessions));
	/* The retirement that took the last one off the list may still be under the lock. */
	mutex_lock(&godwit_sessions_lock);
	mutex_unlock(&godwit_sessions_lock);
}
