// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process whose threads take the place of vCPUs: they call KVM_RUN over and over, on no descriptor at all. What
 * counts is whether they move, and whether anything traces them.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "brake/brake.h"
#include "plan/throttle.h"
#include "proc/proc_io.h"

#define THREADS	2u
#define PATIENCE_NS	20000000000ull

enum does { RUNS, COMPUTES, SLEEPS };

/* Shared with the process that stands in for QEMU. */
static struct vm_shared {
	_Atomic enum does does;
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

		if (does == RUNS)
			ioctl(-1, KVM_RUN, 0);
		else if (does == SLEEPS && usleep(100000) && errno == EINTR)
			atomic_fetch_add(&vm->interrupted, 1);
		atomic_fetch_add(&vm->moved[i], 1);
	}
	return NULL;
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

/* What the vCPUs do in 100 ms of their own, or of the brake's. */
static uint64_t moves(struct scene *s)
{
	const uint64_t before = atomic_load(&vm->moved[0]) + atomic_load(&vm->moved[1]), end = now_ns() + 300000000;

	while (now_ns() < end) {
		brake_alive(&s->brake);
		nap_ms(10);
	}
	return atomic_load(&vm->moved[0]) + atomic_load(&vm->moved[1]) - before;
}

static void vcpus_stand_still_and_run_again(void **state)
{
	struct scene *s = *state;

	begin(s, 50);
	until_held(s, 200000000);
	assert_null(brake_why(&s->brake));
	brake_set(&s->brake, 0);
	nap_ms(100);
	assert_moves_freely(s);
	brake_set(&s->brake, 90);
	until_held(s, 100000000);
	brake_end(&s->brake);
	assert_moves_freely(s);
}

/* At 95 % they do less than a third. What else the host has to do meanwhile may change: a few tries. */
static void so_many_per_cent(void **state)
{
	struct scene *s = *state;

	for (unsigned int i = 0; i < 10; i++) {
		uint64_t freely = moves(s), slowly;

		begin(s, 95);
		slowly = moves(s);
		brake_end(&s->brake);
		if (slowly && slowly < freely / 3)
			return;
	}
	fail_msg("they are not slowed");
}

/* Killed at any moment, those in which vCPUs stand still among them. */
static void its_process_is_killed(void **state)
{
	struct scene *s = *state;

	for (unsigned int i = 0; i < 10; i++) {
		begin(s, 90);
		until_held(s, 20000000);
		nap_ms(i);
		kill(s->brake.pid, SIGKILL);
		while (s->brake.pid) {
			brake_alive(&s->brake);
			nap_ms(1);
		}
		assert_string_equal(brake_why(&s->brake), "the process that does it has ended");
		assert_moves_freely(s);
		brake_end(&s->brake);
		s->brake.why = NULL;
	}
}

/* While vCPUs stand still. */
static void its_process_is_stopped(void **state)
{
	struct scene *s = *state;

	begin(s, 90);
	until_held(s, 20000000);
	kill(s->brake.pid, SIGSTOP);
	while (s->brake.pid) {
		brake_alive(&s->brake);
		nap_ms(10);
	}
	assert_string_equal(brake_why(&s->brake), "the process that does it did not go on");
	assert_moves_freely(s);
}

static void the_sender_is_killed(void **state)
{
	struct scene *s = *state;
	const pid_t sender = fork();
	const uint64_t end = now_ns() + PATIENCE_NS;

	if (!sender) {
		begin(s, 90);
		atomic_store(&vm->sender, s->brake.pid);
		for (;; nap_ms(1))
			brake_alive(&s->brake);
	}
	while (!atomic_load(&vm->sender) || !tracer(s)) {
		assert_true(now_ns() < end);
		nap_ms(1);
	}
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
	while (!kill(atomic_load(&vm->sender), 0)) {
		assert_true(now_ns() < end);
		nap_ms(1);
	}
	assert_moves_freely(s);
}

/* A sender that is stopped, or that waits for a disk. */
static void the_sender_stands_still(void **state)
{
	struct scene *s = *state;
	const uint64_t end = now_ns() + PATIENCE_NS;
	uint64_t held;

	begin(s, 90);
	until_held(s, 20000000);
	do {
		held = brake_held_ns(&s->brake);
		nap_ms(500);
		assert_true(now_ns() < end);
	} while (brake_held_ns(&s->brake) != held);
	assert_moves_freely(s);
	until_held(s, 20000000);
}

/* Where QEMU may hold a lock. */
static void only_in_kvm_run(void **state)
{
	struct scene *s = *state;
	uint64_t before;

	atomic_store(&vm->does, COMPUTES);
	nap_ms(50);
	begin(s, 90);
	before = atomic_load(&vm->moved[0]);
	(void)moves(s);
	assert_int_equal(brake_held_ns(&s->brake), 0);
	assert_true(atomic_load(&vm->moved[0]) > before);
}

static void one_that_sleeps_is_left_alone(void **state)
{
	struct scene *s = *state;

	atomic_store(&vm->does, SLEEPS);
	nap_ms(50);
	begin(s, 90);
	(void)moves(s);
	assert_int_equal(brake_held_ns(&s->brake), 0);
}

/* QEMU kicks its vCPUs by signals. */
static void signals_arrive(void **state)
{
	struct scene *s = *state;
	const uint64_t end = now_ns() + PATIENCE_NS;

	begin(s, 80);
	for (uint64_t sent = 1; sent <= 300; sent++) {
		brake_alive(&s->brake);
		assert_int_equal(syscall(SYS_tgkill, s->pid, s->vcpus.tid[sent % THREADS], SIGUSR1), 0);
		while (atomic_load(&vm->signals) < sent)
			assert_true(now_ns() < end);
	}
	assert_int_equal(atomic_load(&vm->signals), 300);
	assert_true(brake_held_ns(&s->brake) > 0);
}

