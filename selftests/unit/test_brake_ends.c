// SPDX-License-Identifier: GPL-2.0-only
/* Whatever ends, or stands still, or comes between: the vCPUs move freely. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <cmocka.h>

#include "brake_scene.h"

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

static const struct CMUnitTest tests[] = {
	WITH_VM(its_process_is_killed),
	WITH_VM(its_process_is_stopped),
	WITH_VM(the_sender_is_killed),
	WITH_VM(the_sender_stands_still),
	WITH_VM(another_traces_all),
	WITH_VM(another_traces_one),
	WITH_VM(others_than_before),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
