// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each row of the ledger over private RAM, in each kind of it: the VMM's own threads, its vCPU,
 * block devices that it reads into its RAM, and what takes entries away.
 */
#include <sys/mman.h>

#include "blockdev.h"
#include "kst.h"
#include "priv.h"

#define HOT	5	/* pages, in one huge page, 7 apart */
#define WINDOW	(4 * MIB)
#define ROUNDS	6
#define STOPS	3	/* without the row, or the flush, all or all but one are missed */

FIXTURE(rows) {
	struct priv p;
};

FIXTURE_VARIANT(rows) {
	enum priv_kind kind;
	uint64_t bytes;
};

FIXTURE_VARIANT_ADD(rows, anon_4k) { .kind = PRIV_4K, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(rows, anon_thp) { .kind = PRIV_THP, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(rows, hugetlbfs_2m) { .kind = PRIV_2M, .bytes = 4 * MIB };
FIXTURE_VARIANT_ADD(rows, hugetlbfs_1g) { .kind = PRIV_1G, .bytes = 1024 * MIB };
FIXTURE_VARIANT_ADD(rows, file) { .kind = PRIV_FILE, .bytes = 4 * MIB };

/* All of the window is there, and clean: a store makes no fault, which another row might see. */
FIXTURE_SETUP(rows)
{
	uint64_t at;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	pin_to_cpu(0);
	ASSERT_EQ(0, priv_map(&self->p, variant->kind, variant->bytes)) {
		TH_LOG("no huge pages: the lab wants --hugepages 2M:4,1G:1");
	}
	for (at = 0; at < WINDOW; at += PAGE)
		* (volatile uint64_t *)(self->p.map + at) = at + 1;
	priv_begin(&self->p, 1, WINDOW);
	vm_table_add(&self->p.vm, RAM_GPA, WINDOW / PAGE);
	priv_round(&self->p, true);
	PROOF(ASSERT_EQ(0, priv_differs(&self->p)));
}

FIXTURE_TEARDOWN(rows)
{
	if (self->p.map)
		priv_end(&self->p);
}

static volatile bool writing, wrote;

static void *write_hot(void *map)
{
	uint64_t value = 0;
	unsigned int i;

	pin_to_cpu(1);
	while (writing) {
		for (i = 0; i < HOT; i++)
			* (volatile uint64_t *)((uint8_t *)map + 7 * i * PAGE) = ++value;
		wrote = true;
	}
	return NULL;
}

/* Pages that differ after the writer has stopped and a last harvest. */
static uint64_t run_and_stop(struct priv *p)
{
	pthread_t thread;
	unsigned int i;

	writing = true;
	wrote = false;
	require(!pthread_create(&thread, NULL, write_hot, p->map), "pthread_create");
	while (!wrote)
		sleep_ms(1);
	for (i = 0; i < ROUNDS; i++) {
		sleep_ms(4);
		priv_round(p, true);
	}
	writing = false;
	pthread_join(thread, NULL);
	priv_round(p, false);
	return priv_differs(p);
}

static unsigned int stops_that_missed(struct priv *p)
{
	unsigned int i, missed = 0;

	for (i = 0; i < STOPS; i++)
		missed += !!run_and_stop(p);
	return missed;
}

/* The writer stands still. */
static void copy_anew(struct priv *p)
{
	memcpy(p->copy, p->map, WINDOW);
	require(!priv_differs(p), "a copy");
}

/* As all tests here, proofs and controls have one setup: clearing 1 GiB takes longer than all of them. */
TEST_F(rows, hot_writer)
{
	if (!self->p.map)
		return;
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->p)));
	rows_on(1 << GODWIT_ROW_MAPPING);
	PROOF(EXPECT_EQ(0, stops_that_missed(&self->p)));
	/* The proof that these are tests of the flush, and of the row. */
	safeguard_off(SAFE_FLUSH);
	EXPECT_LT(0, stops_that_missed(&self->p));
	copy_anew(&self->p);
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_MAPPING));
	EXPECT_EQ(STOPS, stops_that_missed(&self->p));
}

/* A write counts for its native page, and for nothing else. */
TEST_F(rows, one_page_each)
{
	struct godwit_harvest h;

	if (!self->p.map)
		return;
	rows_on(1 << GODWIT_ROW_MAPPING);
	* (volatile uint64_t *)(self->p.map + 3 * PAGE) = 7;
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_EQ(self->p.page / PAGE, h.pages[GODWIT_ROW_MAPPING]));
	PROOF(EXPECT_EQ(self->p.page / PAGE, bits_count(&self->p.s.ram[0])));
	PROOF(EXPECT_TRUE(bit_set(&self->p.s.ram[0], 3)));
	memset(self->p.s.ram[0].words, 0, self->p.s.ram[0].bytes);
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_EQ(0, bits_count(&self->p.s.ram[0])));
	/* What has been stored where nothing can be stored now, by whichever row (kmod/Kbuild). */
	rows_on(ALL_ROWS);
	*(volatile uint64_t *)(self->p.map + 3 * PAGE) = 8;
	require(!mprotect(self->p.map, self->p.bytes, PROT_NONE), "PROT_NONE");
	ASSERT_EQ(0, session_harvest(&self->p.s, &h));
	PROOF(EXPECT_TRUE(bit_set(&self->p.s.ram[0], 3)));
	require(!mprotect(self->p.map, self->p.bytes, PROT_READ | PROT_WRITE), "PROT_WRITE");
}