/* All of them, or the first: what the others are does not hide it. */
static void another_traces(struct scene *s, unsigned int traced)
{
	const uint64_t end = now_ns() + PATIENCE_NS;

	for (unsigned int i = 0; i < traced; i++)
		assert_return_code(ptrace(PTRACE_SEIZE, s->vcpus.tid[i], NULL, NULL), errno);
	begin(s, 80);
	while (!brake_why(&s->brake)) {
		assert_true(now_ns() < end);
		brake_alive(&s->brake);
	}
	assert_string_equal(brake_why(&s->brake), strerror(EPERM));
	assert_true(traced < THREADS || !brake_held_ns(&s->brake));
	kill(s->pid, SIGKILL);
	for (unsigned int i = 0; i < traced; i++)
		assert_int_equal(waitpid(s->vcpus.tid[i], NULL, __WALL), s->vcpus.tid[i]);
}

static void another_traces_all(void **state)
{
	another_traces(*state, THREADS);
}

static void another_traces_one(void **state)
{
	another_traces(*state, 1);
}

/* All on one CPU, with others that want it: however long they wait for a turn, they have some. */
static void a_busy_host(void **state)
{
	struct scene *s = *state;
	const uint64_t end = now_ns() + 2 * PATIENCE_NS;
	uint64_t before[THREADS];
	pid_t busy[2];
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	for (unsigned int i = 0; i < THREADS; i++) {
		assert_return_code(sched_setaffinity(s->vcpus.tid[i], sizeof(one), &one), errno);
		/* One that wakes then waits for the others' time to be over. */
		assert_return_code(sched_setscheduler(s->vcpus.tid[i], SCHED_BATCH, &(struct sched_param) { 0 }), errno);
	}
	for (unsigned int i = 0; i < 2; i++) {
		busy[i] = fork();
		if (!busy[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			sched_setaffinity(0, sizeof(one), &one);
			for (;;)
				;
		}
	}
	begin(s, 99);
	for (unsigned int times = 0; times < 20; times++) {
		for (unsigned int i = 0; i < THREADS; i++)
			before[i] = atomic_load(&vm->moved[i]);
		for (unsigned int i = 0; i < THREADS; i++)
			for (; atomic_load(&vm->moved[i]) < before[i] + 10; nap_ms(1)) {
				assert_true(now_ns() < end);
				brake_alive(&s->brake);
			}
	}
	/* And they are stopped. */
	until_held(s, 1000000);
	for (unsigned int i = 0; i < 2; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
}

/* vCPUs were plugged; one has ended. */
static void others_than_before(void **state)
{
	struct scene *s = *state;
	uint64_t before, end = now_ns() + PATIENCE_NS;

	s->vcpus.n = 1;
	begin(s, 90);
	until_held(s, 20000000);
	s->vcpus.n = 0;
	brake_vcpus(&s->brake, &s->vcpus);
	nap_ms(50);
	assert_moves_freely(s);
	s->vcpus.n = THREADS;
	brake_vcpus(&s->brake, &s->vcpus);
	until_held(s, 20000000);
	kill(s->pid, SIGKILL);
	/* It is gone when its tracer has seen that. */
	while (waitpid(s->pid, NULL, WNOHANG) != s->pid) {
		assert_true(now_ns() < end);
		brake_alive(&s->brake);
		nap_ms(1);
	}
	before = atomic_load(&s->brake.shared->beat_ns);
	for (end = now_ns() + PATIENCE_NS; atomic_load(&s->brake.shared->beat_ns) == before; brake_alive(&s->brake))
		assert_true(now_ns() < end);
	assert_int_not_equal(s->brake.pid, 0);
}

/* The link sends as much as is written, twice and ten times as much. */
static void as_much_as_it_takes(void **state)
{
	unsigned int percent = 0, rounds = 0;

	(void)state;
	assert_int_equal(throttle_next(0, 100, 100), 50);
	assert_int_equal(throttle_next(0, 200, 100), 75);
	assert_int_equal(throttle_next(0, 1000, 100), 95);
	assert_int_equal(throttle_next(50, 100, 100), 75);
	/* It was too little, as pages were written many times. */
	assert_int_equal(throttle_next(50, 10, 100), 75);
	assert_int_equal(throttle_next(0, 0, 100), 50);
	assert_int_equal(throttle_next(0, 100, 0), 50);
	for (; percent < THROTTLE_MAX; rounds++)
		percent = throttle_next(percent, 10, 100);
	assert_int_equal(rounds, 7);
	assert_int_equal(throttle_next(THROTTLE_MAX, UINT64_MAX, 1), THROTTLE_MAX);
}

#define WITH_VM(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
	WITH_VM(vcpus_stand_still_and_run_again),
	WITH_VM(so_many_per_cent),
	WITH_VM(its_process_is_killed),
	WITH_VM(its_process_is_stopped),
	WITH_VM(the_sender_is_killed),
	WITH_VM(the_sender_stands_still),
	WITH_VM(only_in_kvm_run),
	WITH_VM(one_that_sleeps_is_left_alone),
	WITH_VM(signals_arrive),
	WITH_VM(another_traces_all),
	WITH_VM(another_traces_one),
	WITH_VM(a_busy_host),
	WITH_VM(others_than_before),
	cmocka_unit_test(as_much_as_it_takes),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
