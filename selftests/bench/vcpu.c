// SPDX-License-Identifier: GPL-2.0-only
/* The vCPU: a thread of its own, on a CPU of its own, that runs one program of guest.S at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define PML4_GPA	0x1000
#define PDPT_GPA	0x2000
#define CODE_GPA	0x4000
#define VCPU_CPU	1

extern const uint8_t guest_code[], guest_code_end[], guest_dirty[], guest_hot[];

static void run_until_hlt(struct vm *vm)
{
	for (;;) {
		if (ioctl(vm->vcpu, KVM_RUN, NULL)) {
			if (errno == EINTR)
				continue;
			die("KVM_RUN: %m");
		}
		if (vm->run->exit_reason == KVM_EXIT_HLT)
			return;
		die("KVM_RUN: exit %u", vm->run->exit_reason);
	}
}

static void *vcpu_thread(void *arg)
{
	struct vm *vm = arg;

	pin(VCPU_CPU);
	pthread_mutex_lock(&vm->lock);
	while (!vm->quit) {
		if (vm->work) {
			pthread_mutex_unlock(&vm->lock);
			run_until_hlt(vm);
			pthread_mutex_lock(&vm->lock);
			vm->work = false;
			pthread_cond_broadcast(&vm->cond);
		} else {
			pthread_cond_wait(&vm->cond, &vm->lock);
		}
	}
	pthread_mutex_unlock(&vm->lock);
	return NULL;
}

/* Every guest address is its physical one, in pages of 1 GiB. */
static void make_page_tables(struct vm *vm)
{
	uint64_t *pml4 = (uint64_t *)(vm->low + PML4_GPA), *pdpt = (uint64_t *)(vm->low + PDPT_GPA);

	pml4[0] = PDPT_GPA | 0x3;
	for (uint64_t i = 0; i < 512; i++)
		pdpt[i] = i * GIB | 0x83;
}

static void long_mode(struct vm *vm)
{
	struct kvm_segment code = { .limit = ~0u, .selector = 8, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1 };
	struct kvm_segment data = { .limit = ~0u, .selector = 16, .type = 3, .present = 1, .s = 1, .db = 1, .g = 1 };
	struct kvm_sregs s;

	if (ioctl(vm->vcpu, KVM_GET_SREGS, &s))
		die("KVM_GET_SREGS: %m");
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	s.cr3 = PML4_GPA;
	s.cr4 = 1 << 5;			/* PAE */
	s.cr0 = 1u << 31 | 1;		/* PG, PE */
	s.efer = 1 << 10 | 1 << 8;	/* LMA, LME */
	if (ioctl(vm->vcpu, KVM_SET_SREGS, &s))
		die("KVM_SET_SREGS: %m");
}

static void set_cpuid(struct vm *vm)
{
	struct kvm_cpuid2 *cpuid = calloc(1, sizeof(*cpuid) + 256 * sizeof(cpuid->entries[0]));

	if (!cpuid)
		die("out of memory");
	cpuid->nent = 256;
	if (ioctl(vm->kvm, KVM_GET_SUPPORTED_CPUID, cpuid) || ioctl(vm->vcpu, KVM_SET_CPUID2, cpuid))
		die("CPUID: %m");
	free(cpuid);
}

static void start(struct vm *vm, struct kvm_regs *regs, const uint8_t *program)
{
	regs->rip = CODE_GPA + (uint64_t)(program - guest_code);
	regs->rflags = 2;
	regs->rdi = RAM_GPA;
	memset(vm->control, 0, sizeof(*vm->control));
	if (ioctl(vm->vcpu, KVM_SET_REGS, regs))
		die("KVM_SET_REGS: %m");
	pthread_mutex_lock(&vm->lock);
	vm->work = true;
	pthread_cond_broadcast(&vm->cond);
	pthread_mutex_unlock(&vm->lock);
}

static void wait_idle(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	while (vm->work)
		pthread_cond_wait(&vm->cond, &vm->lock);
	pthread_mutex_unlock(&vm->lock);
}

static unsigned int log2_of(uint64_t n)
{
	return 63 - (unsigned int)__builtin_clzll(n);
}

uint64_t vcpu_dirty(struct vm *vm, const struct pattern *p)
{
	uint64_t cells = vm->pages / p->run;
	struct kvm_regs regs = {
		.rsi = p->pages, .r8 = p->seed, .r9 = cells - 1, .r10 = log2_of(cells) / 2 + 1, .r11 = p->run,
	};
	uint64_t begin = now_ns();

	start(vm, &regs, guest_dirty);
	wait_idle(vm);
	return now_ns() - begin;
}

void vcpu_hot(struct vm *vm, uint64_t pages, unsigned int stride_shift)
{
	struct kvm_regs regs = {
		.rsi = pages - 1, .r8 = (uint64_t)((uint8_t *)vm->control - vm->low), .r9 = vm->step_tsc,
		.r10 = stride_shift, .r11 = vm->step_tsc * 8,
	};

	start(vm, &regs, guest_hot);
}

void vcpu_stop(struct vm *vm)
{
	vm->control->stop = 1;
	wait_idle(vm);
}

struct loss vcpu_loss(const struct vm *vm)
{
	return (struct loss){
		.steps = vm->control->steps,
		.lost_ns = vm->control->lost_tsc * 1000000 / vm->tsc_khz,
		.gaps = vm->control->gaps,
	};
}

/* What a step takes, on memory that is not logged yet. */
static void calibrate(struct vm *vm)
{
	uint64_t begin, steps;

	vm->step_tsc = UINT32_MAX;
	vcpu_hot(vm, 64, 12);
	sleep_ms(100);			/* the pages are there from here on */
	begin = now_ns();
	steps = vm->control->steps;
	sleep_ms(100);
	steps = vm->control->steps - steps;
	vm->step_tsc = (now_ns() - begin) * vm->tsc_khz / 1000000 / (steps ? steps : 1);
	vcpu_stop(vm);
}

void vcpu_open(struct vm *vm)
{
	int bytes = ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, NULL);

	vm->vcpu = ioctl(vm->fd, KVM_CREATE_VCPU, 0);
	if (vm->vcpu < 0)
		die("KVM_CREATE_VCPU: %m");
	vm->run = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vm->vcpu, 0);
	if (vm->run == MAP_FAILED)
		die("mmap of the vCPU: %m");
	make_page_tables(vm);
	memcpy(vm->low + CODE_GPA, guest_code, (size_t)(guest_code_end - guest_code));
	set_cpuid(vm);
	long_mode(vm);
	vm->tsc_khz = (unsigned int)ioctl(vm->vcpu, KVM_GET_TSC_KHZ, NULL);
	pthread_mutex_init(&vm->lock, NULL);
	pthread_cond_init(&vm->cond, NULL);
	if (pthread_create(&vm->thread, NULL, vcpu_thread, vm))
		die("no thread for the vCPU");
	calibrate(vm);
}

void vcpu_close(struct vm *vm)
{
	pthread_mutex_lock(&vm->lock);
	vm->quit = true;
	pthread_cond_broadcast(&vm->cond);
	pthread_mutex_unlock(&vm->lock);
	pthread_join(vm->thread, NULL);
	munmap(vm->run, (size_t)ioctl(vm->kvm, KVM_GET_VCPU_MMAP_SIZE, NULL));
	close(vm->vcpu);
}
