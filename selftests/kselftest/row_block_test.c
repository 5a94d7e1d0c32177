// SPDX-License-Identifier: GPL-2.0-only
/* Ledger row "block": a process with RAM mapped reads a block device straight into it. */
#include "blockdev.h"
#include "kst.h"
#include "rig.h"

#define BYTES	(2UL << 20)

FIXTURE(block) {
	struct rig rig;
	const struct blockdev *dev;
	int fd;
};

FIXTURE_VARIANT(block) {
	int dev;
	enum ram_kind kind;
	bool btrfs;	/* a file on it */
};

FIXTURE_VARIANT_ADD(block, null_blk) { .dev = DEV_NULL_BLK };
FIXTURE_VARIANT_ADD(block, scsi_debug) { .dev = DEV_SCSI_DEBUG };
FIXTURE_VARIANT_ADD(block, brd) { .dev = DEV_BRD };
FIXTURE_VARIANT_ADD(block, dm_linear) { .dev = DEV_DM_LINEAR };
FIXTURE_VARIANT_ADD(block, dm_crypt) { .dev = DEV_DM_CRYPT };
FIXTURE_VARIANT_ADD(block, null_blk_hugetlbfs) { .dev = DEV_NULL_BLK, .kind = RAM_2M };
FIXTURE_VARIANT_ADD(block, brd_huge_tmpfs) { .dev = DEV_BRD, .kind = RAM_THP };
/* There the last bio to end is a clone of the reader's; and these two copy from brd: no request is below them. */
FIXTURE_VARIANT_ADD(block, btrfs_dm_linear) { .dev = DEV_DM_LINEAR, .btrfs = true };
FIXTURE_VARIANT_ADD(block, btrfs_dm_crypt) { .dev = DEV_DM_CRYPT, .btrfs = true };

/* The entries are there and clean, so that reading into the pages needs no fault, which would set dirty bits. */
FIXTURE_SETUP(block)
{
	uint64_t at;

	self->dev = &blockdevs[variant->dev];
	self->fd = variant->btrfs ? blockdev_open_btrfs(self->dev) : blockdev_open(self->dev);
	if (self->fd == -ENOSYS)
		SKIP(return, "no btrfs");
	ASSERT_LE(0, self->fd) {
		TH_LOG("no %s: %s", self->dev->name, strerror(-self->fd));
	}
	ASSERT_EQ(0, rig_ram(&self->rig, variant->kind, BYTES));
	rig_begin(&self->rig, 3, BYTES);
	for (at = 0; at < BYTES; at += PAGE)
		*(volatile uint64_t *)(self->rig.ram.map + at) = at;
	rig_round(&self->rig, true);
	PROOF(ASSERT_EQ(0, shadow_differs(&self->rig.shadow)));
}

FIXTURE_TEARDOWN(block)
{
	rig_end(&self->rig);
	close(self->fd);
}

struct part {
	uint64_t at, bytes;
};

/* Requests of many lengths, at many places, some within a page: 1, 1, 2 (across a page's end), 32, 64 and 2 pages. */
static const struct part parts[] = {
	{ 0, 512 }, { 4096, 4096 }, { 3 * 4096 + 1024, 9 * 512 }, { 65536, 131072 }, { 1 << 20, 1 << 18 },
	{ (3 << 19) + 512, 4096 },
};
/* A file system reads whole blocks, or it copies: 1, 32 and 64 pages. */
static const struct part blocks[] = {
	{ 4096, 4096 }, { 65536, 131072 }, { 1 << 20, 1 << 18 },
};

/* Returns how many pages it has read into. */
static uint64_t read_some(struct _test_data_block *self, bool whole)
{
	const struct part *p = whole ? blocks : parts;
	const struct part *end = p + (whole ? ARRAY_SIZE(blocks) : ARRAY_SIZE(parts));

	for (; p < end; p++)
		require(pread(self->fd, self->rig.ram.map + p->at, p->bytes, p->at) == (ssize_t)p->bytes,
			"read from a block device");
	return whole ? 97 : 102;
}

TEST_F(block, direct_reads)
{
	read_some(self, variant->btrfs);
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

TEST_F(block, this_row_alone)
{
	struct godwit_harvest h;
	uint64_t pages;

	rows_on(1 << GODWIT_ROW_BLOCK);
	pages = read_some(self, variant->btrfs);
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	/* and no other */
	PROOF(EXPECT_EQ(pages, bits_count(&self->rig.s.ram[0])));
	PROOF(EXPECT_EQ(pages, h.pages[GODWIT_ROW_BLOCK]));
	shadow_take(&self->rig.shadow, &self->rig.s.ram[0]);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

TEST_F(block, row_off_is_noticed)
{
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_BLOCK));
	read_some(self, variant->btrfs);
	rig_round(&self->rig, false);
	EXPECT_NE(0, shadow_differs(&self->rig.shadow));
}

/* All that is unmapped the device had written before: both rows say so, or the sender would miss the holes. */
TEST_F(block, an_unmap_behind_it_counts)
{
	struct godwit_harvest h;

	ASSERT_EQ(BYTES, pread(self->fd, self->rig.ram.map, BYTES, 0));
	ASSERT_EQ(0, madvise(self->rig.ram.map, BYTES, MADV_DONTNEED));
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, h.pages[GODWIT_ROW_BLOCK]));
	PROOF(EXPECT_EQ(1, h.pages[GODWIT_ROW_UNMAP]));
	ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
	PROOF(EXPECT_EQ(0, h.pages[GODWIT_ROW_UNMAP]));
}

/* A device that reads guest RAM writes nothing there. */
TEST_F(block, writes_do_not_count)
{
	ASSERT_EQ(4096, pwrite(self->fd, self->rig.ram.map, 4096, 0));
	ASSERT_EQ(0, session_harvest(&self->rig.s, NULL));
	PROOF(EXPECT_EQ(0, bits_count(&self->rig.s.ram[0])));
}

KST_MAIN
