// SPDX-License-Identifier: GPL-2.0-only
/*
 * Userfaultfds that outlive their helper.
 *
 * When the last reference to a userfaultfd goes, the kernel lets all faults that wait for it go on,
 * and they find zeros where the guest's pages have not arrived. So the module has a reference of
 * its own, in a keep, which has the name that the helper gave it (the migration's token):
 *
 *	owned	a session has it. Its helper gets userfaultfds, and ends the keep when all pages are
 *		there.
 *	left	its session was closed, by whatever death of the helper. Faults wait. Another
 *		session may take the keep; nothing else happens to it.
 *
 * A userfaultfd leaves its keep in two ways: the helper ends the keep, or no process has the mm any
 * more, for which a timer looks once a second. A keep that is left and has none is freed. Each
 * userfaultfd that is kept holds the module: unloading it would let the faults go.
 *
 * A process has a userfaultfd in one keep only. A helper that takes a keep over names the processes
 * anew, by the same rights as the first one, and gets the userfaultfds that they have: so a name
 * alone gives nothing. It adds no other process: one that took the keep of another guest by mistake
 * would leave its own there.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "internal.h"

#define LOOK_MS	1000

/**
 * struct kept - a userfaultfd
 * @mm: its; not freed while it has the userfaultfd, so that the pointer names it alone
 */
struct kept {
	struct list_head node;
	struct mm_struct *mm;
	struct file *uffd;
};

/**
 * struct keep
 * @owner: NULL: left
 * @taken: not by the session that made it
 */
struct keep {
	struct list_head node;
	u8 token[GODWIT_TOKEN_BYTES];
	struct godwit_session *owner;
	bool taken;
	struct list_head uffds;
	unsigned int count;
};

static DEFINE_MUTEX(keeps_lock);
static LIST_HEAD(keeps);
static unsigned int nr_kept;		/* of all keeps; read without the lock by sysfs */
static DECLARE_WAIT_QUEUE_HEAD(gone_wait);	/* a session's ->kept_gone was set */

static void look_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(look, look_work);

static struct keep *keep_of(const struct godwit_session *s)
{
	struct keep *k;

	lockdep_assert_held(&keeps_lock);
	list_for_each_entry(k, &keeps, node)
		if (k->owner == s)
			return k;
	return NULL;
}

static struct keep *find_keep(const u8 *token)
{
	struct keep *k;

	lockdep_assert_held(&keeps_lock);
	list_for_each_entry(k, &keeps, node)
		if (!memcmp(k->token, token, sizeof(k->token)))
			return k;
	return NULL;
}

/* Which keep has this mm's; NULL: none. */
static struct keep *find_mm(const struct mm_struct *mm, struct kept **found)
{
	struct kept *one;
	struct keep *k;

	lockdep_assert_held(&keeps_lock);
	list_for_each_entry(k, &keeps, node) {
		list_for_each_entry(one, &k->uffds, node) {
			if (one->mm == mm) {
				*found = one;
				return k;
			}
		}
	}
	return NULL;
}

/*
 * If no helper has it open, the kernel unregisters its mappings: when this thread returns to user
 * space, or in a thread of the kernel's own a little later. None of our locks is held then.
 */
static void drop_kept(struct keep *k, struct kept *one)
{
	lockdep_assert_held(&keeps_lock);
	list_del(&one->node);
	k->count--;
	WRITE_ONCE(nr_kept, nr_kept - 1);
	fput(one->uffd);
	kfree(one);
	module_put(THIS_MODULE);	/* a session has another one; or see look_work() */
}

static void free_keep(struct keep *k)
{
	struct kept *one, *next;

	list_for_each_entry_safe(one, next, &k->uffds, node)
		drop_kept(k, one);
	list_del(&k->node);
	kfree(k);
}

/*
 * What no process has any more goes, and a helper that lives is told: it may have the userfaultfd
 * open itself.
 */
static void forget_gone_of(struct keep *k)
{
	struct kept *one, *next;

	list_for_each_entry_safe(one, next, &k->uffds, node) {
		/* Each look is a walk over all processes. */
		cond_resched();
		if (godwit_uffd_mm_lives(one->mm))
			continue;
		drop_kept(k, one);
		if (k->owner) {
			WRITE_ONCE(k->owner->kept_gone, true);
			wake_up_poll(&gone_wait, EPOLLHUP);
		}
	}
}

static void forget_gone(void)
{
	struct keep *k, *next;

	list_for_each_entry_safe(k, next, &keeps, node) {
		forget_gone_of(k);
		if (!k->owner && !k->count)
			free_keep(k);
	}
}

/*
 * What it drops may have been all that holds the module. It still runs then, in our text:
 * godwit_keeps_exit() waits for it.
 */
static void look_work(struct work_struct *work)
{
	mutex_lock(&keeps_lock);
	forget_gone();
	if (nr_kept)
		queue_delayed_work(godwit_wq, &look, msecs_to_jiffies(LOOK_MS));
	mutex_unlock(&keeps_lock);
}

static struct keep *new_keep(const u8 *token)
{
	struct keep *k = kzalloc(sizeof(*k), GFP_KERNEL_ACCOUNT);

	if (!k)
		return NULL;
	memcpy(k->token, token, sizeof(k->token));
	INIT_LIST_HEAD(&k->uffds);
	list_add_tail(&k->node, &keeps);
	return k;
}

