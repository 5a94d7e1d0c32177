// SPDX-License-Identifier: GPL-2.0-only
/* A process that maps the RAM exits while another one takes pages out of its mapping. */
#include <fcntl.h>
#include <linux/mman.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kst.h"
#include "rig.h"

#define BYTES	(64UL << 20)
#define TRIES	10	/* without the repair each of them fails */

/* Between the test and the process. */
static struct told {
	volatile bool ready;
	volatile bool go;
	volatile uint64_t delay_ns;
} *told;

FIXTURE(exits) {
	struct rig rig;
};

FIXTURE_SETUP(exits)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	told = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, told);
	rig_begin(&self->rig, 3, PAGE);
	pin_to_cpu(0);
}

FIXTURE_TEARDOWN(exits)
{
	if (self->rig.ram.map)
		rig_end(&self->rig);
}

/* CPU 1: has an entry for each page, and exits so long after it is told to. */
static void map_and_exit(struct rig *rig)
{
	uint64_t at, end;

	pin_to_cpu(1);
	for (at = 0; at < BYTES; at += PAGE)
		(void)*(volatile uint8_t *)(rig->ram.map + at);
	told->ready = true;
	while (!told->go)
		;
	for (end = now_ns() + told->delay_ns; now_ns() < end; )
		;
	_exit(0);
}

/* Returns how long the punch took. */
static uint64_t punch_while_it_exits(struct rig *rig)
{
	uint64_t began;
	pid_t pid;

	require(!fallocate(rig->ram.fd, 0, 0, BYTES), "fallocate");
	told->ready = told->go = false;
	pid = fork_child();
	if (!pid)
		map_and_exit(rig);
	while (!told->ready)
		sched_yield();
	require(!session_harvest(&rig->s, NULL), "a harvest that finds the mapping");
	began = now_ns();
	told->go = true;
	require(!fallocate(rig->ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), "a hole");
	began = now_ns() - began;
	wait_process(pid);
	return began;
}

/*
 * The kernel tells a process that exits of no end any more. A hole that is punched meanwhile is reported once, and not
 * by each harvest from then on.
 */
TEST_F_TIMEOUT(exits, while_a_hole_is_punched, 120)
{
	unsigned int i, again = 0;
	struct godwit_harvest h;
	uint64_t took = 0;

	if (!self->rig.ram.map)
		return;
	srand(random_seed());
	for (i = 0; i < TRIES; i++) {
		told->delay_ns = took ? (uint64_t)rand() % took : 0;
		took = punch_while_it_exits(&self->rig);
		ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
		PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->rig.s.ram[0])));
		bits_forget(&self->rig.s.ram[0]);
		ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
		again += h.pages[GODWIT_ROW_UNMAP] > 0 || bits_count(&self->rig.s.ram[0]) == BYTES / PAGE;
		bits_forget(&self->rig.s.ram[0]);
	}
	TH_LOG("a punch took %lu us", took / 1000);
	PROOF(EXPECT_EQ(0, again));
}

KST_MAIN
