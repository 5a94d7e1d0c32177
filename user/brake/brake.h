/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slows a VM's vCPUs, so that rounds converge. A process of its own stops the vCPU threads, all at
 * once, for a part of each cycle (ptrace), and lets them go for the rest of it. Nothing of that
 * outlives anybody: the kernel lets the threads go when this process ends, however it ends, and it
 * ends with the sender; a sender that is stopped (SIGSTOP) gives no sign of life, and the vCPUs run
 * as ever until it goes on.
 */
#ifndef GODWIT_BRAKE_H
#define GODWIT_BRAKE_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "vmm/vcpus.h"

/**
 * struct brake_shared - what both processes see; the first members are the sender's
 * @bell: a futex: it is counted up after each change of the two that follow
 * @percent: of the time that vCPUs are to stand still; 0: none; BRAKE_END: the process is to end
 * @list: counts the changes of @vcpus; odd while it changes
 * @alive_ns: the sender's last sign of life, CLOCK_MONOTONIC
 * @beat_ns: the process's
 * @held_ns: that vCPUs have stood still, all together
 * @refused: the errno with which one could not be stopped in the last cycle; 0: all could
 */
struct brake_shared {
	_Atomic uint32_t bell;
	_Atomic uint32_t percent;
	_Atomic uint32_t list;
	struct vcpus vcpus;
	_Atomic uint64_t alive_ns;
	_Atomic uint64_t beat_ns;
	_Atomic uint64_t held_ns;
	_Atomic int refused;
};

#define BRAKE_END	UINT32_MAX

/**
 * struct brake
 * @pid: the process; 0: none
 * @why: what has become of it; NULL: nothing
 */
struct brake {
	pid_t pid;
	struct brake_shared *shared;
	const char *why;
};

/**
 * brake_open() - start the process, which waits
 * To be called early, while the sender has little memory that a child would keep. Errors:
 * GW_INTERNAL: no memory, or no process.
 */
int brake_open(struct brake *b, struct err *e);
/* Whose vCPUs, from now on. */
void brake_vcpus(struct brake *b, const struct vcpus *vcpus);
/* By how many per cent, at most THROTTLE_MAX, at once; 0: they run as ever. */
void brake_set(struct brake *b, unsigned int percent);
/* A sign of life; at least every second. Looks for the process's own. */
void brake_alive(struct brake *b);
/* How long each vCPU has stood still so far, on average, ns. */
uint64_t brake_held_ns(const struct brake *b);
/* Why vCPUs run all the same; NULL: they do not. */
const char *brake_why(const struct brake *b);
/* When this returns no vCPU is stopped or traced any more, whatever went before. */
void brake_end(struct brake *b);

/* The process. Never returns. */
__attribute__((noreturn)) void brake_process(struct brake_shared *shared, pid_t sender);

#endif
