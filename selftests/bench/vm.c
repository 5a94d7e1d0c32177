// SPDX-License-Identifier: GPL-2.0-only
/* A VM, its memory and its statistics. */
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>

#include "bench.h"

#define LOW_BYTES	(64 * 1024)
#define CONTROL_GPA	0x5000

uint64_t vm_slot_pages(const struct vm *vm)
{
	return vm->pages / vm->slots;
}

static void set_slot(struct vm *vm, unsigned int slot, uint32_t flags, uint64_t gpa, uint64_t bytes, void *hva)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot, .flags = flags, .guest_phys_addr = gpa, .memory_size = bytes,
		.userspace_addr = (uintptr_t)hva,
	};

	if (ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &region))
		die("KVM_SET_USER_MEMORY_REGION of slot %u: %m", slot);
}

void vm_set_logging(struct vm *vm, unsigned int slot, bool on)
{
	uint64_t bytes = vm_slot_pages(vm) * PAGE, at = (slot - 1) * bytes;

	set_slot(vm, slot, on ? KVM_MEM_LOG_DIRTY_PAGES : 0, RAM_GPA + at, bytes, vm->ram + at);
}

static void *map(int fd, uint64_t bytes, int flags)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);

	if (p == MAP_FAILED)
		die("mmap of %llu MiB: %m", (unsigned long long)(bytes / MIB));
	return p;
}

/* As QEMU does it: logs are cleared by hand, and begin all ones. */
static void manual_protect(struct vm *vm)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, .args = { 3 } };

	if (ioctl(vm->fd, KVM_ENABLE_CAP, &cap))
		die("KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2: %m");
}

void vm_open(struct vm *vm, uint64_t bytes, unsigned int slots, bool huge)
{
	*vm = (struct vm){ .bytes = bytes, .pages = bytes / PAGE, .slots = slots };
	vm->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm->fd = vm->kvm < 0 ? -1 : ioctl(vm->kvm, KVM_CREATE_VM, 0);
	if (vm->fd < 0)
		die("/dev/kvm: %m");
	manual_protect(vm);
	vm->ram_fd = memfd_create("ram", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
	if (vm->ram_fd < 0 || ftruncate(vm->ram_fd, (off_t)bytes))
		die("RAM file: %m");
	vm->ram = map(vm->ram_fd, bytes, MAP_SHARED);
	vm->low = map(-1, LOW_BYTES, MAP_PRIVATE | MAP_ANONYMOUS);
	vm->control = (struct control *)(vm->low + CONTROL_GPA);
	set_slot(vm, 0, 0, 0, LOW_BYTES, vm->low);
	for (unsigned int i = 1; i <= slots; i++)
		vm_set_logging(vm, i, false);
	vm->stats = ioctl(vm->fd, KVM_GET_STATS_FD, NULL);
	if (vm->stats < 0)
		die("KVM_GET_STATS_FD: %m");
	vcpu_open(vm);
}

void vm_close(struct vm *vm)
{
	vcpu_close(vm);
	close(vm->stats);
	close(vm->fd);
	close(vm->kvm);
	munmap(vm->ram, vm->bytes);
	munmap(vm->low, LOW_BYTES);
	close(vm->ram_fd);
}

uint64_t vm_stat(const struct vm *vm, const char *name)
{
	struct kvm_stats_header h;
	char buf[sizeof(struct kvm_stats_desc) + 256];
	struct kvm_stats_desc *d = (struct kvm_stats_desc *)buf;
	uint64_t value;

	if (pread(vm->stats, &h, sizeof(h), 0) != sizeof(h) || h.name_size > 256)
		die("KVM's statistics: %m");
	for (uint32_t i = 0; i < h.num_desc; i++) {
		size_t size = sizeof(*d) + h.name_size;

		if (pread(vm->stats, buf, size, (off_t)(h.desc_offset + i * size)) != (ssize_t)size)
			die("KVM's statistics: %m");
		if (strcmp(d->name, name))
			continue;
		if (pread(vm->stats, &value, sizeof(value), (off_t)h.data_offset + d->offset) != sizeof(value))
			die("KVM's statistics: %m");
		return value;
	}
	die("KVM has no statistic %s", name);
}
