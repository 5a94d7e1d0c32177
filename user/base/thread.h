/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads beside the main thread, and waits between them that miss no request to stop. */
#ifndef GODWIT_THREAD_H
#define GODWIT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * The thread blocks all signals: the main thread takes them, as they end its wait (base/stop.h).
 * 0 or -errno.
 */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* CPUs that are online; at least 1. */
unsigned int thread_cpus(void);
/* Of these, those that this process may use. */
unsigned int thread_cpus_usable(void);

/**
 * struct thread_slots - how many threads may do at once what costs a CPU
 * @lock: protects @free
 */
struct thread_slots {
	pthread_mutex_t lock;
	pthread_cond_t given;
	unsigned int free;
};

void thread_slots_init(struct thread_slots *s, unsigned int n);
/* Waits for a slot. No thread that has one waits for anything else. */
void thread_slots_take(struct thread_slots *s);
void thread_slots_give(struct thread_slots *s);

/* A condition for thread_wait(). */
void thread_cond_init(pthread_cond_t *cond);
/*
 * Waits at most STOP_SLICE_NS. The caller holds the lock. true: signalled, or woken for no reason;
 * the caller tests its condition in any case.
 */
bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
/* The same for at most so long, which is less than a second. */
bool thread_wait_ns(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t ns);

#endif
