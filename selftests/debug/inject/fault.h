/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The n-th allocation of a thread fails: by /proc/PID/fail-nth, of this thread or of the kernel's
 * workers.
 *
 * godwit's jobs run in an unbound, high-priority workqueue. No call says which worker will take the
 * next job, so all of them are armed; each counts its own allocations, so what other work is
 * done elsewhere does not disturb. The kernel counts down to 0, where it fails, and what is left
 * tells what happened.
 */
#ifndef INJECT_FAULT_H
#define INJECT_FAULT_H

#include <stdbool.h>

enum where {
	IN_CALLER,
	IN_WORKER,
};

#define WORKERS_MAX	64

/**
 * struct fault
 * @fds: fail-nth of every thread that is armed
 * @nth: what they were armed with
 */
struct fault {
	int fds[WORKERS_MAX];
	unsigned int nr;
	unsigned int nth;
};

/**
 * struct outcome
 * @fired: an allocation failed
 * @counted: the most that a thread has allocated, up to the one that failed
 */
struct outcome {
	bool fired;
	unsigned int counted;
};

/* Every allocation may fail, of whatever kind. Ends the program where the kernel cannot do that. */
void fault_setup(void);
/* Opens what arming needs, so that arming itself allocates nothing. */
void fault_prepare(struct fault *f, enum where where);
void fault_arm(struct fault *f, unsigned int nth);
struct outcome fault_disarm(struct fault *f);

#endif /* INJECT_FAULT_H */
