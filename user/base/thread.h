/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads beside the main thread, and waits between them that miss no request to stop. */
#ifndef GODWIT_THREAD_H
#define GODWIT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/*
 * The thread blocks all signals: the main thread takes them, as they end its wait (base/stop.h).
 * 0 or -errno.
 */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* CPUs that are online; at least 1. */
unsigned int thread_cpus(void);

/* A condition for thread_wait(). */
void thread_cond_init(pthread_cond_t *cond);
/*
 * Waits at most STOP_SLICE_NS. The caller holds the lock. true: signalled, or woken for no reason;
 * the caller tests its condition in any case.
 */
bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
