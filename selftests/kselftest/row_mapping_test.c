// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "mapping": another process stores to the RAM file without a pause, from another CPU, while dirty bits are
 * taken from under it.
 *
 * This is also what tests the flush of the TLBs. The writer makes no system call and touches few pages, so its CPU
 * keeps their translations. A harvest that cleans the entries and does not flush leaves that CPU with translations
 * that say "dirty": it goes on writing and never sets the bit again, the next harvest finds nothing, and the copy
 * differs.
 */
#include <linux/memfd.h>
#include <sys/mman.h>

#include "kst.h"
#include "ram_kinds.h"

#define HOT	5	/* pages, in one huge page, 7 apart */
#define WINDOW	(64 * PAGE)
#define ROUNDS	6
#define STOPS	3	/* without the row, or the flush, all or all but one are missed */

FIXTURE(mapping) {
	struct rig rig;
};

EACH_RAM_KIND(mapping);

/* Writes until it shall take the next step. */
static void write_hot(struct rig *rig, unsigned int step)
{
	static volatile uint64_t value;
	unsigned int i;

	pin_to_cpu(1);
	do {
		for (i = 0; i < HOT; i++)
			*(volatile uint64_t *)(rig->ram.map + 7 * i * PAGE) = ++value;
	} while (rig->writer.shared->step == step);
}

/* A step each to run and to stop: even ones do nothing. */
static void write_odd(struct rig *rig, unsigned int step)
{
	if (step % 2)
		write_hot(rig, step);
}

FIXTURE_SETUP(mapping)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	pin_to_cpu(0);
	ASSERT_RIG_RAM(&self->rig);
	rig_writer(&self->rig, write_odd);
	rig_begin(&self->rig, 3, WINDOW);
	/* Is there: the writer would spend its first rounds in a fault that clears 1 GiB. */
	memset(self->rig.ram.map, 1, WINDOW);
	rig_round(&self->rig, true);
}

FIXTURE_TEARDOWN(mapping)
{
	if (self->rig.ram.map)
		rig_end(&self->rig);
}

/* Pages that differ after the writer has stopped and a last harvest. */
static uint64_t run_and_stop(struct rig *rig)
{
	unsigned int i;

	writer_step(&rig->writer);
	for (i = 0; i < ROUNDS; i++) {
		sleep_ms(4);
		rig_round(rig, true);
	}
	writer_step_wait(&rig->writer);
	rig_round(rig, false);
	return shadow_differs(&rig->shadow);
}

static unsigned int stops_that_missed(struct rig *rig)
{
	unsigned int i, missed = 0;

	for (i = 0; i < STOPS; i++)
		missed += !!run_and_stop(rig);
	return missed;
}

/* The writer stands still. */
static void copy_anew(struct rig *rig)
{
	memcpy(rig->shadow.copy, rig->ram.map, WINDOW);
	require(!shadow_differs(&rig->shadow), "a copy");
}

/* One setup for both proofs and both controls: clearing 1 GiB takes longer than all of them. */
TEST_F(mapping, hot_writer)
{
	if (!self->rig.ram.map)
		return;
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->rig)));
	rows_on(1 << GODWIT_ROW_MAPPING);
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->rig)));
	/* The proof that this is a test of the flush, and of the row. */
	flush_off();
	EXPECT_LT(0, stops_that_missed(&self->rig));
	copy_anew(&self->rig);
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_MAPPING));
	EXPECT_LT(STOPS - 2, stops_that_missed(&self->rig));
}

/* Writes page 3 through a mapping that no harvest has seen yet. */
static uint8_t *write_second(struct rig *rig)
{
	uint8_t *second = ram_map(&rig->ram);

	require(second, "a second mapping");
	*(volatile uint64_t *)(second + 3 * PAGE) += 1;
	return second;
}

/*
 * Exactly what is, and what is not, seen of a mapping that comes between two harvests: see kmod/harvest.c. And a
 * write counts for its native page, and for nothing else.
 */
