// SPDX-License-Identifier: GPL-2.0-only
/* Ledger row "unmap": page table entries that go away with their dirty bit before a harvest can see it. */
#include <fcntl.h>
#include <stdlib.h>

#include "kst.h"
#include "rig.h"

#define BYTES		(1UL << 20)
#define HARVESTS	20

FIXTURE(unmap) {
	struct rig rig;
};

FIXTURE_VARIANT(unmap) {
	void (*way)(struct rig *rig);	/* in the process that has just written */
	bool exits;
	bool seen_when_off;		/* by another row */
};

static void way_munmap(struct rig *rig)
{
	require(!munmap(rig->ram.map, BYTES), "munmap");
}

static void way_remap(struct rig *rig)
{
	require(mmap(rig->ram.map, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == rig->ram.map,
		"mmap over a mapping");
}

/* mremap() moves the entries with their bits to an unknown mapping: the rows "mapping" and "change" see it too. */
static void way_mremap(struct rig *rig)
{
	rig->ram.map = mremap(rig->ram.map, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	require(rig->ram.map != MAP_FAILED, "mremap");
}

/* The page is gone, and reads as zeros: this too is a write. */
static void way_punch_hole(struct rig *rig)
{
	require(!fallocate(rig->ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), "fallocate");
}

/* An mm that exits is counted when it is released. */
static void way_exit(struct rig *rig)
{
	(void)rig;
	_exit(0);
}

static void way_killed(struct rig *rig)
{
	(void)rig;
	raise(SIGKILL);
}

FIXTURE_VARIANT_ADD(unmap, pageout) { .way = rig_page_out };
FIXTURE_VARIANT_ADD(unmap, dontneed) { .way = rig_drop };
FIXTURE_VARIANT_ADD(unmap, munmap) { .way = way_munmap };
FIXTURE_VARIANT_ADD(unmap, mapped_over) { .way = way_remap };
FIXTURE_VARIANT_ADD(unmap, mremap) { .way = way_mremap, .seen_when_off = true };
FIXTURE_VARIANT_ADD(unmap, punch_hole) { .way = way_punch_hole };
FIXTURE_VARIANT_ADD(unmap, exit) { .way = way_exit, .exits = true };
FIXTURE_VARIANT_ADD(unmap, killed) { .way = way_killed, .exits = true };

static void (*the_way)(struct rig *rig);

/* Step 1 makes the entries, so that step 2, a harvest later, only sets dirty bits, and takes them away. */
static void write_and_go(struct rig *rig, unsigned int step)
{
	uint64_t at;

	for (at = 0; at < BYTES; at += PAGE)
		*(volatile uint64_t *)(rig->ram.map + at) = step;
	if (step == 2)
		the_way(rig);
}

FIXTURE_SETUP(unmap)
{
	the_way = variant->way;
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	rig_writer(&self->rig, write_and_go);
	rig_begin(&self->rig, 3, BYTES);
	writer_step_wait(&self->rig.writer);
	rig_round(&self->rig, true);
	PROOF(ASSERT_EQ(0, shadow_differs(&self->rig.shadow)));
}

FIXTURE_TEARDOWN(unmap)
{
	rig_end(&self->rig);
}

TEST_F(unmap, written_and_gone)
{
	writer_step_end(&self->rig.writer, variant->exits);
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

TEST_F(unmap, this_row_alone)
{
	rows_on(1 << GODWIT_ROW_UNMAP);
	writer_step_end(&self->rig.writer, variant->exits);
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

TEST_F(unmap, row_off)
{
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_UNMAP));
	writer_step_end(&self->rig.writer, variant->exits);
	rig_round(&self->rig, false);
	EXPECT_EQ(variant->seen_when_off, shadow_differs(&self->rig.shadow) == 0);
}

static void drop_a_page(void *arg)
{
	struct ram *ram = arg;

	require(!madvise(ram->map, PAGE, MADV_DONTNEED), "MADV_DONTNEED");
}

/*
 * The notifier ends before the kernel has flushed: reclaim's and migration's flush comes at the end of a
 * batch. The time between is some microseconds, which no test can hold open; but the flush that closes
 * it for the helper is counted: one with each harvest that had a note, and none without a note.
 */
TEST_F(unmap, followed_by_a_flush)
{
	unsigned long without, with;

	rows_on(1 << GODWIT_ROW_UNMAP);
	ASSERT_EQ(0, session_harvest(&self->rig.s, NULL));
	without = session_flushes(&self->rig.s, HARVESTS, NULL, NULL);
	with = session_flushes(&self->rig.s, HARVESTS, drop_a_page, &self->rig.ram);
	/* The kernel itself may give notes in some. */
	PROOF(EXPECT_LE(without + HARVESTS / 2, with));
}

/* What is unmapped in one stretch is counted there, and nowhere else. */
TEST_F(unmap, counted_where_it_was)
{
	struct godwit_harvest h;

	writer_step_end(&self->rig.writer, variant->exits);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_EQ(BYTES / PAGE, h.pages[GODWIT_ROW_UNMAP]));
}

KST_MAIN
