// SPDX-License-Identifier: GPL-2.0-only
/*
 * A userfaultfd of another process.
 *
 * The kernel makes a userfaultfd of the mm of the task that asks for it, and QEMU never asks. A
 * kernel thread that borrows QEMU's mm can: it calls the ioctl of an open /dev/userfaultfd, which
 * is stable ABI, as jobs do with KVM's (kvm_ioctl.c).
 *
 * The caller names the process by an open /proc/PID/mem, as opening that is the kernel's own
 * question whether it may ptrace the process, and as such a file is of one mm for good: a process
 * number may be used again, and a process that execs becomes another program. It can read and write
 * all of that memory already. It names /dev/userfaultfd by a descriptor too, so that the rights to
 * that device hold as well.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/kthread.h>
#include <linux/magic.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/security.h>
#include <linux/userfaultfd.h>

#include "compat.h"
#include "internal.h"

/* Names in /proc are the kernel's, and a file has its own one wherever it is bound to. */
static bool named_mem(const struct file *file)
{
	return file_inode(file)->i_sb->s_magic == PROC_SUPER_MAGIC &&
	       !strcmp(file->f_path.dentry->d_name.name, "mem");
}

/*
 * What a /proc/PID/mem looks like, the kernel tells no module. So each file that claims to be one
 * is compared with the caller's own, on the same /proc, whose mm is known: if this kernel keeps the
 * mm somewhere else, no file passes. Other files of a process have the mm there as well, and are
 * open to more callers (environ, pagemap): they have other functions, and other names, which counts
 * when the caller has bound such a file over its own.
 */
static int check_mem(struct file *file)
{
	struct path root = { .mnt = file->f_path.mnt, .dentry = file_inode(file)->i_sb->s_root };
	struct file *own;
	int r = 0;

	if (!named_mem(file))
		return -EMEDIUMTYPE;
	own = file_open_root(&root, "self/mem", O_RDONLY, 0);
	if (IS_ERR(own))
		return PTR_ERR(own) == -ENOENT ? -EMEDIUMTYPE : PTR_ERR(own);
	if (!named_mem(own) || own->f_op != file->f_op)
		r = -EMEDIUMTYPE;
	else if (own->private_data != current->mm)
		r = -EOPNOTSUPP;
	fput(own);
	return r;
}

/**
 * godwit_uffd_open_mem() - which mm does the caller name?
 * @mm: lives as long as the file does; its users may be gone
 *
 * Returns the file, or -EBADF, -EMEDIUMTYPE, -EOPNOTSUPP, -ESRCH.
 */
struct file *godwit_uffd_open_mem(int fd, struct mm_struct **mm)
{
	struct file *file = fget(fd);
	int r;

	if (!file)
		return ERR_PTR(-EBADF);
	r = (file->f_mode & (FMODE_READ | FMODE_WRITE)) == (FMODE_READ | FMODE_WRITE) ?
	    check_mem(file) : -EBADF;
	if (!r) {
		*mm = file->private_data;
		/* Kernel threads have none; nor had a process that was exiting. */
		if (!*mm)
			r = -ESRCH;
	}
	if (!r)
		return file;
	fput(file);
	return ERR_PTR(r);
}

/*
 * Its number is the kernel's choice, its name is not. Only functions of the device with this number
 * are called.
 */
struct file *godwit_uffd_open_dev(int fd)
{
	struct device *dev = class_find_device_by_name(godwit_chardev_device()->class,
						       "userfaultfd");
	struct file *file;
	dev_t devt;

	if (!dev)
		return ERR_PTR(-EOPNOTSUPP);
	devt = dev->devt;
	put_device(dev);
	file = fget(fd);
	if (!file)
		return ERR_PTR(-EBADF);
	if (S_ISCHR(file_inode(file)->i_mode) && file_inode(file)->i_rdev == devt &&
	    file->f_op->unlocked_ioctl)
		return file;
	fput(file);
	return ERR_PTR(-ENODEV);
}

