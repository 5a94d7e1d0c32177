// SPDX-License-Identifier: GPL-2.0-only
/*
 * Copies the VMM's KVM descriptor. The VMM may close a descriptor and reuse its number between the
 * read of /proc and the copy, so godwit checks the copy again, and compares only copies.
 */
#include <errno.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc/proc_io.h"
#include "vmm/kvm.h"

#define KVM_VM "anon_inode:kvm-vm"

static bool kvm_is_vm_fd(int fd)
{
	char path[64], link[sizeof(KVM_VM)];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link));
	return n == sizeof(KVM_VM) - 1 && !memcmp(link, KVM_VM, (size_t)n);
}

/* Duplicates share the open file. A kernel without kcmp: all differ, which is the safe answer. */
static bool kvm_same_file(int a, int b)
{
	return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b) == 0;
}

/* Takes fd over. */
static int kvm_keep_if_vm(struct vm *vm, int fd, struct err *e)
{
	int r = 0;

	if (kvm_is_vm_fd(fd) && vm->vm_fd < 0) {
		vm->vm_fd = fd;
		return 0;
	}
	if (kvm_is_vm_fd(fd) && !kvm_same_file(fd, vm->vm_fd))
		r = err_set(e, GW_NOT_QEMU, ENOTUNIQ,
			    "process %d runs more than one KVM VM: godwit migrates a VMM with one VM only",
			    (int)vm->pid);
	close(fd);
	return r;
}

static int kvm_take_fd(void *arg, const char *number, const char *link, struct err *e)
{
	struct vm *vm = arg;
	char path[64];
	int fd;

	if (strcmp(link, KVM_VM))
		return 0;
	fd = (int)syscall(SYS_pidfd_getfd, vm->pidfd, atoi(number), 0);
	if (fd >= 0)
		return kvm_keep_if_vm(vm, fd, e);
	if (errno == EBADF)
		return 0;	/* closed meanwhile */
	snprintf(path, sizeof(path), "pidfd_getfd of /proc/%d/fd/%.9s", (int)vm->pid, number);
	return proc_failed(path, errno, e);
}

int kvm_find(struct vm *vm, const char *proc, struct err *e)
{
	int r = proc_each_fd(proc, kvm_take_fd, vm, e);

	if (!r && vm->vm_fd < 0)
		r = err_set(e, GW_NOT_QEMU, ENOENT,
			    "process %d runs no KVM VM (no descriptor of " KVM_VM "): name the VMM's process with --pid, or start QEMU with -accel kvm",
			    (int)vm->pid);
	return r;
}
