// SPDX-License-Identifier: GPL-2.0-only
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "base/stop.h"
#include "base/thread.h"

int thread_start(pthread_t *thread, void *(*run)(void *), void *arg)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -r;
}

unsigned int thread_cpus(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	return cpus < 1 ? 1 : (unsigned int)cpus;
}

unsigned int thread_cpus_usable(void)
{
	unsigned int all = thread_cpus(), n;
	cpu_set_t set;

	/* Fails where there are more CPUs than the set has room for. */
	if (sched_getaffinity(0, sizeof(set), &set))
		return all;
	n = (unsigned int)CPU_COUNT(&set);
	return n && n < all ? n : all;
}

void thread_slots_init(struct thread_slots *s, unsigned int n)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->given, NULL);
	s->free = n;
}

void thread_slots_take(struct thread_slots *s)
{
	pthread_mutex_lock(&s->lock);
	while (!s->free)
		pthread_cond_wait(&s->given, &s->lock);
	s->free--;
	pthread_mutex_unlock(&s->lock);
}

void thread_slots_give(struct thread_slots *s)
{
	pthread_mutex_lock(&s->lock);
	s->free++;
	pthread_cond_signal(&s->given);
	pthread_mutex_unlock(&s->lock);
}

void thread_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	return thread_wait_ns(cond, lock, STOP_SLICE_NS);
}

bool thread_wait_ns(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += (long)ns;
	ts.tv_sec += ts.tv_nsec / 1000000000;
	ts.tv_nsec %= 1000000000;
	return !pthread_cond_timedwait(cond, lock, &ts);
}