TEST_F(rows, vcpu)
{
	if (!self->p.map)
		return;
	rows_on(1 << GODWIT_ROW_VCPU);
	vcpu_batch(&self->p.vm, 0, 1, 1, 300);
	priv_round(&self->p, true);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
	rows_on(ALL_ROWS);
	vcpu_batch(&self->p.vm, 0, 2, 1000, 300);
	priv_round(&self->p, true);
	PROOF(EXPECT_EQ(0, priv_differs(&self->p)));
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_VCPU));
	vcpu_batch(&self->p.vm, 0, 3, 2000, 300);
	priv_round(&self->p, false);
	EXPECT_NE(0, priv_differs(&self->p));
}

/* Requests of many lengths, at many places, some within a page; 102 pages in all. */
static void read_some(int fd, uint8_t *map)
{
	static const struct { uint64_t at, bytes;
	} reads[] = {
		{ 0, 512 },	   { 4096, 4096 },	 { 3 * 4096 + 1024, 9 * 512 },
		{ 65536, 131072 }, { 1 << 20, 1 << 18 }, { (3 << 19) + 512, 4096 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(reads); i++)
		require(pread(fd, map + reads[i].at, reads[i].bytes, reads[i].at) ==
				(ssize_t)reads[i].bytes,
			"read from a block device");
}

static void block_alone(struct __test_metadata *_metadata, struct priv *p, int which)
{
	int fd = blockdev_open(&blockdevs[which]);
	struct godwit_harvest h;

	ASSERT_LE(0, fd) {
		TH_LOG("no %s: %s", blockdevs[which].name, strerror(-fd));
	}
	rows_on(1 << GODWIT_ROW_BLOCK);
	read_some(fd, p->map);
	require(!session_harvest(&p->s, &h), "a harvest");
	PROOF(EXPECT_EQ(102, h.pages[GODWIT_ROW_BLOCK]));
	PROOF(EXPECT_EQ(102, bits_count(&p->s.ram[0])));
	priv_round(p, false);
	PROOF(EXPECT_EQ(0, priv_differs(p)));
	close(fd);
}

/* All that the reads have written is written over, and clean. */
static void write_over(struct priv *p)
{
	rows_on(ALL_ROWS);
	memset(p->map, 0x5a, WINDOW);
	priv_round(p, true);
	bits_forget(&p->s.ram[0]);	/* behind the window */
}

TEST_F(rows, block)
{
	int fd;

	if (!self->p.map)
		return;
	block_alone(_metadata, &self->p, DEV_NULL_BLK);
	write_over(&self->p);
	block_alone(_metadata, &self->p, DEV_BRD);
	write_over(&self->p);
	fd = blockdev_open(&blockdevs[DEV_NULL_BLK]);
	ASSERT_LE(0, fd);
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_BLOCK));
	read_some(fd, self->p.map);
	priv_round(&self->p, false);
	EXPECT_NE(0, priv_differs(&self->p));
	close(fd);
}

/*
 * A VMA gets its anon_vma with its first page, which may be one that a device reads into: no
 * harvest has published the anon_vma when the read ends, but then the bit of the fault is still to
 * come.
 */
TEST(first_page_by_a_device)
{
	struct priv p;
	int fd;

	ASSERT_EQ(0, priv_map(&p, PRIV_4K, WINDOW));
	priv_begin(&p, 1, WINDOW);
	fd = blockdev_open(&blockdevs[DEV_NULL_BLK]);
	ASSERT_LE(0, fd);
	read_some(fd, p.map);
	priv_round(&p, true);
	PROOF(EXPECT_EQ(0, priv_differs(&p)));
	/* By now the pages are there, clean, and published. */
	write_over(&p);
	read_some(fd, p.map);
	priv_round(&p, false);
	PROOF(EXPECT_EQ(0, priv_differs(&p)));
	close(fd);
	priv_end(&p);
}

/* Two RAMs in one transparent huge page, which has one dirty bit for both. */
TEST(a_huge_page_of_two)
{
	struct priv p;
	uint64_t half = WINDOW / 2 - MIB;

	ASSERT_EQ(0, priv_map(&p, PRIV_THP, WINDOW));
	memset(p.map, 1, WINDOW);
	vm_create(&p.vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&p.vm, 1, 0, RAM_GPA, WINDOW, p.map));
	session_open(&p.s);
	ASSERT_EQ(0, session_attach(&p.s, p.vm.fd));
	ASSERT_EQ(0, session_add_private(&p.s, p.map, half));
	ASSERT_EQ(1, session_add_private(&p.s, p.map + half, WINDOW - half));
	ASSERT_EQ(0, session_start(&p.s));
	session_settle(&p.s);
	rows_on(1 << GODWIT_ROW_MAPPING);
	* (volatile uint8_t *)(p.map + half - PAGE) = 2;
	* (volatile uint8_t *)(p.map + half) = 2;
	ASSERT_EQ(0, session_harvest(&p.s, NULL));
	PROOF(EXPECT_TRUE(bit_set(&p.s.ram[0], half / PAGE - 1)));
	PROOF(EXPECT_TRUE(bit_set(&p.s.ram[1], 0)));
	rows_on(ALL_ROWS);
	session_close(&p.s);
	vm_destroy(&p.vm);
}

KST_MAIN
