// SPDX-License-Identifier: GPL-2.0-only
/*
 * godwit with a module that says of all pages, at each harvest, that they are dirty: rounds of pre-copy without KVM, of a
 * guest that runs under TCG and writes. It misses nothing: what the guest writes after a page was read the next round sends,
 * and before the last one the guest stands still. With DIRTY 0, of none: for a guest that stands still.
 */
#include <fcntl.h>
#include <unistd.h>

#include "dirty/source.h"
#include "vmm/kvm.h"
#include "kernel/device.h"

int __wrap_device_open_or_pause(struct err *e);
int __wrap_kvm_find(struct vm *vm, const char *proc, struct err *e);
int __wrap_source_kmod(const struct vm *vm, int dev, struct dirty_source **out, struct err *e);
void __wrap_source_kmod_hurry(int vm_fd);

int __wrap_device_open_or_pause(struct err *e)
{
	(void)e;
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

int __wrap_kvm_find(struct vm *vm, const char *proc, struct err *e)
{
	(void)proc;
	vm->vm_fd = __wrap_device_open_or_pause(e);
	return 0;
}

void __wrap_source_kmod_hurry(int vm_fd)
{
	(void)vm_fd;
}

static int all_harvest(struct dirty_source *s, struct err *e)
{
	(void)e;
	for (unsigned int i = 0; DIRTY && i < s->vm->nblocks; i++)
		bitmap_set(s->map[i], 0, s->vm->blocks[i].pages);
	return 0;
}

/* As that of --pause, but for the harvest. */
int __wrap_source_kmod(const struct vm *vm, int dev, struct dirty_source **out, struct err *e)
{
	static struct dirty_ops ops;
	int r = source_none(vm, out, e);

	close(dev);
	if (r)
		return r;
	ops = *(*out)->ops;
	ops.name = DIRTY ? "all dirty" : "none dirty";
	ops.harvest = all_harvest;
	(*out)->ops = &ops;
	return 0;
}
