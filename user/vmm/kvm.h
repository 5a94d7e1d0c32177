/* SPDX-License-Identifier: GPL-2.0-only */
/* A copy of the VMM's KVM descriptor. */
#ifndef GODWIT_KVM_H
#define GODWIT_KVM_H

#include "vmm/vm.h"

/*
 * Fills in vm->vm_fd. The caller has filled in vm->pid and vm->pidfd; proc is /proc/PID.
 * GW_NOT_QEMU: no VM, or several.
 */
int kvm_find(struct vm *vm, const char *proc, struct err *e);

#endif