static int keep_for(struct godwit_session *s, struct godwit_keep *a)
{
	struct keep *k = find_keep(a->token);

	if (keep_of(s))
		return -EBUSY;
	if (a->flags & GODWIT_KEEP_TAKE) {
		if (!k)
			return -ENOENT;
		if (k->owner)
			return -EBUSY;
		k->taken = true;
	} else {
		if (k)
			return -EEXIST;
		k = new_keep(a->token);
		if (!k)
			return -ENOMEM;
	}
	k->owner = s;
	WRITE_ONCE(s->kept_gone, false);
	a->count = k->count;
	return 0;
}

/* GODWIT_KEEP */
int godwit_keep_begin(struct godwit_session *s, struct godwit_keep *a)
{
	int r = mutex_lock_killable(&keeps_lock);

	if (r)
		return r;
	/* What has been left by the dead of the last second is not in the way of a new one. */
	forget_gone();
	r = keep_for(s, a);
	mutex_unlock(&keeps_lock);
	return r;
}

/*
 * Is some of this process's memory still to come? Context: may sleep, outside of all other locks.
 */
bool godwit_keep_has(const struct mm_struct *mm)
{
	struct kept *found;
	bool has;

	mutex_lock(&keeps_lock);
	has = find_mm(mm, &found);
	mutex_unlock(&keeps_lock);
	return has;
}

/* GODWIT_KEEP_END */
int godwit_keep_end(struct godwit_session *s)
{
	struct keep *k;
	int r = mutex_lock_killable(&keeps_lock);

	if (r)
		return r;
	k = keep_of(s);
	if (k)
		free_keep(k);
	else
		r = -ENODATA;
	mutex_unlock(&keeps_lock);
	return r;
}

/* The session's file is closed. */
void godwit_keep_leave(struct godwit_session *s)
{
	struct keep *k;

	mutex_lock(&keeps_lock);
	k = keep_of(s);
	if (k && k->count) {
		k->owner = NULL;
		pr_notice_ratelimited("godwit: helper %d (%s) has gone: page faults of %u processes wait until another helper takes over\n",
				      s->owner_pid, s->owner_comm, k->count);
	} else if (k) {
		free_keep(k);
	}
	mutex_unlock(&keeps_lock);
}

static struct file *keep_new(struct keep *k, struct mm_struct *mm, struct file *dev)
{
	struct kept *one;
	struct file *uffd;

	if (k->count == GODWIT_UFFD_MAX)
		return ERR_PTR(-ENOSPC);
	one = kzalloc(sizeof(*one), GFP_KERNEL_ACCOUNT);
	if (!one)
		return ERR_PTR(-ENOMEM);
	uffd = godwit_uffd_make(mm, dev);
	if (IS_ERR(uffd)) {
		kfree(one);
		return uffd;
	}
	one->mm = mm;
	one->uffd = uffd;
	__module_get(THIS_MODULE);
	list_add_tail(&one->node, &k->uffds);
	k->count++;
	WRITE_ONCE(nr_kept, nr_kept + 1);
	queue_delayed_work(godwit_wq, &look, msecs_to_jiffies(LOOK_MS));
	return get_file(uffd);
}

/*
 * The lock is held while one is made, which takes no lock of the process's (see uffd.c): of two
 * callers for one process the second gets what the first has made.
 */
static struct file *uffd_of(struct godwit_session *s, struct mm_struct *mm, struct file *dev,
			    bool *kept)
{
	struct keep *k = keep_of(s), *has;
	struct kept *one;

	if (!k)
		return ERR_PTR(-ENODATA);
	/* It may exit right afterwards: then the timer finds it. */
	if (!godwit_uffd_mm_lives(mm))
		return ERR_PTR(-ESRCH);
	has = find_mm(mm, &one);
	if (has && has != k)
		return ERR_PTR(-EBUSY);
	if (!has && k->taken)
		return ERR_PTR(-ENOENT);
	*kept = has;
	return has ? get_file(one->uffd) : keep_new(k, mm, dev);
}

/* GODWIT_UFFD: a reference, or ERR_PTR. */
struct file *godwit_keep_uffd(struct godwit_session *s, struct godwit_uffd *a)
{
	struct mm_struct *mm;
	struct file *mem, *dev, *uffd;
	bool kept = false;
	int r;

	mem = godwit_uffd_open_mem(a->mem_fd, &mm);
	if (IS_ERR(mem))
		return mem;
	dev = godwit_uffd_open_dev(a->dev_fd);
	if (IS_ERR(dev)) {
		fput(mem);
		return dev;
	}
	r = mutex_lock_killable(&keeps_lock);
	if (r) {
		uffd = ERR_PTR(r);
	} else {
		uffd = uffd_of(s, mm, dev, &kept);
		mutex_unlock(&keeps_lock);
	}
	a->flags = kept ? GODWIT_UFFD_KEPT : 0;
	fput(dev);
	fput(mem);
	return uffd;
}

/* Of the session's file. */
__poll_t godwit_keep_poll(struct file *file, poll_table *wait)
{
	struct godwit_session *s = file->private_data;

	poll_wait(file, &gone_wait, wait);
	return READ_ONCE(s->kept_gone) ? EPOLLHUP : 0;
}

unsigned int godwit_keep_count(void)
{
	return READ_ONCE(nr_kept);
}

/* Module exit: nothing is kept, as that would hold the module. */
void godwit_keeps_exit(void)
{
	cancel_delayed_work_sync(&look);
}
