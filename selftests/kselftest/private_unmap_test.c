// SPDX-License-Identifier: GPL-2.0-only
/*
 * Private RAM whose entries, or mappings, go away: rows "unmap" and "change". What has been
 * written, and what is there afterwards, must be equal to a copy that takes what is reported.
 */
#include <sys/mman.h>
#include <sys/wait.h>

#include "kst.h"
#include "priv.h"

#define BYTES	(4UL << 20)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

FIXTURE(gone) {
	struct priv p;
};

#define UNMAP	(1U << GODWIT_ROW_UNMAP)
#define MAPPING                                                                                  \
	(1U << GODWIT_ROW_MAPPING) /* where an entry, or the one that takes its place, keeps the \
				      bit */
#define CHANGE	(1U << GODWIT_ROW_CHANGE)

FIXTURE_VARIANT(gone) {
	void (*way)(struct priv *p);	/* behind the write */
	enum priv_kind kind;
	uint64_t bytes;			/* 0: BYTES. What is written, and compared, are BYTES */
	bool swap;
	unsigned int seen_by;		/* rows: with all of these off it must be missed */
};

static void way_pageout(struct priv *p)
{
	require(!madvise(p->map, BYTES, MADV_PAGEOUT), "MADV_PAGEOUT");
}

static void way_dontneed(struct priv *p)
{
	require(!madvise(p->map, p->bytes, MADV_DONTNEED), "MADV_DONTNEED");
}

static void way_free(struct priv *p)
{
	require(!madvise(p->map, BYTES, MADV_FREE), "MADV_FREE");
}

static void way_mapped_over(struct priv *p)
{
	require(mmap(p->map, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		     -1, 0) == p->map,
		"mmap over a mapping");
}

static void nothing(void *unused)
{
	(void)unused;
}

/* The child keeps the page; the VMM's store makes another one, whose entry is born dirty. */
static void way_fork(struct priv *p)
{
	pid_t pid = fork_ready(nothing, NULL);

	* (volatile uint64_t *)p->map = 77;
	kill_process(pid);
}

static void way_protect(struct priv *p)
{
	require(!mprotect(p->map, p->bytes, PROT_READ), "mprotect");
	require(!mprotect(p->map, p->bytes, PROT_READ | PROT_WRITE), "mprotect");
}

static void way_split(struct priv *p)
{
	uint64_t bytes = p->kind == PRIV_2M ? p->page : PAGE;

	require(!mprotect(p->map + bytes, bytes, PROT_READ), "mprotect");
	require(!mprotect(p->map + bytes, bytes, PROT_READ | PROT_WRITE), "mprotect");
}

static void way_split_and_collapse(struct priv *p)
{
	way_split(p);
	require(!madvise(p->map, BYTES, MADV_COLLAPSE), "MADV_COLLAPSE");
}

static void way_compact(struct priv *p)
{
	(void)p;
	require(!file_write("/proc/sys/vm/compact_memory", "1"), "compaction");
}

/* Room of the RAM's kind behind it. */
static uint8_t *map_away(const struct priv *p)
{
	int fd = p->kind == PRIV_FILE ? sized_memfd(BYTES, 0) : -1;
	int flags = MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);
	uint8_t *at;

	if (p->kind == PRIV_2M)
		flags |= MAP_HUGETLB | 21 << MAP_HUGE_SHIFT;
	at = mmap(p->map + BYTES, BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
	require(at == p->map + BYTES, "mmap");
	if (fd >= 0)
		close(fd);
	return at;
}

/*
 * Comes from elsewhere with clean entries of other pages: swapped out and in, or huge pages that
 * were only read. (Of transparent huge ones in parts: what is swapped in comes so.)
 */
static void way_moved_in(struct priv *p)
{
	uint8_t *away = map_away(p), holds = p->kind == PRIV_2M ? 0 : 0x77;
	uint64_t at;

	if (holds) {
		madvise(away, BYTES, MADV_NOHUGEPAGE);
		memset(away, holds, BYTES);
		require(!madvise(away, BYTES, MADV_PAGEOUT), "MADV_PAGEOUT");
	}
	for (at = 0; at < BYTES; at += PAGE)
		require(*(volatile uint8_t *)(away + at) == holds, "read");
	require(mremap(away, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, p->map) == p->map,
		"mremap");
}

