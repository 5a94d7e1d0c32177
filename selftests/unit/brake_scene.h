/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A process whose threads take the place of vCPUs: they call KVM_RUN over and over, on no descriptor at all. What
 * counts is whether they move, and whether anything traces them. Include after cmocka.h.
 */
#ifndef GODWIT_BRAKE_SCENE_H
#define GODWIT_BRAKE_SCENE_H

#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "brake/brake.h"
#include "proc/proc_io.h"

#define THREADS	2u
#define PATIENCE_NS	20000000000ull

enum does { RUNS, COMPUTES, SLEEPS };

/* Shared with the process that stands in for QEMU. */
static struct vm_shared {
	_Atomic enum does does, seen[THREADS];
	_Atomic uint64_t moved[THREADS];
	_Atomic uint64_t interrupted;
	_Atomic uint64_t signals;
	_Atomic pid_t tid[THREADS];
	_Atomic pid_t sender;
} *vm;

struct scene {
	pid_t pid;
	struct vcpus vcpus;
	struct brake brake;
	struct err e;
};

static void count_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&vm->signals, 1);
}

static void *vcpu(void *arg)
{
	const unsigned int i = (unsigned int)(uintptr_t)arg;

	atomic_store(&vm->tid[i], (pid_t)syscall(SYS_gettid));
	for (;;) {
		const enum does does = atomic_load(&vm->does);

		atomic_store(&vm->seen[i], does);
		if (does == RUNS)
			ioctl(-1, KVM_RUN, 0);
		else if (does == SLEEPS && usleep(100000) && errno == EINTR)
			atomic_fetch_add(&vm->interrupted, 1);
		atomic_fetch_add(&vm->moved[i], 1);
	}
	return NULL;
}

/* Returns when each of them does. */
static inline void have_them(enum does does)
{
	const uint64_t end = now_ns() + PATIENCE_NS;

	atomic_store(&vm->does, does);
	for (unsigned int i = 0; i < THREADS; i++)
		while (atomic_load(&vm->seen[i]) != does)
			assert_true(now_ns() < end);
}

static void begin(struct scene *s, unsigned int percent)
{
	assert_int_equal(brake_open(&s->brake, &s->e), 0);
	brake_vcpus(&s->brake, &s->vcpus);
	brake_alive(&s->brake);
	brake_set(&s->brake, percent);
}

static int setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	*state = s;
	vm = mmap(NULL, sizeof(*vm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	s->pid = fork();
	if (!s->pid) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGUSR1, count_signal);
		for (uintptr_t i = 0; i < THREADS; i++)
			pthread_create(&thread, NULL, vcpu, (void *)i);
		for (;;)
			pause();
	}
	s->vcpus.pid = s->pid;
	s->vcpus.n = THREADS;
	for (unsigned int i = 0; i < THREADS; i++) {
		while (!atomic_load(&vm->tid[i]))
			nap_ms(1);
		s->vcpus.tid[i] = atomic_load(&vm->tid[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	struct scene *s = *state;

	brake_end(&s->brake);
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	munmap(vm, sizeof(*vm));
	free(s);
	return 0;
}

static pid_t tracer(const struct scene *s)
{
	struct err e = { 0 };
	char proc[32];
	pid_t pid;

	snprintf(proc, sizeof(proc), "/proc/%d", (int)s->pid);
	assert_int_equal(proc_tracer(proc, 0, &pid, &e), 0);
	return pid;
}

/* The sender lives, until so much time more has been stood still. */
static void until_held(struct scene *s, uint64_t ns)
{
	const uint64_t from = brake_held_ns(&s->brake), end = now_ns() + PATIENCE_NS;

	while (brake_held_ns(&s->brake) - from < ns) {
		assert_true(now_ns() < end);
		brake_alive(&s->brake);
		nap_ms(1);
	}
}

/* Not for a moment between two stops: for longer than any cycle is. */
static void assert_moves_freely(const struct scene *s)
{
	const uint64_t end = now_ns() + PATIENCE_NS;

	for (unsigned int looks = 0; looks < 100; looks++) {
		assert_int_equal(tracer(s), 0);
		nap_ms(1);
	}
	for (unsigned int i = 0; i < THREADS; i++)
		for (const uint64_t before = atomic_load(&vm->moved[i]); atomic_load(&vm->moved[i]) == before; nap_ms(1))
			assert_true(now_ns() < end);
}

#define WITH_VM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
