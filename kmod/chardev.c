// SPDX-License-Identifier: GPL-2.0-only
/* /dev/godwit: checks what user space says, and turns each call into a job of its session. */
#include <linux/capability.h>
#include <linux/file.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "compat.h"
#include "internal.h"
#include "job.h"

/* Each RAM file's bitmap has its own window of the session file's offsets. */
#define WINDOW_SHIFT	40

static int godwit_open(struct inode *inode, struct file *file)
{
	struct godwit_session *s;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	s = godwit_session_new();
	if (IS_ERR(s))
		return PTR_ERR(s);
	file->private_data = s;
	return nonseekable_open(inode, file);
}

static int godwit_release(struct inode *inode, struct file *file)
{
	struct godwit_session *s = file->private_data;

	godwit_keep_leave(s);	/* no call of this session runs any more */
	/*
	 * Only queues: a process that closes the file, or is killed, does not
	 * wait for the log to go off.
	 */
	godwit_session_retire(s, READ_ONCE(godwit_tunables.retire_delay_ms));
	godwit_session_put(s);
	return 0;
}

/* remap_vmalloc_range() is for memory of vmalloc_user(), which is charged to no memory cgroup. */
static int insert_bitmap(struct vm_area_struct *vma, const struct godwit_ram *ram)
{
	unsigned long bytes = vma->vm_end - vma->vm_start, at;
	int r = 0;

	if (bytes > PAGE_ALIGN(ram->words * sizeof(long)))
		return -EINVAL;
	vm_flags_set(vma, VM_DONTEXPAND | VM_DONTDUMP);
	for (at = 0; at < bytes && !r; at += PAGE_SIZE)
		r = vm_insert_page(vma, vma->vm_start + at,
				   vmalloc_to_page((void *)ram->dirty + at));
	return r;
}

static int godwit_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct godwit_session *s = file->private_data;
	unsigned long index = vma->vm_pgoff >> (WINDOW_SHIFT - PAGE_SHIFT);
	unsigned long pgoff = vma->vm_pgoff & (BIT(WINDOW_SHIFT - PAGE_SHIFT) - 1);
	struct godwit_ram *ram;

	/* The bits tell what the guest writes, and who may clear them may have pages left out. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (!(vma->vm_flags & VM_SHARED) || pgoff || index >= GODWIT_RAM_MAX)
		return -EINVAL;
	/*
	 * Without session->lock, which is held across calls into KVM while mmap_lock is held here.
	 * RAM files are only ever added, and freed with the session, which this VMA's file keeps.
	 */
	ram = smp_load_acquire(&s->rams[index]);	/* pairs with add_ram() */
	if (!ram)
		return -EINVAL;
	return insert_bitmap(vma, ram);
}

static int add_ram(struct godwit_session *s, struct godwit_ram *ram)
{
	unsigned int i;

	if (s->state == GODWIT_STATE_RETIRING)
		return -EOWNERDEAD;
	if (s->state == GODWIT_STATE_STARTED)
		return -EBUSY;
	ram->mm = s->mm;
	for (i = 0; i < s->nr_rams; i++)
		if (godwit_ram_overlaps(s->rams[i], ram, PAGE_SHIFT))
			return -EEXIST;
	if (i == GODWIT_RAM_MAX)
		return -ENOSPC;
	ram->session_id = s->id;
	ram->index = i;
	smp_store_release(&s->rams[i], ram);		/* pairs with godwit_mmap() */
	return s->nr_rams++;
}

static struct godwit_ram *new_from_file(const struct godwit_add_ram *a)
{
	struct file *file = fget(a->fd);
	struct godwit_ram *ram;

	if (!file)
		return ERR_PTR(-EBADF);
	ram = file->f_mode & FMODE_READ ? godwit_ram_new(file, a->npages) : ERR_PTR(-EBADF);
	fput(file);
	return ram;
}

/*
 * The look may wait for the VMM; the bitmaps are charged to the caller. What changes in between
 * START sees.
 */
