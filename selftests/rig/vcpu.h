/* SPDX-License-Identifier: GPL-2.0-only */
/* vCPUs, and the programs of guest.S that they run. */
#ifndef RIG_VCPU_H
#define RIG_VCPU_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct vm;

/* What a vCPU that runs guest_batch is told; guest.S knows the offsets, here and below. */
struct guest_ctl {
	uint32_t seed;
	volatile uint32_t value;	/* of the next write, all the time */
	uint32_t count;
	volatile uint32_t stop;
	uint32_t pages;		/* entries in the table */
	uint32_t step;		/* added to value with each write */
	uint32_t table;		/* guest physical address of the pages' guest physical addresses */
};

/* What one that runs guest_hot is told and tells. */
struct guest_hot_ctl {
	volatile uint64_t stop;
	volatile uint64_t steps;
	volatile uint64_t lost_tsc;
	volatile uint64_t gaps;
};

/* The programs: guest_batch for flat mode, the others for long mode. */
extern const uint8_t guest_code[], guest_code_end[];
extern const uint8_t guest_batch[], guest_dirty[], guest_hot[];

/**
 * struct vcpu
 * @low: its VM's low memory
 * @long_mode: 64-bit, and every address is its physical one; else flat: 32-bit, no paging
 * @program: what it runs
 * @late: it was told to stop some time ago, and runs on
 * @ctl_gpa: where its program finds @ctl or @hot
 */
struct vcpu {
	int fd;
	struct kvm_run *run;
	uint8_t *low;
	const uint8_t *program;
	bool long_mode, late;
	uint64_t ctl_gpa;
	union {
		struct guest_ctl *ctl;
		struct guest_hot_ctl *hot;
	};
	pthread_t thread;
};

/* For vm.c: makes, and undoes, vCPU number n. */
void vcpu_create(struct vm *vm, unsigned int n, bool long_mode);
void vcpu_destroy(struct vm *vm, unsigned int n);

/* What vcpu_run() runs next: a program from its begin, with these registers. */
void vcpu_begin(struct vcpu *v, const uint8_t *program, const struct kvm_regs *with);
/* Until the program says that it has ended. */
void vcpu_run(struct vcpu *v);

/* guest_batch. Writes count values, to pages picked by seed, and comes back. */
void vcpu_batch(struct vm *vm, unsigned int n, uint32_t seed, uint32_t value, uint32_t count);
/* The same without an end, in a thread; each write has its own value. */
void vcpu_start(struct vm *vm, unsigned int n, uint32_t seed);
/* Until it has written so many more values. */
void vcpu_wait(struct vm *vm, unsigned int n, uint32_t writes);
void vcpu_stop(struct vm *vm, unsigned int n);
/* The table entry that the guest picks next. */
uint32_t guest_pick(uint32_t *seed, uint32_t pages);

#endif /* RIG_VCPU_H */
