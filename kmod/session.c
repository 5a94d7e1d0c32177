// SPDX-License-Identifier: GPL-2.0-only
/*
 * The life of a session.
 *
 * A session is born by open(), works in jobs, and retires once: when its file is closed (by
 * whatever death of its owner) or when the VM's mm is torn down. Everything that may wait
 * for the VM runs in a workqueue under session->lock, because it borrows the VM's mm and
 * because a helper that is killed while it waits must be able to go: the job then finishes
 * on its own and is thrown away.
 *
 * A VM has one owner at a time. A session that retires still owns its VM; a caller that
 * attaches meanwhile hurries it and waits for it. A RAM file has one as well, from START on,
 * see godwit_block_track().
 */
#include <linux/file.h>
#include <linux/kvm_host.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "compat.h"
#include "internal.h"
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

/**
 * struct job - a call on its way through the workqueue
 * @refs: the caller's, which may be killed, and the worker's
 * @arg: the call's argument: a copy, so that it outlives the caller
 */
struct job {
	struct work_struct work;
	struct completion done;
	refcount_t refs;
	struct godwit_session *session;
	godwit_job_fn fn;
	int ret;
	u8 arg[] __aligned(8);
};

static void job_put(struct job *job)
{
	if (refcount_dec_and_test(&job->refs))
		kfree(job);
}

static void job_work(struct work_struct *work)
{
	struct job *job = container_of(work, struct job, work);
	struct godwit_session *s = job->session;

	mutex_lock(&s->lock);
	job->ret = s->state == GODWIT_STATE_RETIRING || READ_ONCE(s->vm_gone) ?
		   -EOWNERDEAD : job->fn(s, job->arg);
	mutex_unlock(&s->lock);
	godwit_session_put(s);
	/*
	 * Before the caller goes on, which may unload the module next: a worker that is preempted
	 * here would have it refused. godwit_exit() drains the workqueue, so this function has left
	 * the module's text by then.
	 */
	module_put(THIS_MODULE);
	complete(&job->done);
	job_put(job);
}

/* Takes a copy of arg. NULL: out of memory. */
static struct job *job_new(struct godwit_session *s, godwit_job_fn fn, const void *arg,
			   size_t bytes)
{
	struct job *job = kzalloc(struct_size(job, arg, bytes), GFP_KERNEL_ACCOUNT);

	if (!job)
		return NULL;
	INIT_WORK(&job->work, job_work);
	init_completion(&job->done);
	refcount_set(&job->refs, 1);
	job->session = s;
	job->fn = fn;
	memcpy(job->arg, arg, bytes);
	return job;
}

/* Allocates nothing; drops the caller's reference. -EINTR: caller was killed, the job goes on. */
static int job_run(struct job *job, void *arg, size_t bytes)
{
	int r;

	refcount_inc(&job->refs);		/* the worker's */
	godwit_session_get(job->session);
	/* A job that hangs in a VMM's locks makes rmmod fail, rather than wait without end. */
	__module_get(THIS_MODULE);
	queue_work(godwit_wq, &job->work);

	r = wait_for_completion_killable(&job->done);
	if (!r) {
		r = job->ret;
		memcpy(arg, job->arg, bytes);
	}
	job_put(job);
	return r == -ERESTARTSYS ? -EINTR : r;
}

/* Runs fn in the workqueue under s->lock. -ENOMEM also: it did not run. */
int godwit_session_run(struct godwit_session *s, godwit_job_fn fn, void *arg, size_t bytes)
{
	struct job *job = job_new(s, fn, arg, bytes);

	return job ? job_run(job, arg, bytes) : -ENOMEM;
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
	struct job *job;
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
	job = job_new(s, job_attach, arg, sizeof(*arg));
	if (!job)
		return -ENOMEM;
	r = wait_claim(s, kvm);
	if (r) {
		job_put(job);
		return r;
	}
	/* Ours from here on: the claim lets no other caller write s->vm_file. */
	s->vm_file = get_file(vm_file);
	return job_run(job, arg, sizeof(*arg));
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
	wait_event_timeout(retired_wait, godwit_session_hurried(s), msecs_to_jiffies(ms));
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
	wait_event(retired_wait, list_empty_careful(&sessions));
	/* The retirement that took the last one off the list may still be under the lock. */
	mutex_lock(&godwit_sessions_lock);
	mutex_unlock(&godwit_sessions_lock);
}
