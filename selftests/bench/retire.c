// SPDX-License-Identifier: GPL-2.0-only
/*
 * Switching dirty logging off again: close() of a session against KVM_SET_USER_MEMORY_REGION without
 * KVM_MEM_LOG_DIRTY_PAGES, slot by slot, as a VMM does it. The guest runs all the time and writes to each 2 MiB page of
 * its RAM in turn, so that KVM maps it again with huge pages as soon as it may.
 *
 *	caller		how long the caller is blocked
 *	guest after	steps that the guest makes from the call on until its huge pages are back, by that time
 *	huge pages	how long until all of its huge pages are back
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define ROUNDS		5
#define HUGE		(2 * MIB)
#define GIVE_UP_NS	60000000000ull

enum way { GODWIT, PEER, WAYS };

struct sample {
	uint64_t caller[WAYS][ROUNDS], back[WAYS][ROUNDS], rate[WAYS][ROUNDS], before[WAYS][ROUNDS];
};

static void tunable(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/misc/godwit/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		die("%s: %m", path);
	close(fd);
}

/* Until the statistic is as wanted; returns the time it took from begin on. */
static uint64_t wait_huge(struct vm *vm, uint64_t begin, bool all)
{
	uint64_t huge = vm->bytes / HUGE;

	for (;;) {
		uint64_t n = vm_stat(vm, "pages_2m"), ns = now_ns() - begin;

		if (all ? n >= huge : n <= huge / 16)
			return ns;
		if (ns > GIVE_UP_NS)
			die("%llu of %llu huge pages after 60 s", (unsigned long long)n, (unsigned long long)huge);
		sleep_ms(1);
	}
}

/* START has marked all pages; the guest's next write to each huge page that is re-armed splits it. */
static void split_all(struct vm *vm, struct session *s)
{
	session_open(s, vm);
	session_clear(s);
	session_forget(s);
	wait_huge(vm, now_ns(), false);
}

static void log_off(struct vm *vm)
{
	for (unsigned int i = 1; i <= vm->slots; i++)
		vm_set_logging(vm, i, false);
}

static uint64_t steps_per_s(struct loss from, struct loss to, uint64_t ns)
{
	return (to.steps - from.steps) * 1000000000 / (ns ? ns : 1);
}

static void measure(struct vm *vm, enum way way, struct sample *s, unsigned int k)
{
	struct session session;
	struct loss before;
	uint64_t begin;

	split_all(vm, &session);
	before = vcpu_loss(vm);
	begin = now_ns();
	sleep_ms(50);
	s->before[way][k] = steps_per_s(before, vcpu_loss(vm), now_ns() - begin);
	before = vcpu_loss(vm);
	begin = now_ns();
	if (way == GODWIT)
		session_close(&session);
	else
		log_off(vm);
	s->caller[way][k] = now_ns() - begin;
	s->back[way][k] = wait_huge(vm, begin, true);
	s->rate[way][k] = steps_per_s(before, vcpu_loss(vm), now_ns() - begin);
	if (way == PEER)
		session_close(&session);
}

static void say(unsigned int slots, const char *what, const char *unit, uint64_t values[WAYS][ROUNDS], double scale)
{
	char name[128];

	snprintf(name, sizeof(name), "retire %s: %u slots", what, slots);
	result_add(name, unit, (double)median(values[GODWIT], ROUNDS) / scale, "set_memory_region",
		   (double)median(values[PEER], ROUNDS) / scale, 0);
}

static void bench_slots(uint64_t bytes, unsigned int slots)
{
	struct sample s;
	struct vm vm;

	vm_open(&vm, bytes, slots, true);
	vcpu_hot(&vm, bytes / HUGE, 21);
	wait_huge(&vm, now_ns(), true);
	for (unsigned int i = 0; i < ROUNDS * WAYS; i++)
		measure(&vm, (i / WAYS + i) % WAYS, &s, i / WAYS);
	vcpu_stop(&vm);
	vm_close(&vm);
	say(slots, "caller", "us", s.caller, 1e3);
	say(slots, "guest while logged", "step/s", s.before, 1);
	say(slots, "guest after", "step/s", s.rate, 1);
	say(slots, "huge pages back", "ms", s.back, 1e6);
}

void bench_retire(bool quick)
{
	tunable("retire_delay_ms", "0");
	bench_slots(GIB, 1);
	if (!quick)
		bench_slots(GIB, 16);
	tunable("retire_delay_ms", "100");
}
