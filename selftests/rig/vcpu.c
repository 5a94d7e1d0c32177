// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "vm.h"

#define CODE_GPA	0x1000UL
#define CTL_GPA		0x2000UL	/* a page for each vCPU */
#define PML4_GPA	0x8000UL
#define PDPT_GPA	0x9000UL

static_assert(CTL_GPA + VCPUS_MAX * PAGE <= PML4_GPA, "low memory holds each thing once");

#define STOP_PATIENCE_S	10	/* a third of what a test may take */

#define CR0_PE		(1U << 0)
#define CR0_PG		(1U << 31)
#define CR4_PAE		(1U << 5)
#define EFER_LME	(1U << 8)
#define EFER_LMA	(1U << 10)
#define PRESENT_WRITABLE	0x3
#define PRESENT_WRITABLE_1G	0x83

/* As far as 512 GiB, in pages of 1 GiB. */
static void make_page_tables(struct vm *vm)
{
	uint64_t *pml4 = (uint64_t *)(vm->low + PML4_GPA), *pdpt = (uint64_t *)(vm->low + PDPT_GPA);
	uint64_t i;

	pml4[0] = PDPT_GPA | PRESENT_WRITABLE;
	for (i = 0; i < 512; i++)
		pdpt[i] = i * GIB | PRESENT_WRITABLE_1G;
}

/* All that the host has: long mode, and pages of 1 GiB. */
static void set_cpuid(struct vm *vm, int fd)
{
	struct kvm_cpuid2 *cpuid = calloc(1, sizeof(*cpuid) + 256 * sizeof(cpuid->entries[0]));

	require(cpuid, "calloc");
	cpuid->nent = 256;
	require(!ioctl(vm->kvm, KVM_GET_SUPPORTED_CPUID, cpuid), "KVM_GET_SUPPORTED_CPUID");
	require(!ioctl(fd, KVM_SET_CPUID2, cpuid), "KVM_SET_CPUID2");
	free(cpuid);
}