TEST_F(mapping, second_mapping_and_one_page_each)
{
	struct godwit_harvest h;
	uint8_t *second;

	if (!self->rig.ram.map)
		return;
	second = write_second(&self->rig);
	rig_round(&self->rig, true);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
	*(volatile uint64_t *)(second + 3 * PAGE) += 1;
	require(!munmap(second, self->rig.ram.bytes), "munmap");
	rig_round(&self->rig, true);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
	/* It is gone before any harvest, though this process is watched. */
	require(!munmap(write_second(&self->rig), self->rig.ram.bytes), "munmap");
	rig_round(&self->rig, true);
	EXPECT_EQ(1, shadow_differs(&self->rig.shadow));
	copy_anew(&self->rig);
	PROOF(EXPECT_EQ(0, run_and_stop(&self->rig)));
	rows_on(1 << GODWIT_ROW_MAPPING);
	*(volatile uint64_t *)(self->rig.ram.map + 3 * PAGE) = 1;
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(self->rig.ram.page / PAGE, h.pages[GODWIT_ROW_MAPPING]));
	PROOF(EXPECT_EQ(self->rig.ram.page / PAGE, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_TRUE(bit_set(&self->rig.s.ram[0], 3)));
	bits_forget(&self->rig.s.ram[0]);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(0, bits_count(&self->rig.s.ram[0])));
	/* Nothing can be stored there now: what has been is reported all the same, by whichever row (kmod/Kbuild). */
	rows_on(ALL_ROWS);
	*(volatile uint64_t *)(self->rig.ram.map + 3 * PAGE) = 2;
	require(!mprotect(self->rig.ram.map, self->rig.ram.bytes, PROT_NONE), "PROT_NONE");
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_TRUE(bit_set(&self->rig.s.ram[0], 3)));
	require(!mprotect(self->rig.ram.map, self->rig.ram.bytes, PROT_READ | PROT_WRITE), "PROT_WRITE");
}

FIXTURE(shared_table) {
	struct rig rig;
};

/* A GiB of 2 MiB pages, of which hardly any is there: processes that map it share a page table. */
FIXTURE_SETUP(shared_table)
{
	struct ram *ram = &self->rig.ram;

	*ram = (struct ram){ .bytes = GIB, .page = 2 * MIB, .fd = sized_memfd(GIB, MFD_HUGETLB | MFD_HUGE_2MB) };
	ram->map = mmap(aligned_room(GIB, GIB), GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
			ram->fd, 0);
	ASSERT_NE(MAP_FAILED, ram->map);
	rig_begin(&self->rig, 3, WINDOW);
}

FIXTURE_TEARDOWN(shared_table)
{
	rig_end(&self->rig);
}

static void read_third_page(void *arg)
{
	struct rig *rig = arg;

	(void)*(volatile uint64_t *)(rig->ram.map + 3 * PAGE);
}

/*
 * A change of protection leaves the table to the other process, which no harvest has seen, and which takes the dirty bits
 * along when it exits.
 */
TEST_F(shared_table, left_to_another)
{
	struct rig *rig = &self->rig;
	struct bitmap *bits = &rig->s.ram[0];
	pid_t pid;

	*(volatile uint64_t *)(rig->ram.map + 3 * PAGE) = 1;
	rig_round(rig, true);
	ASSERT_EQ(0, session_harvest(&rig->s, NULL));
	EXPECT_EQ(0, bits_count(bits));
	*(volatile uint64_t *)(rig->ram.map + 3 * PAGE) = 2;
	pid = fork_ready(read_third_page, rig);
	require(!mprotect(rig->ram.map, GIB, PROT_READ), "PROT_READ");
	kill_process(pid);
	ASSERT_EQ(0, session_harvest(&rig->s, NULL));
	PROOF(EXPECT_TRUE(bit_set(bits, 3)));
	shadow_take(&rig->shadow, bits);
	PROOF(EXPECT_EQ(0, shadow_differs(&rig->shadow)));
}

KST_MAIN
