// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host.h"
#include "vm.h"

#define LOW_BYTES	0x400000UL
#define TABLE_GPA	0x100000UL
#define TABLE_MAX	((LOW_BYTES - TABLE_GPA) / sizeof(uint32_t))
#define TSS_GPA		0xfffbd000UL

static void open_vm(struct vm *vm, unsigned int manual)
{
	struct kvm_enable_cap cap = {
		.cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, .args = { manual },
	};

	memset(vm, 0, sizeof(*vm));
	vm->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	require(vm->kvm >= 0, "/dev/kvm");
	vm->fd = ioctl(vm->kvm, KVM_CREATE_VM, 0);
	require(vm->fd >= 0, "KVM_CREATE_VM");
	require(!manual || !ioctl(vm->fd, KVM_ENABLE_CAP, &cap), "KVM_ENABLE_CAP");
	ioctl(vm->fd, KVM_SET_TSS_ADDR, TSS_GPA);	/* Intel needs it */

	vm->low = mmap(NULL, LOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(vm->low != MAP_FAILED, "mmap");
	vm->table = (uint32_t *)(vm->low + TABLE_GPA);
	require(!vm_slot(vm, 0, 0, 0, LOW_BYTES, vm->low), "the VM's own slot");
}

void vm_create(struct vm *vm, unsigned int nr_vcpus, unsigned int manual)
{
	open_vm(vm, manual);
	for (; vm->nr_vcpus < nr_vcpus; vm->nr_vcpus++)
		vcpu_create(vm, vm->nr_vcpus, false);
}

void vm_create_long(struct vm *vm, unsigned int manual)
{
	open_vm(vm, manual);
	vcpu_create(vm, vm->nr_vcpus++, true);
}

void vm_destroy(struct vm *vm)
{
	unsigned int i;

	for (i = 0; i < vm->nr_vcpus; i++)
		vcpu_destroy(vm, i);
	close(vm->fd);
	close(vm->kvm);
	munmap(vm->low, LOW_BYTES);
}

int vm_slot(struct vm *vm, unsigned int id, unsigned int flags, uint64_t gpa, uint64_t bytes,
	    const void *hva)
{
	struct kvm_userspace_memory_region region = {
		.slot = id,
		.flags = flags,
		.guest_phys_addr = gpa,
		.memory_size = bytes,
		.userspace_addr = (uintptr_t)hva,
	};

	return ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region) ? -errno : 0;
}

bool vm_logged(struct vm *vm, unsigned int id)
{
	/* No memory there: KVM fails to copy a log that is on (EFAULT), and tries no other. */
	struct kvm_dirty_log log = { .slot = id, .dirty_bitmap = (void *)1 };

	require(ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) && (errno == EFAULT || errno == ENOENT),
		"KVM_GET_DIRTY_LOG");
	return errno == EFAULT;
}

int vm_log_has(struct vm *vm, unsigned int id, uint64_t npages, uint64_t page)
{
	uint64_t *bits = calloc((npages + 63) / 64, sizeof(*bits));
	struct kvm_dirty_log log = { .slot = id, .dirty_bitmap = bits };
	int has;

	require(bits, "calloc");
	has = ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) ? -errno :
	      (int)(bits[page / 64] >> page % 64 & 1);
	free(bits);
	return has;
}

void vm_table_add(struct vm *vm, uint64_t gpa, uint64_t npages)
{
	require(vm->pages + npages <= TABLE_MAX && gpa + npages * PAGE <= UINT32_MAX,
		"the guest's table of pages");
	for (; npages; npages--, gpa += PAGE)
		vm->table[vm->pages++] = gpa;
}

pid_t vm_elsewhere(void (*furnish)(struct vm *vm, void *arg), void *arg, int *vm_fd)
{
	int pipes[2], fd, pidfd;
	pid_t pid;

	require(!pipe(pipes), "pipe");
	pid = fork_child();
	if (!pid) {
		struct vm vm;

		vm_create(&vm, 1, 3);
		if (furnish)
			furnish(&vm, arg);
		if (write(pipes[1], &vm.fd, sizeof(vm.fd)) > 0)
			pause();
		_exit(1);
	}
	require(read(pipes[0], &fd, sizeof(fd)) == sizeof(fd), "a VMM");
	close(pipes[0]);
	close(pipes[1]);
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	*vm_fd = syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	require(*vm_fd >= 0, "pidfd_getfd");
	close(pidfd);
	return pid;
}
