// SPDX-License-Identifier: GPL-2.0-only
/* GODWIT_NEXT_PINNED: pages that another process has pinned, here as fixed buffers of an io_uring, and no others. */
#include <linux/io_uring.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "kst.h"
#include "ram_kinds.h"

#define FIRST	(2 * MIB / PAGE + 3)	/* two pages from here on, and one more after a gap */
#define AGAIN	(FIRST + 5)

FIXTURE(pinned) {
	struct rig rig;
};

EACH_RAM_KIND(pinned);

/* A device that has guest RAM for DMA: step 1 registers, step 2 gives up. */
static void pin(struct rig *rig, unsigned int step)
{
	static int ring = -1;
	struct io_uring_params params = { 0 };
	struct iovec buffers[] = {
		{ rig->ram.map + FIRST * PAGE, 2 * PAGE }, { rig->ram.map + AGAIN * PAGE, PAGE },
	};

	if (step == 1) {
		ring = syscall(SYS_io_uring_setup, 1, &params);
		require(ring >= 0, "io_uring_setup");
		require(!syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, buffers, 2), "fixed buffers");
	} else {
		require(!syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0), "no fixed buffers");
	}
}

/* All pages but the very last native one are there. */
FIXTURE_SETUP(pinned)
{
	uint64_t at;

	ASSERT_RIG_RAM(&self->rig);
	for (at = 0; at < variant->bytes - PAGE; at += self->rig.ram.page)
		self->rig.ram.map[at] = 1;
	rig_writer(&self->rig, pin);
	rig_begin(&self->rig, 3, 4 * MIB);
}

FIXTURE_TEARDOWN(pinned)
{
	if (self->rig.ram.map)
		rig_end(&self->rig);
}

static int next_pinned(struct rig *rig, uint64_t first, uint64_t npages, uint64_t *at, uint64_t *len)
{
	struct godwit_range a = { .first_page = first, .npages = npages };
	int r = ioctl(rig->s.fd, GODWIT_NEXT_PINNED, &a) ? -errno : 0;

	*at = a.first_page;
	*len = a.npages;
	return r;
}

/* What is to be found from a page on that is pinned, of all native pages that the buffers are in. */
static void expect_found(struct _test_data_pinned *self, struct __test_metadata *_metadata)
{
	struct rig *rig = &self->rig;
	uint64_t native = rig->ram.page / PAGE, pages = rig->ram.bytes / PAGE;
	uint64_t first = FIRST / native * native, len = native == 1 ? 2 : native, at, n;

	PROOF(ASSERT_EQ(0, next_pinned(rig, 0, pages, &at, &n)));
	PROOF(EXPECT_EQ(first, at));
	PROOF(EXPECT_EQ(len, n));
	/* A range that begins, or ends, within it. */
	PROOF(ASSERT_EQ(0, next_pinned(rig, FIRST + 1, pages - FIRST - 1, &at, &n)));
	PROOF(EXPECT_EQ(FIRST + 1, at));
	PROOF(EXPECT_EQ(first + len - FIRST - 1, n));
	PROOF(ASSERT_EQ(0, next_pinned(rig, 0, FIRST + 1, &at, &n)));
	PROOF(EXPECT_EQ(first, at));
	PROOF(EXPECT_EQ(FIRST + 1 - first, n));
	if (first)
		PROOF(EXPECT_EQ(-ENXIO, next_pinned(rig, 0, first, &at, &n)));
	PROOF(EXPECT_EQ(-ENXIO, next_pinned(rig, FIRST, 0, &at, &n)));
	if (native > 1)
		return;
	PROOF(ASSERT_EQ(0, next_pinned(rig, FIRST + 2, pages - FIRST - 2, &at, &n)));
	PROOF(EXPECT_EQ(AGAIN, at));
	PROOF(EXPECT_EQ(1, n));
	PROOF(EXPECT_EQ(-ENXIO, next_pinned(rig, AGAIN + 1, pages - AGAIN - 1, &at, &n)));
}

TEST_F(pinned, exactly_these)
{
	uint64_t pages = variant->bytes / PAGE, at, n, end;

	if (!self->rig.ram.map)
		return;
	PROOF(EXPECT_EQ(-ENXIO, next_pinned(&self->rig, 0, pages, &at, &n)));
	writer_step_wait(&self->rig.writer);
	expect_found(self, _metadata);
	writer_step_wait(&self->rig.writer);
	/* The kernel may give them back a moment later. */
	for (end = now_ms() + 5000; !next_pinned(&self->rig, 0, pages, &at, &n) && now_ms() < end; )
		sleep_ms(1);
	PROOF(EXPECT_EQ(-ENXIO, next_pinned(&self->rig, 0, pages, &at, &n)));
}

TEST_F(pinned, wrong_arguments)
{
	uint64_t pages = variant->bytes / PAGE, at, n;

	if (!self->rig.ram.map)
		return;
	EXPECT_EQ(-EINVAL, next_pinned(&self->rig, 0, pages + 1, &at, &n));
	EXPECT_EQ(-EINVAL, next_pinned(&self->rig, 1, UINT64_MAX, &at, &n));
	EXPECT_EQ(-EINVAL, next_pinned(&self->rig, pages + 1, 0, &at, &n));
	EXPECT_EQ(-ENXIO, next_pinned(&self->rig, pages, 0, &at, &n));
}

#define MANY	(256 * MIB)

/*
 * What a look at all pages costs where each is one of 4 KiB, and what lseek() takes to find the end of
 * them: said, and no more, as it depends on the machine.
 */
TEST(cost)
{
	uint64_t at, n, pages = MANY / PAGE, ns[3];
	struct rig rig;

	ASSERT_EQ(0, rig_ram(&rig, RAM_TMPFS, MANY));
	for (at = 0; at < MANY; at += PAGE)
		rig.ram.map[at] = 1;
	rig_begin(&rig, 3, 4 * MIB);
	ns[0] = now_ns();
	PROOF(EXPECT_EQ(-ENXIO, next_pinned(&rig, 0, pages, &at, &n)));
	ns[1] = now_ns();
	EXPECT_EQ(MANY, (uint64_t)lseek(rig.ram.fd, 0, SEEK_HOLE));
	ns[2] = now_ns();
	TH_LOG("%llu ns a page, SEEK_HOLE %llu", (unsigned long long)((ns[1] - ns[0]) / pages),
	       (unsigned long long)((ns[2] - ns[1]) / pages));
	rig_end(&rig);
}

KST_MAIN
