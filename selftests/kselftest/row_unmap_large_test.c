// SPDX-License-Identifier: GPL-2.0-only
/* Ledger row "unmap": more than is noted while the entries go away, which the next harvest counts instead. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "kst.h"
#include "rig.h"

#define BYTES		(4UL << 30)	/* almost all holes */
#define AT_ONCE		(1UL << 30)	/* NOTE_PAGES of kmod/ledger/unmap.c */
#define MAPPINGS	8
#define WINDOW		(1UL << 20)
#define TIMES		6
#define STEPS		50

#define INSTANCE	"/sys/kernel/tracing/instances/kst-unmap"

static uint8_t *maps[MAPPINGS];

FIXTURE(large) {
	struct rig rig;
};

FIXTURE_VARIANT(large) {
	void (*way)(struct rig *rig);	/* in a process that has MAPPINGS of the file */
	bool exits;
};

static void way_munmap(struct rig *rig)
{
	unsigned int i;

	(void)rig;
	for (i = 0; i < MAPPINGS; i++)
		require(!munmap(maps[i], BYTES), "munmap");
}

static void way_dontneed(struct rig *rig)
{
	unsigned int i;

	(void)rig;
	for (i = 0; i < MAPPINGS; i++)
		require(!madvise(maps[i], BYTES, MADV_DONTNEED), "MADV_DONTNEED");
}

static void way_exit(struct rig *rig)
{
	(void)rig;
	_exit(0);
}

FIXTURE_VARIANT_ADD(large, dontneed) { .way = way_dontneed };
FIXTURE_VARIANT_ADD(large, munmap) { .way = way_munmap };
FIXTURE_VARIANT_ADD(large, exit) { .way = way_exit, .exits = true };

static void (*the_way)(struct rig *rig);

static void map_and_go(struct rig *rig, unsigned int step)
{
	unsigned int i;

	for (i = 0; i < MAPPINGS && step == 1; i++)
		maps[i] = ram_map(&rig->ram);
	if (step == 2)
		the_way(rig);
}

FIXTURE_SETUP(large)
{
	the_way = variant->way;
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
}

FIXTURE_TEARDOWN(large)
{
	rig_end(&self->rig);
}

static void tracing_on(void)
{
	require(!mkdir(INSTANCE, 0700), INSTANCE);
	require(!file_write(INSTANCE "/events/godwit/godwit_ledger_hit/enable", "1"), "a tracepoint");
}

/* How many pages this task has noted. */
static uint64_t noted_by(pid_t pid)
{
	FILE *f = fopen(INSTANCE "/trace", "re");
	char line[512], task[16];
	uint64_t sum = 0;

	require(f, INSTANCE "/trace");
	snprintf(task, sizeof(task), "-%d ", pid);
	while (fgets(line, sizeof(line), f)) {
		const char *npages = strstr(line, "npages=");

		if (strstr(line, task) && npages)
			sum += strtoull(npages + strlen("npages="), NULL, 10);
	}
	fclose(f);
	return sum;
}

/* A spinlock is held meanwhile: no more than a bound is noted, and the harvest has all of it, once. */
TEST_F(large, counted_by_the_harvest)
{
	struct godwit_harvest h;
	pid_t pid;

	rig_writer(&self->rig, map_and_go);
	rig_begin(&self->rig, 3, WINDOW);
	pid = self->rig.writer.pid;
	writer_step_wait(&self->rig.writer);
	ASSERT_EQ(0, session_sync(&self->rig.s, &h));
	bits_forget(&self->rig.s.ram[0]);
	rows_on(1 << GODWIT_ROW_UNMAP);
	tracing_on();
	writer_step_end(&self->rig.writer, variant->exits);
	PROOF(EXPECT_GE(MAPPINGS * AT_ONCE / PAGE, noted_by(pid)));
	rmdir(INSTANCE);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_LE(BYTES / PAGE, h.pages[GODWIT_ROW_UNMAP]));
	bits_forget(&self->rig.s.ram[0]);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(0, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_EQ(0, h.pages[GODWIT_ROW_UNMAP]));
}

/* Stores to the window, and has its entries taken away, again and again. */
static void store_and_drop(struct rig *rig, unsigned int step)
{
	uint64_t i, at;

	for (i = 0; i < TIMES; i++) {
		for (at = 0; at < WINDOW; at += PAGE)
			*(volatile uint64_t *)(rig->ram.map + at) = step * TIMES + i;
		rig_drop(rig);
	}
}

FIXTURE(busy) {
	struct rig rig;
};

FIXTURE_SETUP(busy)
{
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	rig_writer(&self->rig, store_and_drop);
	rig_begin(&self->rig, 3, WINDOW);
}

FIXTURE_TEARDOWN(busy)
{
	rig_end(&self->rig);
}

/* Nothing is lost between one that is owed and a harvest that goes through what is. */
TEST_F(busy, beside_harvests)
{
	struct writer *writer = &self->rig.writer;
	unsigned int i;

	rig_round(&self->rig, true);
	rows_on(1 << GODWIT_ROW_UNMAP);
	for (i = 0; i < STEPS; i++) {
		writer_step(writer);
		while (writer->shared->taken != writer->shared->step)
			rig_round(&self->rig, false);
		rig_round(&self->rig, false);
		PROOF(ASSERT_EQ(0, shadow_differs(&self->rig.shadow)));
	}
}

KST_MAIN
