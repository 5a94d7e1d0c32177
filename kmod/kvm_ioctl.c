// SPDX-License-Identifier: GPL-2.0-only
/*
 * KVM's own VM ioctls, on a VM that belongs to another process.
 *
 * KVM serves a VM descriptor only to tasks whose mm created the VM. A kernel thread that borrows
 * that mm passes, and may then use the documented, stable ABI rather than KVM's inner functions,
 * whose exports come and go. The arguments have to lie in the borrowed mm: anonymous pages, mapped
 * when a job needs them and until it ends. They are charged to the VMM and vanish with it; a fork
 * at that moment copies them into the child, where they are harmless.
 */
#include <linux/delay.h>
#include <linux/kvm_host.h>
#include <linux/kthread.h>
#include <linux/magic.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "internal.h"

#define ARG_BYTES	PAGE_SIZE	/* the ioctl's struct; the bitmap of CLEAR follows */
#define UNMAP_TRIES	100
#define SCRATCH_BYTES	(ARG_BYTES + GODWIT_CLEAR_PAGES / BITS_PER_BYTE)

/*
 * Anonymous inodes are named by the kernel code that makes them, never by user space, and kvm-vm is
 * KVM's; the owner of its functions is one of KVM's modules, or NULL when KVM is built in.
 */
bool godwit_is_kvm_vm(struct file *file)
{
	const struct module *owner = file->f_op->owner;

	return file_inode(file)->i_sb->s_magic == ANON_INODE_FS_MAGIC &&
	       !strcmp(file->f_path.dentry->d_name.name, "kvm-vm") &&
	       (!owner || !strncmp(owner->name, "kvm", 3)) &&
	       file->f_op->unlocked_ioctl && file->private_data;
}

/* Only in a workqueue's thread. -EOWNERDEAD: the VMM is exiting. */
int godwit_borrow_mm(struct godwit_session *s)
{
	if (READ_ONCE(s->vm_gone) || !mmget_not_zero(s->mm))
		return -EOWNERDEAD;
	kthread_use_mm(s->mm);
	return 0;
}

void godwit_return_mm(struct godwit_session *s)
{
	kthread_unuse_mm(s->mm);
	/* The last one frees the VMM's memory and waits for its aio: not under session->lock. */
	mmput_async(s->mm);
}

/* On first use: a harvest that changes nothing takes no lock of the VMM's for writing. */
static int scratch_map(struct godwit_scratch *sc)
{
	unsigned long uaddr;

	if (sc->uaddr)
		return 0;
	uaddr = vm_mmap(NULL, 0, SCRATCH_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (IS_ERR_VALUE(uaddr))
		return (long)uaddr;
	sc->uaddr = uaddr;
	return 0;
}

void godwit_scratch_unmap(struct godwit_scratch *sc)
{
	int tries = 0, r;

	if (!sc->uaddr)
		return;
	/* Unmapping allocates too, and only we would try again. */
	while ((r = vm_munmap(sc->uaddr, SCRATCH_BYTES)) == -ENOMEM && ++tries < UNMAP_TRIES)
		msleep(20);
	if (r)
		pr_warn_ratelimited("godwit: %lu bytes stay mapped in a VMM (error %d)\n",
				    SCRATCH_BYTES, r);
	sc->uaddr = 0;
}

/* Puts an ioctl's argument where KVM will read it. */
static int stage(struct godwit_scratch *sc, const void *arg, size_t bytes)
{
	int r = scratch_map(sc);

	if (r)
		return r;
	/* The VMM's memory cgroup is full, or it unmapped the page. */
	return copy_to_user((void __user *)sc->uaddr, arg, bytes) ? -ENOMEM : 0;
}

static int vm_ioctl(struct godwit_session *s, struct godwit_scratch *sc, unsigned int cmd)
{
	return s->vm_file->f_op->unlocked_ioctl(s->vm_file, cmd, sc->uaddr);
}

static int answer_of(int status)
{
	switch (status) {
	case -ENOTTY:
		return 0;
	case -EFAULT:
		return -ENOMEM;	/* the argument's page went meanwhile, and could not come back */
	case -EIO:
		return -EIO;	/* KVM has given this VM up */
	default:
		return -EOPNOTSUPP;
	}
}

/*
 * -EOPNOTSUPP: the guest's memory is encrypted (SEV, TDX). KVM's vendor modules keep that to
 * themselves, and their ioctl for such guests says ENOTTY for all others; the question is one that
 * changes nothing, and sev_fd is none, so that nothing is asked of the security processor. No lab
 * has such a guest.
 * Context: a job.
 */
int godwit_kvm_refuse_encrypted(struct godwit_session *s)
{
	struct kvm_sev_cmd status = { .id = KVM_SEV_GUEST_STATUS, .sev_fd = -1 };
	struct godwit_scratch sc = {};
	int r;

	r = godwit_borrow_mm(s);
	if (r)
		return r;
	r = stage(&sc, &status, sizeof(status));
	if (!r)
		r = answer_of(vm_ioctl(s, &sc, KVM_MEMORY_ENCRYPT_OP));
	godwit_scratch_unmap(&sc);
	godwit_return_mm(s);
	return r;
}

/* Prepares godwit_kvm_set_region(). npages 0 deletes the slot. */
int godwit_kvm_stage_region(struct godwit_scratch *sc, const struct godwit_slot *slot, u32 flags,
			    u64 npages)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot->as_id << 16 | slot->id,
		.flags = flags,
		.guest_phys_addr = slot->base_gfn << PAGE_SHIFT,
		.memory_size = npages << PAGE_SHIFT,
		.userspace_addr = slot->hva,
	};

	return stage(sc, &region, sizeof(region));
}

int godwit_kvm_set_region(struct godwit_session *s, struct godwit_scratch *sc)
{
	return vm_ioctl(s, sc, KVM_SET_USER_MEMORY_REGION);
}

/**
 * godwit_kvm_clear() - forget and re-arm pages of a slot
 * @first: in the slot, a multiple of 64
 * @npages: at most GODWIT_CLEAR_PAGES; a multiple of 64, or up to the slot's end
 * @bits: those to clear; bit 0 is @first
 */
int godwit_kvm_clear(struct godwit_session *s, struct godwit_scratch *sc,
		     const struct godwit_slot *slot, u64 first, u64 npages,
		     const unsigned long *bits)
{
	struct kvm_clear_dirty_log log = {
		.slot = slot->as_id << 16 | slot->id,
		.num_pages = npages,
		.first_page = first,
	};
	int r = scratch_map(sc);

	if (r)
		return r;
	log.dirty_bitmap = (void __user *)(sc->uaddr + ARG_BYTES);
	if (copy_to_user(log.dirty_bitmap, bits, BITS_TO_LONGS(npages) * sizeof(long)))
		return -ENOMEM;
	r = stage(sc, &log, sizeof(log));
	return r ? r : vm_ioctl(s, sc, KVM_CLEAR_DIRTY_LOG);
}
