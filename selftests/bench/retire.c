// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switching dirty logging off again: close() of a session against KVM_SET_USER_MEMORY_REGION
 * without KVM_MEM_LOG_DIRTY_PAGES, slot by slot, as a VMM does it. The guest runs all the time and
 * writes to each 2 MiB page of its RAM in turn, so that KVM maps it again with huge pages as soon
 * as it may.
 *
 *	caller		how long the caller is blocked
 *	guest after	steps that the guest makes from the call on until its huge pages are back,
 *			by that time
 *	huge pages	how long until all of its huge pages are back
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define DELAY		SYSFS "retire_delay_ms"
#define ROUNDS		5
#define HUGE		(2 * MIB)
#define GIVE_UP_NS	60000000000ull

enum way { GODWIT, PEER, WAYS };

struct sample {
	uint64_t caller[WAYS][ROUNDS], back[WAYS][ROUNDS], rate[WAYS][ROUNDS], before[WAYS][ROUNDS];
};

/* Until the statistic is as wanted; returns the time it took from begin on. */
static uint64_t wait_huge(struct target *t, uint64_t begin, bool all)
{
	uint64_t huge = t->ram.bytes / HUGE;

	for (;;) {
		uint64_t n = target_stat(t, "pages_2m"), ns = now_ns() - begin;

		if (all ? n >= huge : n <= huge / 16)
			return ns;
		if (ns > GIVE_UP_NS)
			die("%llu of %llu huge pages after 60 s", (unsigned long long)n,
			    (unsigned long long)huge);
		sleep_ms(1);
	}
}

/*
 * START has marked all pages; the guest's next write to each huge page that is re-armed splits it.
 */
static void split_all(struct target *t, struct session *s)
{
	session_begin(s, t->vm.fd, &t->ram.fd, 1);
	session_settle(s);
	wait_huge(t, now_ns(), false);
}

static void log_off(struct target *t)
{
	for (unsigned int i = 1; i <= t->slots; i++)
		target_set_logging(t, i, false);
}

static uint64_t steps_per_s(struct loss from, struct loss to, uint64_t ns)
{
	return (to.steps - from.steps) * 1000000000 / (ns ? ns : 1);
}

static void measure(struct target *t, enum way way, struct sample *s, unsigned int k)
{
	struct session session;
	struct loss before;
	uint64_t begin;

	split_all(t, &session);
	before = runner_loss(t);
	begin = now_ns();
	sleep_ms(50);
	s->before[way][k] = steps_per_s(before, runner_loss(t), now_ns() - begin);
	before = runner_loss(t);
	begin = now_ns();
	if (way == GODWIT)
		session_close(&session);
	else
		log_off(t);
	s->caller[way][k] = now_ns() - begin;
	s->back[way][k] = wait_huge(t, begin, true);
	s->rate[way][k] = steps_per_s(before, runner_loss(t), now_ns() - begin);
	if (way == PEER)
		session_close(&session);
}

static void say(unsigned int slots, const char *what, const char *unit,
		uint64_t values[WAYS][ROUNDS], double scale)
{
	char name[128];

	snprintf(name, sizeof(name), "retire %s: %u slots", what, slots);
	result_add(name, unit, (double)median(values[GODWIT], ROUNDS) / scale, "set_memory_region",
		   (double)median(values[PEER], ROUNDS) / scale, 0);
}

static void bench_slots(uint64_t bytes, unsigned int slots)
{
	struct sample s;
	struct target t;

	target_open(&t, bytes, slots, true);
	runner_hot(&t, bytes / HUGE, 21);
	wait_huge(&t, now_ns(), true);
	for (unsigned int i = 0; i < ROUNDS * WAYS; i++)
		measure(&t, (i / WAYS + i) % WAYS, &s, i / WAYS);
	runner_stop(&t);
	target_close(&t);
	say(slots, "caller", "us", s.caller, 1e3);
	say(slots, "guest while logged", "step/s", s.before, 1);
	say(slots, "guest after", "step/s", s.rate, 1);
	say(slots, "huge pages back", "ms", s.back, 1e6);
}

void bench_retire(bool quick)
{
	require(!file_write(DELAY, "0"), DELAY);
	bench_slots(GIB, 1);
	if (!quick)
		bench_slots(GIB, 16);
	require(!file_write(DELAY, "100"), DELAY);
}
