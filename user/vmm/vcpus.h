/* SPDX-License-Identifier: GPL-2.0-only */
/* The threads that run a VM's vCPUs. */
#ifndef GODWIT_VCPUS_H
#define GODWIT_VCPUS_H

#include <sys/types.h>

#include "base/err.h"
#include "qmp/qmp.h"

#define VCPUS_MAX	1024u	/* KVM's limit on x86 was 1024 for long */

/**
 * struct vcpus
 * @pid: of QEMU, as this process sees it
 * @tid: their threads, as this process sees them, in the order of query-cpus-fast
 */
struct vcpus {
	pid_t pid;
	unsigned int n;
	pid_t tid[VCPUS_MAX];
};

/**
 * vcpus_find() - ask QEMU for them
 * QEMU names its threads as its own pid namespace does; NSpid of /proc/PID/task/TID/status
 * translates. Those beyond VCPUS_MAX are left out. Errors: GW_QMP, GW_VM_GONE, GW_INTERNAL.
 */
int vcpus_find(struct qmp *q, pid_t pid, struct vcpus *v, struct err *e);

#endif