static struct godwit_ram *new_private(struct godwit_session *s, const struct godwit_add_ram *a)
{
	struct godwit_look_private look = { .addr = a->map_offset, .npages = a->npages };
	int r;

	if (a->fd != -1 || !look.addr || look.addr >= TASK_SIZE_MAX || offset_in_page(look.addr) ||
	    !look.npages || look.npages > (TASK_SIZE_MAX - look.addr) >> PAGE_SHIFT)
		return ERR_PTR(-EINVAL);
	r = godwit_session_run(s, godwit_job_look_private, &look, sizeof(look));
	return r ? ERR_PTR(r) : godwit_ram_new_private(look.addr, look.npages, look.page_shift);
}

static long ioctl_add_ram(struct godwit_session *s, void __user *uarg)
{
	struct godwit_add_ram a;
	struct godwit_ram *ram;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags & ~GODWIT_RAM_PRIVATE)
		return -EINVAL;
	ram = a.flags & GODWIT_RAM_PRIVATE ? new_private(s, &a) : new_from_file(&a);
	if (IS_ERR(ram))
		return PTR_ERR(ram);
	r = mutex_lock_killable(&s->lock);
	if (!r) {
		r = add_ram(s, ram);
		mutex_unlock(&s->lock);
	}
	if (r < 0) {
		godwit_ram_free(ram);
		return r;
	}
	a.index = r;
	a.page_shift = ram->page_shift;
	a.map_offset = (u64)r << WINDOW_SHIFT;
	a.map_bytes = PAGE_ALIGN(ram->words * sizeof(long));
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

static long ioctl_attach(struct godwit_session *s, void __user *uarg)
{
	struct godwit_attach a;
	struct file *vm_file;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags)
		return -EINVAL;
	vm_file = fget(a.vm_fd);
	if (!vm_file)
		return -EBADF;
	r = godwit_session_attach(s, &a, vm_file);
	fput(vm_file);
	if (r)
		return r;
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

static long ioctl_start(struct godwit_session *s, void __user *uarg)
{
	struct godwit_start a;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags)
		return -EINVAL;
	r = godwit_session_run(s, godwit_job_start, &a, sizeof(a));
	if (r)
		return r;
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

static long ioctl_harvest(struct godwit_session *s, void __user *uarg)
{
	struct godwit_harvest a;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags)
		return -EINVAL;
	r = godwit_session_run(s, godwit_job_harvest, &a, sizeof(a));
	if (r)
		return r;
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

/* Returns the RAM file that the range lies in. */
static struct godwit_ram *check_range(struct godwit_session *s, const struct godwit_range *a)
{
	struct godwit_ram *ram;

	if (a->flags || a->ram >= GODWIT_RAM_MAX)
		return ERR_PTR(-EINVAL);
	ram = smp_load_acquire(&s->rams[a->ram]);	/* pairs with add_ram() */
	if (!ram || a->first_page > ram->npages || a->npages > ram->npages - a->first_page)
		return ERR_PTR(-EINVAL);
	return ram;
}

static long ioctl_clear(struct godwit_session *s, void __user *uarg)
{
	struct godwit_range a;
	struct godwit_ram *ram;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	ram = check_range(s, &a);
	if (IS_ERR(ram))
		return PTR_ERR(ram);
	return godwit_session_run(s, godwit_job_clear, &a, sizeof(a));
}

