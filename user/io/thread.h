/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads beside the main one, and waiting for each other without missing a request to stop. */
#ifndef GODWIT_THREAD_H
#define GODWIT_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* It takes no signals: they are for the main thread, which they wake (io/stop.h). 0 or -errno. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* For thread_wait(). */
void thread_cond_init(pthread_cond_t *cond);
/* At most STOP_SLICE_NS, with the lock held. true: somebody signalled, or it just seems so. */
bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
