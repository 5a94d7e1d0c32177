// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc/proc_io.h"
#include "vmm/kvm.h"
#include "vmm/ram.h"

static int vm_open_process(struct vm *vm, struct err *e)
{
	if (vm->pid <= 0)
		return err_set(e, GW_USAGE, ESRCH,
			       "the pid of the process that serves the QMP socket is unknown (another pid namespace?): name it with --pid");
	vm->pidfd = (int)syscall(SYS_pidfd_open, vm->pid, 0);
	if (vm->pidfd >= 0)
		return 0;
	if (errno == ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH,
			       "there is no process %d: the VMM has exited, or the number is wrong",
			       (int)vm->pid);
	return err_set(e, GW_INTERNAL, errno,
		       "pidfd_open of %d: %s (Linux 5.6 or newer is needed)", (int)vm->pid,
		       strerror(errno));
}

/*
 * While the VMM lives, no other process gets its pid: if it lives still, what we have read in
 * /proc/PID was its own.
 */
static int vm_still_there(const struct vm *vm, struct err *e)
{
	if (!proc_ended(vm->pidfd))
		return 0;
	return err_set(e, GW_VM_GONE, ESRCH, "process %d, the VMM, has exited", (int)vm->pid);
}

int vm_find_kvm(struct vm *vm, struct err *e)
{
	char proc[32];
	int r;

	snprintf(proc, sizeof(proc), "/proc/%d", (int)vm->pid);
	r = kvm_find(vm, proc, e);
	return r ? r : vm_still_there(vm, e);
}

int vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e)
{
	char proc[32];
	int r;

	memset(vm, 0, sizeof(*vm));
	vm->pid = pid || !q ? pid : qmp_peer_pid(q);
	vm->pidfd = vm->vm_fd = -1;
	snprintf(proc, sizeof(proc), "/proc/%d", (int)vm->pid);
	r = vm_open_process(vm, e);
	if (!r)
		r = q ? ram_find(q, proc, flags & VM_WRITE, vm, e) : ram_find_mapped(proc, vm, e);
	if (!r)
		r = flags & VM_KVM ? vm_find_kvm(vm, e) : vm_still_there(vm, e);
	if (r)
		vm_close(vm);
	return r;
}

static int vm_open_known(struct vm *vm, const char *proc, const struct ram_block *known,
			 unsigned int n, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	int r = proc_load_maps(proc, &maps, e);

	while (!r && vm->nblocks < n) {
		struct ram_block *b = &vm->blocks[vm->nblocks];

		*b = known[vm->nblocks];
		r = ram_open_known(&maps, proc, b, e);
		vm->nblocks += !r;
	}
	return r;
}

int vm_find_known(pid_t pid, const struct ram_block *known, unsigned int n, struct vm *vm,
		  struct err *e)
{
	char proc[32];
	int r;

	memset(vm, 0, sizeof(*vm));
	vm->pid = pid;
	vm->pidfd = vm->vm_fd = -1;
	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	r = vm_open_process(vm, e);
	if (!r)
		r = vm_open_known(vm, proc, known, n, e);
	if (!r)
		r = vm_still_there(vm, e);
	if (r)
		vm_close(vm);
	return r;
}

uint64_t vm_allocated_pages(const struct vm *vm)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		sum += ram_ops(&vm->blocks[i])->allocated(&vm->blocks[i]);
	return sum;
}

void vm_close(struct vm *vm)
{
	if (!vm->pid)
		return;
	for (unsigned int i = 0; i < vm->nblocks; i++)
		ram_block_close(&vm->blocks[i]);
	if (vm->vm_fd >= 0)
		close(vm->vm_fd);
	if (vm->pidfd >= 0)
		close(vm->pidfd);
	memset(vm, 0, sizeof(*vm));
	vm->pidfd = vm->vm_fd = -1;
}