/**
 * struct making - a userfaultfd on its way
 * @cred: the caller's, for security modules: the userfaultfd is its, not the kernel's
 * @uffd: out; or ERR_PTR
 */
struct making {
	struct work_struct work;
	struct completion done;
	struct mm_struct *mm;
	struct file *dev;
	const struct cred *cred;
	struct file *uffd;
};

/*
 * The descriptor appears in the kernel threads' own table (they share one), for the time between
 * two calls, and never in that of the process, nor in the caller's. No other kernel thread closes
 * what it has not opened. A program that the kernel starts in that time (modprobe, a core dump's
 * pipe) has a copy until it execs.
 */
static struct file *make_in(struct making *m)
{
	const struct cred *own = override_creds(m->cred);
	const unsigned long flags = O_CLOEXEC | O_NONBLOCK;
	struct file *uffd;
	long fd;

	/* As ioctl(2) asks: a security module may have a rule for this device. */
	fd = security_file_ioctl(m->dev, USERFAULTFD_IOC_NEW, flags);
	if (!fd)
		fd = m->dev->f_op->unlocked_ioctl(m->dev, USERFAULTFD_IOC_NEW, flags);

	revert_creds(own);
	if (fd < 0)
		return ERR_PTR(fd);
	uffd = fget(fd);
	close_fd(fd);
	return uffd ? uffd : ERR_PTR(-EBADF);
}

static void make_work(struct work_struct *work)
{
	struct making *m = container_of(work, struct making, work);
	struct mm_struct *mm = m->mm;

	if (!mmget_not_zero(mm)) {
		m->uffd = ERR_PTR(-ESRCH);
		complete(&m->done);
		return;
	}
	kthread_use_mm(mm);
	m->uffd = make_in(m);
	kthread_unuse_mm(mm);
	complete(&m->done);	/* m is gone; godwit_exit() drains the workqueue */
	/* The last one waits for the aio of a process that has exited: unloading would wait too. */
	mmput_async(mm);
}

/**
 * godwit_uffd_make() - a new userfaultfd of mm; -ESRCH: the process has exited, or has execed
 *
 * Waits for the kernel thread, which takes no lock of the process's, so not for the process.
 */
struct file *godwit_uffd_make(struct mm_struct *mm, struct file *dev)
{
	struct making m = { .mm = mm, .dev = dev, .cred = current_cred() };

	INIT_WORK_ONSTACK(&m.work, make_work);
	init_completion(&m.done);
	queue_work(godwit_wq, &m.work);
	wait_for_completion(&m.done);
	destroy_work_on_stack(&m.work);
	return m.uffd;
}

/*
 * Is there a process that has this mm? Not: does the mm have users. A kernel thread that faults in
 * it (KVM's asynchronous page faults, vhost before 6.4) is one, waits for the userfaultfd, and has
 * no signal that would end the wait: the mm of a killed process then goes when the userfaultfd
 * does, and not before. Nor do workers count, threads of the process that never leave the kernel
 * (vhost from 6.4 on): one that the signal has reached does the rest of its work without it, and
 * may wait again. A process that has no other thread with an mm any more exits, and waits for them.
 *
 * A process that shares the mm is seen: it is linked in behind the one that made it, which lives
 * until then, so that this walk meets either.
 */
bool godwit_uffd_mm_lives(struct mm_struct *mm)
{
	struct task_struct *p, *t;
	bool lives = false;

	if (!atomic_read(&mm->mm_users))
		return false;
	rcu_read_lock();
	for_each_process(p) {
		if (p->flags & PF_KTHREAD)
			continue;
		for_each_thread(p, t) {
			struct mm_struct *has = READ_ONCE(t->mm);

			if (!has || READ_ONCE(t->flags) & (PF_IO_WORKER | PF_USER_WORKER))
				continue;	/* exits, or does work for one that may */
			lives = has == mm;
			break;			/* all threads of a process have one */
		}
		if (lives)
			break;
	}
	rcu_read_unlock();
	return lives;
}