/* NEXT_DATA, NEXT_PINNED */
static long ioctl_next(struct godwit_session *s, void __user *uarg,
		       int (*next)(struct godwit_session *s, struct godwit_ram *ram,
				   struct godwit_range *range))
{
	struct godwit_range a;
	struct godwit_ram *ram;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	ram = check_range(s, &a);
	if (IS_ERR(ram))
		return PTR_ERR(ram);
	r = mutex_lock_killable(&s->lock);
	if (r)
		return r;
	r = next(s, ram, &a);
	mutex_unlock(&s->lock);
	if (r)
		return r;
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

static long ioctl_mappers(struct godwit_session *s, void __user *uarg)
{
	struct godwit_mappers a;
	u32 *pids;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags || a.reserved || a.room > GODWIT_MAPPERS_MAX)
		return -EINVAL;
	pids = kvmalloc_array(a.room, sizeof(*pids), GFP_KERNEL_ACCOUNT);
	if (!pids)
		return -ENOMEM;
	r = mutex_lock_killable(&s->lock);
	if (!r) {
		r = godwit_mappers(s, &a, pids);
		mutex_unlock(&s->lock);
	}
	if (!r && (copy_to_user(u64_to_user_ptr(a.pids), pids,
				min(a.count, a.room) * sizeof(*pids)) ||
		   copy_to_user(uarg, &a, sizeof(a))))
		r = -EFAULT;
	kvfree(pids);
	return r;
}

static long ioctl_keep(struct godwit_session *s, void __user *uarg)
{
	struct godwit_keep a;
	int r;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags & ~GODWIT_KEEP_TAKE || !memchr_inv(a.token, 0, sizeof(a.token)))
		return -EINVAL;
	r = godwit_keep_begin(s, &a);
	if (r)
		return r;
	return copy_to_user(uarg, &a, sizeof(a)) ? -EFAULT : 0;
}

/* Whatever fails behind the making: the keep has it, and the next call gives it. */
static long ioctl_uffd(struct godwit_session *s, void __user *uarg)
{
	struct godwit_uffd a;
	struct file *uffd;
	int fd;

	if (copy_from_user(&a, uarg, sizeof(a)))
		return -EFAULT;
	if (a.flags)
		return -EINVAL;
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0)
		return fd;
	uffd = godwit_keep_uffd(s, &a);
	if (IS_ERR(uffd)) {
		put_unused_fd(fd);
		return PTR_ERR(uffd);
	}
	a.fd = fd;
	if (copy_to_user(uarg, &a, sizeof(a))) {
		fput(uffd);
		put_unused_fd(fd);
		return -EFAULT;
	}
	fd_install(fd, uffd);
	return 0;
}

static long godwit_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct godwit_session *s = file->private_data;
	void __user *uarg = (void __user *)arg;

	/* A descriptor that was passed on does not pass on the right to use it. */
	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	switch (cmd) {
	case GODWIT_ATTACH:
		return ioctl_attach(s, uarg);
	case GODWIT_ADD_RAM:
		return ioctl_add_ram(s, uarg);
	case GODWIT_START:
		return ioctl_start(s, uarg);
	case GODWIT_HARVEST:
		return ioctl_harvest(s, uarg);
	case GODWIT_CLEAR:
		return ioctl_clear(s, uarg);
	case GODWIT_NEXT_DATA:
		return ioctl_next(s, uarg, godwit_next_data);
	case GODWIT_MAPPERS:
		return ioctl_mappers(s, uarg);
	case GODWIT_NEXT_PINNED:
		return ioctl_next(s, uarg, godwit_next_pinned);
	case GODWIT_KEEP:
		return ioctl_keep(s, uarg);
	case GODWIT_UFFD:
		return ioctl_uffd(s, uarg);
	case GODWIT_KEEP_END:
		return arg ? -EINVAL : godwit_keep_end(s);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations godwit_fops = {
	.owner = THIS_MODULE,
	.open = godwit_open,
	.release = godwit_release,
	.unlocked_ioctl = godwit_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = godwit_mmap,
	.poll = godwit_keep_poll,
};

static struct miscdevice godwit_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "godwit",
	.fops = &godwit_fops,
	.groups = godwit_sysfs_groups,
	.mode = 0600,
};

int godwit_chardev_init(void)
{
	return misc_register(&godwit_misc);
}

struct device *godwit_chardev_device(void)
{
	return godwit_misc.this_device;
}

void godwit_chardev_exit(void)
{
	misc_deregister(&godwit_misc);
}
