/* SPDX-License-Identifier: GPL-2.0-only */
/* A KVM VM in a few calls. What cannot fail in a test that makes sense ends the process, see require(). */
#ifndef KST_VM_H
#define KST_VM_H

#include <linux/kvm.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGE		4096UL
#define VCPUS_MAX	4
#define RAM_GPA		0x10000000UL	/* where tests begin to place RAM; below is the VM's own memory */

/* What a vCPU is told; guest.S knows the offsets. */
struct guest_ctl {
	uint32_t seed;
	uint32_t value;
	uint32_t count;
	volatile uint32_t stop;
	uint32_t pages;		/* entries in the table */
	uint32_t step;		/* added to value with each write */
	uint32_t table;		/* guest physical address: the guest physical addresses of the pages */
};

/* guest.S */
extern const uint8_t guest_code[], guest_code_end[];

struct vcpu {
	int fd;
	struct kvm_run *run;
	const uint8_t *low;	/* of its VM */
	struct guest_ctl *ctl;
	pthread_t thread;
};

/**
 * struct vm
 * @low: private memory of guest physical address 0 up: code, controls, table; slot 0
 * @table: the pages that vCPUs write
 */
struct vm {
	int kvm;
	int fd;
	unsigned int nr_vcpus;
	struct vcpu vcpu[VCPUS_MAX];
	uint8_t *low;
	uint32_t *table;
	uint32_t pages;
};

/* manual: KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2's argument: 0, 1 or 3. */
void vm_create(struct vm *vm, unsigned int nr_vcpus, unsigned int manual);
void vm_destroy(struct vm *vm);
/*
 * A VMM in a process of its own, which waits to be killed. furnish() adds to its VM, and may be NULL. *vm_fd: the VM's
 * descriptor, taken by pidfd_getfd() as `godwit send` does.
 */
pid_t vm_elsewhere(void (*furnish)(struct vm *vm, void *arg), void *arg, int *vm_fd);
/* 0 or -errno. bytes 0 deletes the slot. */
int vm_slot(struct vm *vm, unsigned int id, unsigned int flags, uint64_t gpa, uint64_t bytes, const void *hva);
/* Is the slot's dirty log on? From KVM, not from godwit. */
bool vm_logged(struct vm *vm, unsigned int id);
/* Is this page of a slot with npages in its log? 0, 1 or -errno. That is the end of the log without manual protection. */
int vm_log_has(struct vm *vm, unsigned int id, uint64_t npages, uint64_t page);
/* vCPUs may write these pages from now on. Entry number n of the table is page n of all that were added. */
void vm_table_add(struct vm *vm, uint64_t gpa, uint64_t npages);

/* Writes count values, to pages picked by seed, and comes back. */
void vcpu_batch(struct vm *vm, unsigned int n, uint32_t seed, uint32_t value, uint32_t count);
/* The same without an end, in a thread; each write has its own value. */
void vcpu_start(struct vm *vm, unsigned int n, uint32_t seed);
void vcpu_stop(struct vm *vm, unsigned int n);
/* The table entry that the guest picks next. */
uint32_t guest_pick(uint32_t *seed, uint32_t pages);

#endif /* KST_VM_H */
