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
#define CODE_GPA	0x1000UL
#define CTL_GPA		0x2000UL	/* a page for each vCPU */
#define TABLE_GPA	0x100000UL
#define TABLE_MAX	((LOW_BYTES - TABLE_GPA) / sizeof(uint32_t))
#define TSS_GPA		0xfffbd000UL

static void set_registers(struct vm *vm, unsigned int n)
{
	struct kvm_segment flat = { .limit = 0xffffffff, .present = 1, .s = 1, .g = 1, .db = 1 };
	struct kvm_regs regs = { .rip = CODE_GPA, .rflags = 2, .rbx = CTL_GPA + n * PAGE, .rbp = n * sizeof(uint32_t) };
	struct kvm_sregs sregs;
	int fd = vm->vcpu[n].fd;

	require(!ioctl(fd, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	flat.type = 11;
	flat.selector = 8;
	sregs.cs = flat;
	flat.type = 3;
	flat.selector = 16;
	sregs.ds = flat;
	sregs.es = flat;
	sregs.fs = flat;
	sregs.gs = flat;
	sregs.ss = flat;
	sregs.cr0 |= 1;
	require(!ioctl(fd, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
	require(!ioctl(fd, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

static void add_vcpu(struct vm *vm, unsigned int n)
{
	struct vcpu *v = &vm->vcpu[n];
	int bytes = ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

	v->fd = ioctl(vm->fd, KVM_CREATE_VCPU, n);
	require(v->fd >= 0, "KVM_CREATE_VCPU");
	v->run = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	require(v->run != MAP_FAILED, "mmap of a vCPU");
	v->low = vm->low;
	v->ctl = (struct guest_ctl *)(vm->low + CTL_GPA + n * PAGE);
	v->ctl->table = TABLE_GPA;
	set_registers(vm, n);
}

void vm_create(struct vm *vm, unsigned int nr_vcpus, unsigned int manual)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, .args = { manual } };

	memset(vm, 0, sizeof(*vm));
	vm->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	require(vm->kvm >= 0, "/dev/kvm");
	vm->fd = ioctl(vm->kvm, KVM_CREATE_VM, 0);
	require(vm->fd >= 0, "KVM_CREATE_VM");
	require(!manual || !ioctl(vm->fd, KVM_ENABLE_CAP, &cap), "KVM_ENABLE_CAP");
	ioctl(vm->fd, KVM_SET_TSS_ADDR, TSS_GPA);	/* Intel needs it */

	vm->low = mmap(NULL, LOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(vm->low != MAP_FAILED, "mmap");
	memcpy(vm->low + CODE_GPA, guest_code, guest_code_end - guest_code);
	vm->table = (uint32_t *)(vm->low + TABLE_GPA);
	require(!vm_slot(vm, 0, 0, 0, LOW_BYTES, vm->low), "the VM's own slot");
	for (vm->nr_vcpus = 0; vm->nr_vcpus < nr_vcpus; vm->nr_vcpus++)
		add_vcpu(vm, vm->nr_vcpus);
}

void vm_destroy(struct vm *vm)
{
	unsigned int i;

	for (i = 0; i < vm->nr_vcpus; i++) {
		munmap(vm->vcpu[i].run, ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, 0));
		close(vm->vcpu[i].fd);
	}
	close(vm->fd);
	close(vm->kvm);
	munmap(vm->low, LOW_BYTES);
}

int vm_slot(struct vm *vm, unsigned int id, unsigned int flags, uint64_t gpa, uint64_t bytes, const void *hva)
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
	/* Nobody's memory: with the log on KVM fails to copy (EFAULT), with the log off it does not try (ENOENT). */
	struct kvm_dirty_log log = { .slot = id, .dirty_bitmap = (void *)1 };

	require(ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) && (errno == EFAULT || errno == ENOENT), "KVM_GET_DIRTY_LOG");
	return errno == EFAULT;
}

int vm_log_has(struct vm *vm, unsigned int id, uint64_t npages, uint64_t page)
{
	uint64_t *bits = calloc((npages + 63) / 64, sizeof(*bits));
	struct kvm_dirty_log log = { .slot = id, .dirty_bitmap = bits };
	int has;

	require(bits, "calloc");
	has = ioctl(vm->fd, KVM_GET_DIRTY_LOG, &log) ? -errno : (int)(bits[page / 64] >> page % 64 & 1);
	free(bits);
	return has;
}

void vm_table_add(struct vm *vm, uint64_t gpa, uint64_t npages)
{
	require(vm->pages + npages <= TABLE_MAX && gpa + npages * PAGE <= UINT32_MAX, "the guest's table of pages");
	for (; npages; npages--, gpa += PAGE)
		vm->table[vm->pages++] = gpa;
}

/*
 * Our guests never leave 32 bits nor their few bytes of code, which jump nowhere else; and nobody but them and KVM touches their
 * registers. A 64-bit code segment in there, a VMCB that the CPU refuses, an EIP outside of code that is as it was: that is what an
 * emulated CPU was seen to do to its guest.
 */
static bool left_its_code(const struct vcpu *v, uint64_t eip)
{
	const size_t len = (size_t)(guest_code_end - guest_code);

	return (eip < CODE_GPA || eip > CODE_GPA + len) && !memcmp(v->low + CODE_GPA, guest_code, len);
}

static void strange_exit(struct vcpu *v)
{
	struct kvm_sregs sregs = { 0 };
	struct kvm_regs regs = { 0 };

	ioctl(v->fd, KVM_GET_SREGS, &sregs);
	fprintf(stderr, "# exit reason %u, CS %x L %u, CR0 %llx, CR3 %llx\n", v->run->exit_reason, sregs.cs.selector, sregs.cs.l,
		(unsigned long long)sregs.cr0, (unsigned long long)sregs.cr3);
	ioctl(v->fd, KVM_GET_REGS, &regs);
	fprintf(stderr, "# EIP %llx EAX %llx ECX %llx EDX %llx ESI %llx EDI %llx ESP %llx\n", regs.rip, regs.rax, regs.rcx,
		regs.rdx, regs.rsi, regs.rdi, regs.rsp);
	if (v->run->exit_reason == KVM_EXIT_MMIO)
		fprintf(stderr, "# no slot at %llx\n", v->run->mmio.phys_addr);
	if (v->run->exit_reason == KVM_EXIT_FAIL_ENTRY || sregs.cs.l)
		emulator_failed("the VMCB is not the guest's");
	if (left_its_code(v, regs.rip))
		emulator_failed("EIP is %llx, and the guest's code is as it was", regs.rip);
	require(false, "the guest's exit");
}

/* Until the guest says that its loop has ended. */
static void run(struct vcpu *v)
{
	while (ioctl(v->fd, KVM_RUN, 0))
		require(errno == EINTR || errno == EAGAIN, "KVM_RUN");
	if (v->run->exit_reason != KVM_EXIT_IO)
		strange_exit(v);
}

static void prepare(struct vm *vm, unsigned int n, uint32_t seed, uint32_t value, uint32_t count, uint32_t step)
{
	struct guest_ctl *ctl = vm->vcpu[n].ctl;

	ctl->seed = seed;
	ctl->value = value;
	ctl->count = count;
	ctl->step = step;
	ctl->pages = vm->pages;
	ctl->stop = 0;
}

void vcpu_batch(struct vm *vm, unsigned int n, uint32_t seed, uint32_t value, uint32_t count)
{
	const struct guest_ctl *ctl = vm->vcpu[n].ctl;

	prepare(vm, n, seed, value, count, 0);
	run(&vm->vcpu[n]);
	while (count--)
		guest_pick(&seed, 1);
	if (ctl->seed != seed || ctl->value != value)
		emulator_failed("the guest has lost count: %x instead of %x, %x of %x", ctl->seed, seed,
				ctl->value, value);
}

static void *run_thread(void *arg)
{
	struct vcpu *v = arg;

	while (!v->ctl->stop)
		run(v);
	return NULL;
}

void vcpu_start(struct vm *vm, unsigned int n, uint32_t seed)
{
	prepare(vm, n, seed, 1, UINT32_MAX, 1);
	require(!pthread_create(&vm->vcpu[n].thread, NULL, run_thread, &vm->vcpu[n]), "pthread_create");
}

void vcpu_stop(struct vm *vm, unsigned int n)
{
	vm->vcpu[n].ctl->stop = 1;
	pthread_join(vm->vcpu[n].thread, NULL);
}

uint32_t guest_pick(uint32_t *seed, uint32_t pages)
{
	*seed = *seed * 1664525 + 1013904223;
	return (uint64_t)*seed * pages >> 32;
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
