// SPDX-License-Identifier: GPL-2.0-only
/* Private RAM: what NEXT_DATA and NEXT_PINNED find in it. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kst.h"
#include "priv.h"
#include "private_fixture.h"

#define BYTES		(4 * MIB)
#define PAGES		(BYTES / PAGE)

#define EXPECT_DATA(first, npages, want_at, want_len)                                            \
	do {                                                                                     \
		uint64_t at_, len_;                                                              \
		PROOF(ASSERT_EQ(0, session_next_data(&self->s, 0, first, npages, &at_, &len_))); \
		PROOF(EXPECT_EQ(want_at, at_));                                                  \
		PROOF(EXPECT_EQ(want_len, len_));                                                \
	} while (0)
#define EXPECT_HOLE(first, npages)                                                            \
	do {                                                                                  \
		uint64_t at_, len_;                                                           \
		PROOF(EXPECT_EQ(-ENXIO,                                                       \
				session_next_data(&self->s, 0, first, npages, &at_, &len_))); \
	} while (0)

TEST_F(private, next_data)
{
	struct priv p;
	uint64_t at, len;

	ASSERT_EQ(0, priv_map(&p, PRIV_4K, BYTES));
	ASSERT_EQ(0, session_add_private(&self->s, p.map, BYTES));
	EXPECT_HOLE(0, PAGES);
	p.map[7 * PAGE] = p.map[8 * PAGE] = p.map[700 * PAGE] = 1;
	EXPECT_DATA(0, PAGES, 7, 2);
	EXPECT_DATA(8, PAGES - 8, 8, 1);
	EXPECT_DATA(0, 8, 7, 1);
	EXPECT_DATA(9, PAGES - 9, 700, 1);
	EXPECT_HOLE(9, 691);
	EXPECT_HOLE(701, PAGES - 701);
	EXPECT_HOLE(7, 0);
	/* What was only read is not there. */
	require(!*(volatile uint8_t *)(p.map + 20 * PAGE), "a zero page");
	EXPECT_HOLE(9, 691);
	/* A page that was given back, and one that is in swap. */
	require(!madvise(p.map + 7 * PAGE, PAGE, MADV_DONTNEED), "MADV_DONTNEED");
	EXPECT_DATA(0, PAGES, 8, 1);
	swap_on();
	require(!madvise(p.map, BYTES, MADV_PAGEOUT), "MADV_PAGEOUT");
	EXPECT_DATA(0, PAGES, 8, 1);
	EXPECT_DATA(9, PAGES - 9, 700, 1);
	p.map[8 * PAGE] = 2;
	EXPECT_DATA(0, PAGES, 8, 1);
	swap_off();
	EXPECT_EQ(-EINVAL, session_next_data(&self->s, 0, 0, PAGES + 1, &at, &len));
	EXPECT_EQ(-EINVAL, session_next_data(&self->s, 0, 1, UINT64_MAX, &at, &len));
}

TEST_F(private, next_data_thp)
{
	struct priv p;

	ASSERT_EQ(0, priv_map(&p, PRIV_THP, BYTES));
	ASSERT_EQ(0, session_add_private(&self->s, p.map + 4 * PAGE, BYTES - 4 * PAGE));
	/* The huge zero page, or many small ones. */
	require(!*(volatile uint8_t *)(p.map + 20 * PAGE), "a zero page");
	EXPECT_HOLE(0, PAGES - 4);
	p.map[BYTES - PAGE] = 1;
	EXPECT_DATA(0, PAGES - 4, 512 - 4, 512);
	EXPECT_DATA(600, 100, 600, 100);
	require(!madvise(p.map + BYTES / 2, PAGE, MADV_DONTNEED), "MADV_DONTNEED");
	EXPECT_DATA(0, PAGES - 4, 513 - 4, 511);
}

TEST_F(private, next_data_hugetlbfs)
{
	struct priv p;

	ASSERT_EQ(0, priv_map(&p, PRIV_2M, 4 * BYTES));
	ASSERT_EQ(0, session_add_private(&self->s, p.map, 4 * BYTES));
	EXPECT_HOLE(0, 4 * PAGES);
	p.map[5 * MIB] = p.map[6 * MIB] = 1;
	EXPECT_DATA(0, 4 * PAGES, 1024, 1024);
	EXPECT_DATA(1100, 4 * PAGES - 1100, 1100, 2048 - 1100);
	EXPECT_HOLE(2048, 4 * PAGES - 2048);
}

/* Pages 0, 2, 4 ... are in the file. */
TEST_F(private, next_data_file)
{
	struct priv p;

	ASSERT_EQ(0, priv_map(&p, PRIV_FILE, BYTES));
	ASSERT_EQ(0, session_add_private(&self->s, p.map, BYTES));
	EXPECT_DATA(0, PAGES, 0, 1);
	EXPECT_DATA(1, PAGES - 1, 2, 1);
	p.map[PAGE] = 1;
	EXPECT_DATA(1, PAGES - 1, 1, 1);
	EXPECT_DATA(3, PAGES - 3, 4, 1);
	require(*(volatile uint8_t *)(p.map + 4 * PAGE + 1) == (4 * PAGE) >> 8, "the file's page");
	EXPECT_DATA(3, PAGES - 3, 4, 1);
	EXPECT_HOLE(3, 1);
}

/* Two stretches of mmap_lock's, and a mapping that ends within one. */
TEST_F(private, next_data_far)
{
	uint64_t gib = 1UL << 30, pages = 3 * gib / PAGE;
	uint8_t *at = priv_mmap(3 * gib, MAP_PRIVATE | MAP_NORESERVE, -1);

	require(!madvise(at, 3 * gib, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	ASSERT_EQ(0, session_add_private(&self->s, at, 3 * gib));
	EXPECT_HOLE(0, pages);
	at[3 * gib - PAGE] = 1;
	EXPECT_DATA(0, pages, pages - 1, 1);
	require(!munmap(at + MIB, 2 * gib), "munmap");
	EXPECT_DATA(0, pages, pages - 1, 1);
}

TEST_F(private, next_pinned)
{
	struct io_uring_params params = { 0 };
	struct godwit_range a = { .npages = PAGES };
	int ring = syscall(SYS_io_uring_setup, 1, &params);
	struct priv p;

	require(ring >= 0, "io_uring_setup");
	ASSERT_EQ(0, priv_map(&p, PRIV_4K, BYTES));
	memset(p.map, 1, BYTES);
	ASSERT_EQ(0, session_add_private(&self->s, p.map, BYTES));
	EXPECT_EQ(-1, ioctl(self->s.fd, GODWIT_NEXT_PINNED, &a));
	EXPECT_EQ(ENXIO, errno);
	require(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS,
			 (struct iovec[]){ { p.map + 9 * PAGE, 2 * PAGE } }, 1), "fixed buffers");
	PROOF(ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_NEXT_PINNED, &a)));
	PROOF(EXPECT_EQ(9, a.first_page));
	PROOF(EXPECT_EQ(2, a.npages));
	close(ring);
}

KST_MAIN
