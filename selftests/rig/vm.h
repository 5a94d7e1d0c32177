/* SPDX-License-Identifier: GPL-2.0-only */
/* A KVM VM in a few calls. What must work ends the process if it fails, see require(). */
#ifndef RIG_VM_H
#define RIG_VM_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "vcpu.h"

#define PAGE		4096UL
#define MIB		(1UL << 20)
#define GIB		(1UL << 30)
#define VCPUS_MAX	4
/* Where tests begin to place RAM; below is the VM's own memory. */
#define RAM_GPA		0x10000000UL

/**
 * struct vm
 * @low: private memory of guest physical address 0 up: code, controls, tables; slot 0
 * @table: the pages that vCPUs in flat mode write
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

/* vCPUs in flat mode. manual: KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2's argument: 0, 1 or 3. */
void vm_create(struct vm *vm, unsigned int nr_vcpus, unsigned int manual);
/* One vCPU, in long mode. */
void vm_create_long(struct vm *vm, unsigned int manual);
void vm_destroy(struct vm *vm);
/*
 * A VMM in a process of its own, which waits to be killed. furnish() adds to its VM, and may be
 * NULL. *vm_fd: the VM's descriptor, taken by pidfd_getfd() as `godwit send` does.
 */
pid_t vm_elsewhere(void (*furnish)(struct vm *vm, void *arg), void *arg, int *vm_fd);
/* 0 or -errno. bytes 0 deletes the slot. */
int vm_slot(struct vm *vm, unsigned int id, unsigned int flags, uint64_t gpa, uint64_t bytes,
	    const void *hva);
/* Is the slot's dirty log on? From KVM, not from godwit. */
bool vm_logged(struct vm *vm, unsigned int id);
/*
 * Is this page of a slot with npages in its log? 0, 1 or -errno. Without manual protection, that is
 * the end of the log.
 */
int vm_log_has(struct vm *vm, unsigned int id, uint64_t npages, uint64_t page);
/* guest_batch may write these pages from now on: they get the next entries of the table. */
void vm_table_add(struct vm *vm, uint64_t gpa, uint64_t npages);

#endif /* RIG_VM_H */
