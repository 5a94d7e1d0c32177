// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which processes map a RAM file such that their stores reach it.
 *
 * The watches know the mms, as of the last sweep. An mm does not say which processes have it,
 * but each process says which mm it has. So all processes are gone through once, under RCU, and
 * each one's mm is looked up in a sorted array of the watches'. A pointer found there is
 * compared only, never followed.
 *
 * An mm that lives and that no process has is told as well: a device holds it (vhost), or its
 * process is just being made, or just exits.
 */
#include <linux/bsearch.h>
#include <linux/mm.h>
#include <linux/pid_namespace.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "internal.h"

struct answer {
	u32 *pids;
	u32 room;
	u32 count;
};

static void tell(struct answer *a, pid_t pid)
{
	if (a->count < a->room)
		a->pids[a->count] = pid;
	a->count++;
}

static int compare_mms(const void *a, const void *b)
{
	const struct godwit_mapper *left = a, *right = b;

	return left->mm < right->mm ? -1 : left->mm > right->mm;
}

/* Threads share one. A leader that has exited has none, a kernel thread may have borrowed one. */
static struct mm_struct *mm_of(struct task_struct *process)
{
	struct task_struct *t;

	for_each_thread(process, t) {
		struct mm_struct *mm = READ_ONCE(t->mm);

		if (mm && !(READ_ONCE(t->flags) & PF_KTHREAD))
			return mm;
	}
	return NULL;
}

static void look_for_processes(struct godwit_mapper *mappers, unsigned int nr, struct answer *a)
{
	struct pid_namespace *ns = task_active_pid_ns(current);
	struct task_struct *process;

	rcu_read_lock();
	for_each_process(process) {
		struct godwit_mapper key = { .mm = mm_of(process) }, *found;

		found = key.mm ? bsearch(&key, mappers, nr, sizeof(key), compare_mms) : NULL;
		if (!found)
			continue;
		found->seen = true;
		tell(a, task_tgid_nr_ns(process, ns));
	}
	rcu_read_unlock();
}

/**
 * godwit_mappers() - fill in pids, and arg->count
 * @pids: room for arg->room
 *
 * Context: the caller's own, whose pid namespace counts; under session->lock. Return: 0, -ENODATA,
 * -EOWNERDEAD, -ENOMEM.
 */
int godwit_mappers(struct godwit_session *s, struct godwit_mappers *arg, u32 *pids)
{
	struct answer a = { .pids = pids, .room = arg->room };
	struct godwit_mapper *mappers;
	unsigned int nr, i;

	lockdep_assert_held(&s->lock);
	if (s->state == GODWIT_STATE_RETIRING || READ_ONCE(s->vm_gone))
		return -EOWNERDEAD;
	if (s->state != GODWIT_STATE_STARTED)
		return -ENODATA;
	nr = godwit_watch_mappers(s, NULL, 0);
	mappers = kvmalloc_array(nr, sizeof(*mappers), GFP_KERNEL_ACCOUNT);
	if (!mappers)
		return -ENOMEM;
	/* Some may have exited in between; none can have come. */
	nr = godwit_watch_mappers(s, mappers, nr);
	sort(mappers, nr, sizeof(*mappers), compare_mms, NULL);
	look_for_processes(mappers, nr, &a);
	for (i = 0; i < nr; i++)
		if (!mappers[i].seen && atomic_read(&mappers[i].mm->mm_users))
			tell(&a, 0);
	kvfree(mappers);
	arg->count = a.count;
	return 0;
}
