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
#include "kst.h"
#include "rig.h"

#define MIB	(1UL << 20)
#define HOT	5	/* pages, in one huge page, 7 apart */
#define WINDOW	(64 * PAGE)
#define ROUNDS	6
#define STOPS	5

FIXTURE(mapping) {
	struct rig rig;
};

FIXTURE_VARIANT(mapping) {
	enum ram_kind kind;
	uint64_t bytes;
};

FIXTURE_VARIANT_ADD(mapping, tmpfs_4k) { .kind = RAM_TMPFS, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(mapping, tmpfs_huge) { .kind = RAM_THP, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(mapping, hugetlbfs_2m) { .kind = RAM_2M, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(mapping, hugetlbfs_1g) { .kind = RAM_1G, .bytes = 1024 * MIB };

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
	ASSERT_EQ(0, rig_ram(&self->rig, variant->kind, variant->bytes)) {
		TH_LOG("no huge pages: the lab wants --hugepages 2M:4,1G:1");
	}
	rig_writer(&self->rig, write_odd);
	rig_begin(&self->rig, 3, WINDOW);
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

TEST_F(mapping, hot_writer)
{
	if (!self->rig.ram.map)
		return;
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->rig)));
}

TEST_F(mapping, hot_writer_this_row_alone)
{
	if (!self->rig.ram.map)
		return;
	rows_on(1 << GODWIT_ROW_MAPPING);
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->rig)));
}

/* Not each stop: the first fault of a page may have been counted otherwise. */
TEST_F(mapping, row_off_is_noticed)
{
	if (!self->rig.ram.map)
		return;
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_MAPPING));
	EXPECT_LT(STOPS - 2, stops_that_missed(&self->rig));
}

/* The proof that this is a test of the flush. */
TEST_F(mapping, flush_off_is_noticed)
{
	if (!self->rig.ram.map)
		return;
	flush_off();
	EXPECT_LT(0, stops_that_missed(&self->rig));
}

/* Writes page 3 through a mapping that no harvest has seen yet. */
static uint8_t *write_second(struct rig *rig)
{
	uint8_t *second = ram_map(&rig->ram);

	require(second, "a second mapping");
	*(volatile uint64_t *)(second + 3 * PAGE) += 1;
	return second;
}

/* Exactly what is, and what is not, seen of a mapping that comes between two harvests: see kmod/harvest.c. */
TEST_F(mapping, second_mapping)
{
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
}

/* A write counts for its native page, and for nothing else. */
TEST_F(mapping, one_page_each)
{
	struct godwit_harvest h;

	if (!self->rig.ram.map)
		return;
	PROOF(EXPECT_EQ(0, run_and_stop(&self->rig)));
	rows_on(1 << GODWIT_ROW_MAPPING);
	*(volatile uint64_t *)(self->rig.ram.map + 3 * PAGE) = 1;
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(self->rig.ram.page / PAGE, h.pages[GODWIT_ROW_MAPPING]));
	PROOF(EXPECT_EQ(self->rig.ram.page / PAGE, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_TRUE(bit_set(&self->rig.s.ram[0], 3)));
	memset(self->rig.s.ram[0].words, 0, self->rig.s.ram[0].bytes);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(0, bits_count(&self->rig.s.ram[0])));
}

KST_MAIN
