// SPDX-License-Identifier: GPL-2.0-only
/* vCPUs that are stopped by turns, and only where they may be: they move, less, and hear their signals. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "brake_scene.h"
#include "plan/throttle.h"

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

/* Where QEMU may hold a lock. */
static void only_in_kvm_run(void **state)
{
	struct scene *s = *state;
	uint64_t before;

	have_them(COMPUTES);
	begin(s, 90);
	before = atomic_load(&vm->moved[0]);
	(void)moves(s);
	assert_int_equal(brake_held_ns(&s->brake), 0);
	assert_true(atomic_load(&vm->moved[0]) > before);
}

static void one_that_sleeps_is_left_alone(void **state)
{
	struct scene *s = *state;

	have_them(SLEEPS);
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

static const struct CMUnitTest tests[] = {
	WITH_VM(vcpus_stand_still_and_run_again),
	WITH_VM(so_many_per_cent),
	WITH_VM(only_in_kvm_run),
	WITH_VM(one_that_sleeps_is_left_alone),
	WITH_VM(signals_arrive),
	WITH_VM(a_busy_host),
	cmocka_unit_test(as_much_as_it_takes),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