static void set_mode(const struct vcpu *v)
{
	struct kvm_segment code = {
		.limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .s = 1, .g = 1,
		.db = !v->long_mode, .l = v->long_mode,
	};
	struct kvm_segment data = {
		.limit = 0xffffffff, .selector = 16, .type = 3, .present = 1, .s = 1, .g = 1,
		.db = 1,
	};
	struct kvm_sregs sregs;

	require(!ioctl(v->fd, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
	sregs.cs = code;
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
	sregs.cr0 |= CR0_PE;
	if (v->long_mode) {
		sregs.cr0 = CR0_PG | CR0_PE;
		sregs.cr3 = PML4_GPA;
		sregs.cr4 = CR4_PAE;
		sregs.efer = EFER_LMA | EFER_LME;
	}
	require(!ioctl(v->fd, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
}

void vcpu_create(struct vm *vm, unsigned int n, bool long_mode)
{
	struct vcpu *v = &vm->vcpu[n];
	int bytes = ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, 0);

	v->fd = ioctl(vm->fd, KVM_CREATE_VCPU, n);
	require(v->fd >= 0, "KVM_CREATE_VCPU");
	v->run = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);
	require(v->run != MAP_FAILED, "mmap of a vCPU");
	v->low = vm->low;
	v->long_mode = long_mode;
	v->ctl_gpa = CTL_GPA + n * PAGE;
	v->ctl = (struct guest_ctl *)(vm->low + v->ctl_gpa);
	memcpy(vm->low + CODE_GPA, guest_code, guest_code_end - guest_code);
	if (long_mode) {
		make_page_tables(vm);
		set_cpuid(vm, v->fd);
	}
	set_mode(v);
	if (long_mode)
		return;
	v->ctl->table = (uint8_t *)vm->table - vm->low;
	vcpu_begin(v, guest_batch,
		   &(struct kvm_regs){ .rbx = v->ctl_gpa, .rbp = n * sizeof(uint32_t) });
}

void vcpu_destroy(struct vm *vm, unsigned int n)
{
	munmap(vm->vcpu[n].run, ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, 0));
	close(vm->vcpu[n].fd);
}

void vcpu_begin(struct vcpu *v, const uint8_t *program, const struct kvm_regs *with)
{
	struct kvm_regs regs = *with;

	v->program = program;
	regs.rip = CODE_GPA + (program - guest_code);
	regs.rflags = 2;
	require(!ioctl(v->fd, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

/*
 * Our guests never leave their mode nor their program, whose jumps all end within it; and only they
 * and KVM touch their registers. A code segment of another mode in there, a VMCB that the CPU
 * refuses, an EIP outside of a program that is as it was (one was seen behind the jump that ends
 * guest_batch, in the next program's bytes): that is what an emulated CPU was seen to do to its
 * guest.
 */
static bool left_its_program(const struct vcpu *v, uint64_t eip)
{
	const uint8_t *const programs[] = { guest_batch, guest_dirty, guest_hot, guest_code_end };
	uint64_t begin = CODE_GPA + (v->program - guest_code), end;
	unsigned int i = 0;

	while (programs[i] <= v->program)
		i++;
	end = CODE_GPA + (programs[i] - guest_code);
	/* At its end is one that is done with its last OUT. */
	return (eip < begin || eip > end) &&
	       !memcmp(v->low + CODE_GPA, guest_code, guest_code_end - guest_code);
}

static void strange_exit(struct vcpu *v)
{
	struct kvm_sregs sregs = { 0 };
	struct kvm_regs regs = { 0 };

	ioctl(v->fd, KVM_GET_SREGS, &sregs);
	fprintf(stderr, "# exit reason %u, CS %x L %u, CR0 %llx, CR3 %llx\n", v->run->exit_reason,
		sregs.cs.selector, sregs.cs.l, sregs.cr0, sregs.cr3);
	ioctl(v->fd, KVM_GET_REGS, &regs);
	fprintf(stderr, "# EIP %llx EAX %llx ECX %llx EDX %llx ESI %llx EDI %llx ESP %llx\n",
		regs.rip, regs.rax, regs.rcx, regs.rdx, regs.rsi, regs.rdi, regs.rsp);
	if (v->run->exit_reason == KVM_EXIT_MMIO)
		fprintf(stderr, "# no slot at %llx\n", v->run->mmio.phys_addr);
	if (v->run->exit_reason == KVM_EXIT_FAIL_ENTRY || sregs.cs.l != v->long_mode)
		emulator_failed("the VMCB is not the guest's");
	if (left_its_program(v, regs.rip))
		emulator_failed("EIP is %llx, and the guest's program is as it was", regs.rip);
	require(false, "the guest's exit");
}

void vcpu_run(struct vcpu *v)
{
	struct kvm_regs regs;

	while (ioctl(v->fd, KVM_RUN, 0)) {
		require(errno == EINTR || errno == EAGAIN, "KVM_RUN");
		if (v->late && !ioctl(v->fd, KVM_GET_REGS, &regs) && left_its_program(v, regs.rip))
			strange_exit(v);
	}
	if (v->run->exit_reason != KVM_EXIT_IO)
		strange_exit(v);
}

static void prepare(struct vm *vm, unsigned int n, uint32_t seed, uint32_t value, uint32_t count,
		    uint32_t step)
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
	vcpu_run(&vm->vcpu[n]);
	while (count--)
		guest_pick(&seed, 1);
	if (ctl->seed != seed || ctl->value != value)
		emulator_failed("the guest has lost count: %x instead of %x, %x of %x", ctl->seed,
				seed, ctl->value, value);
}

static void *run_thread(void *arg)
{
	struct vcpu *v = arg;

	while (!v->ctl->stop)
		vcpu_run(v);
	return NULL;
}

void vcpu_start(struct vm *vm, unsigned int n, uint32_t seed)
{
	struct vcpu *v = &vm->vcpu[n];

	prepare(vm, n, seed, 1, UINT32_MAX, 1);
	require(!pthread_create(&v->thread, NULL, run_thread, v), "pthread_create");
}

/* One that has left its program writes no more: vcpu_stop() looks at it. */
void vcpu_wait(struct vm *vm, unsigned int n, uint32_t writes)
{
	const struct guest_ctl *ctl = vm->vcpu[n].ctl;
	uint64_t end = now_ms() + STOP_PATIENCE_S * 1000;
	uint32_t was = ctl->value;

	while (ctl->value - was < writes && now_ms() < end)
		sleep_ms(1);
	if (ctl->value - was >= writes)
		return;
	vcpu_stop(vm, n);
	require(false, "a vCPU that writes");
}

static void only_interrupts(int signal)
{
	(void)signal;
}

/* A guest that has left its program may spin there without an exit: after a while it is looked at. */
void vcpu_stop(struct vm *vm, unsigned int n)
{
	const struct sigaction interrupts = { .sa_handler = only_interrupts };	/* no SA_RESTART */
	struct vcpu *v = &vm->vcpu[n];
	struct timespec until;

	v->ctl->stop = 1;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_PATIENCE_S;
	if (!pthread_timedjoin_np(v->thread, NULL, &until))
		return;
	v->late = true;
	require(!sigaction(SIGUSR2, &interrupts, NULL), "sigaction");
	do {
		pthread_kill(v->thread, SIGUSR2);
		until.tv_sec++;
	} while (pthread_timedjoin_np(v->thread, NULL, &until));
	v->late = false;
}

uint32_t guest_pick(uint32_t *seed, uint32_t pages)
{
	*seed = *seed * 1664525 + 1013904223;
	return (uint64_t)*seed * pages >> 32;
}