static void way_away_and_back(struct priv *p)
{
	uint8_t *away = p->map + BYTES;

	require(mremap(p->map, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away,
		"mremap");
	memset(away, 0x66, BYTES / 2);
	require(mremap(away, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, p->map) == p->map,
		"mremap");
}

FIXTURE_VARIANT_ADD(gone, pageout) { .way = way_pageout, .swap = true, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, pageout_thp){ .way = way_pageout,
					.kind = PRIV_THP,
					.swap = true,
					.seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, pageout_file){ .way = way_pageout,
					 .kind = PRIV_FILE,
					 .swap = true,
					 .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, dontneed) { .way = way_dontneed, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, dontneed_thp) { .way = way_dontneed, .kind = PRIV_THP, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone,
		    dontneed_2m){ .way = way_dontneed, .kind = PRIV_2M, .seen_by = UNMAP | CHANGE };
FIXTURE_VARIANT_ADD(gone, dontneed_1g){ .way = way_dontneed,
					.kind = PRIV_1G,
					.bytes = GIB,
					.seen_by = UNMAP | CHANGE };
FIXTURE_VARIANT_ADD(gone,
		    dontneed_file){ .way = way_dontneed, .kind = PRIV_FILE, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, free) { .way = way_free, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, free_thp) { .way = way_free, .kind = PRIV_THP, .seen_by = UNMAP };
FIXTURE_VARIANT_ADD(gone, mapped_over) { .way = way_mapped_over, .seen_by = UNMAP | CHANGE };
FIXTURE_VARIANT_ADD(gone, fork) { .way = way_fork, .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone, fork_2m) { .way = way_fork, .kind = PRIV_2M, .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone,
		    fork_1g){ .way = way_fork,
			      .kind = PRIV_1G,
			      .bytes = GIB,
			      .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone,
		    fork_file){ .way = way_fork, .kind = PRIV_FILE, .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone, mprotect) { .way = way_protect, .seen_by = MAPPING };
FIXTURE_VARIANT_ADD(gone, mprotect_2m) { .way = way_protect, .kind = PRIV_2M, .seen_by = MAPPING };
FIXTURE_VARIANT_ADD(gone, mprotect_1g){ .way = way_protect,
					.kind = PRIV_1G,
					.bytes = GIB,
					.seen_by = MAPPING };
FIXTURE_VARIANT_ADD(gone, split) { .way = way_split, .kind = PRIV_THP, .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone, collapse){ .way = way_split_and_collapse,
				     .kind = PRIV_THP,
				     .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone, compaction) { .way = way_compact, .seen_by = UNMAP | MAPPING };
FIXTURE_VARIANT_ADD(gone, moved_in){ .way = way_moved_in, .swap = true, .seen_by = UNMAP | CHANGE };
FIXTURE_VARIANT_ADD(gone, moved_in_2m){ .way = way_moved_in,
					.kind = PRIV_2M,
					.seen_by = UNMAP | CHANGE };
FIXTURE_VARIANT_ADD(gone, moved_away_and_back){ .way = way_away_and_back,
						.seen_by = UNMAP | MAPPING | CHANGE };

static void write_all(struct priv *p, uint64_t value)
{
	uint64_t at;

	for (at = 0; at < BYTES; at += PAGE)
		* (volatile uint64_t *)(p->map + at) = value + at;
}

FIXTURE_SETUP(gone)
{
	if (variant->swap)
		swap_on();
	ASSERT_EQ(0, priv_map(&self->p, variant->kind, variant->bytes ? variant->bytes : BYTES)) {
		TH_LOG("no huge pages: the lab wants --hugepages 2M:4,1G:2");
	}
	write_all(&self->p, 1);
	priv_begin(&self->p, 1, BYTES);
	priv_round(&self->p, true);
	PROOF(ASSERT_EQ(0, priv_differs(&self->p)));
}

FIXTURE_TEARDOWN(gone)
{
	if (self->p.map)
		priv_end(&self->p);
	if (variant->swap)
		swap_off();
}

TEST_F(gone, written_and_gone)
{
	write_all(&self->p, 2);
	variant->way(&self->p);
	priv_round(&self->p, true);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
	/* And on: what is there now is watched, too. */
	write_all(&self->p, 3);
	priv_round(&self->p, false);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
}

/* The page has no dirty bit when it goes. */
TEST_F(gone, clean_and_gone)
{
	variant->way(&self->p);
	priv_round(&self->p, false);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
}

TEST_F(gone, rows_off_are_noticed)
{
	rows_on(ALL_ROWS & ~variant->seen_by);
	write_all(&self->p, 2);
	variant->way(&self->p);
	priv_round(&self->p, false);
	EXPECT_NE(0, priv_differs(&self->p));
}

FIXTURE(change) {
	struct priv p;
};

FIXTURE_VARIANT(change) {
	enum priv_kind kind;
};

FIXTURE_VARIANT_ADD(change, anon_4k) { .kind = PRIV_4K };
FIXTURE_VARIANT_ADD(change, anon_thp) { .kind = PRIV_THP };
FIXTURE_VARIANT_ADD(change, hugetlbfs_2m) { .kind = PRIV_2M };
FIXTURE_VARIANT_ADD(change, file) { .kind = PRIV_FILE };

FIXTURE_SETUP(change)
{
	swap_on();
	ASSERT_EQ(0, priv_map(&self->p, variant->kind, BYTES));
	write_all(&self->p, 1);
	priv_begin(&self->p, 1, BYTES);
	priv_round(&self->p, true);
}

FIXTURE_TEARDOWN(change)
{
	priv_end(&self->p);
	swap_off();
}

/* Another mapping comes with clean entries: no row but this one tells. */
TEST_F(change, moved_in)
{
	struct godwit_harvest h;

	rows_on(1 << GODWIT_ROW_CHANGE);
	way_moved_in(&self->p);
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, h.pages[GODWIT_ROW_CHANGE]));
	PROOF(EXPECT_LT(0, h.changes));
	PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->p.s.ram[0])));
	priv_round(&self->p, false);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
}

TEST_F(change, moved_in_where_nothing_was)
{
	struct godwit_harvest h;

	rows_on(1 << GODWIT_ROW_CHANGE);
	require(!munmap(self->p.map, BYTES), "munmap");
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, h.pages[GODWIT_ROW_CHANGE]));
	memset(self->p.s.ram[0].words, 0, self->p.s.ram[0].bytes);
	way_moved_in(&self->p);
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->p.s.ram[0])));
	priv_round(&self->p, false);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
}

TEST_F(change, row_off_is_noticed)
{
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_CHANGE | 1 << GODWIT_ROW_UNMAP));
	way_moved_in(&self->p);
	priv_round(&self->p, false);
	EXPECT_NE(0, priv_differs(&self->p));
}

/* Split, merged and protected: the same pages, which are no change. */
TEST_F(change, none)
{
	struct godwit_harvest h;

	way_split(&self->p);
	require(!madvise(self->p.map, BYTES / 2, MADV_DONTFORK), "MADV_DONTFORK");
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	EXPECT_EQ(0, h.pages[GODWIT_ROW_CHANGE]);
	EXPECT_EQ(0, h.changes);
}

KST_MAIN
