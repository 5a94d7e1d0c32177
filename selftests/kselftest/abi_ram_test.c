// SPDX-License-Identifier: GPL-2.0-only
/* ADD_RAM, NEXT_DATA, and the mapping of the bitmaps. */
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/ioctl.h>

#include "kst.h"

#define WINDOW		(1ULL << 40)	/* between two bitmaps, in offsets of the session's file */

FIXTURE(ram) {
	struct session s;
};

FIXTURE_SETUP(ram)
{
	session_open(&self->s);
}

FIXTURE_TEARDOWN(ram)
{
	session_close(&self->s);
}

TEST_F(ram, answers)
{
	static const struct {
		unsigned int flags;
		uint64_t bytes;
		unsigned int page_shift;
	} files[] = {
		{ 0, PAGE, 12 }, { 0, 129 * MIB, 12 }, { MFD_HUGETLB | MFD_HUGE_2MB, 4 * MIB, 21 },
		{ MFD_HUGETLB | MFD_HUGE_1GB, 1024 * MIB, 30 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		struct godwit_add_ram a = {
			.fd = sized_memfd(files[i].bytes, files[i].flags), .npages = files[i].bytes / PAGE,
		};

		ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_ADD_RAM, &a));
		EXPECT_EQ(i, a.index);
		EXPECT_EQ(files[i].page_shift, a.page_shift);
		EXPECT_EQ(files[i].bytes / PAGE, a.npages);
		EXPECT_EQ(i * WINDOW, a.map_offset);
		EXPECT_EQ((files[i].bytes / PAGE + 8 * PAGE - 1) / (8 * PAGE) * PAGE, a.map_bytes);
		close(a.fd);	/* the session has its own reference */
	}
}

TEST_F(ram, refused)
{
	int fd = sized_memfd(PAGE, 0), pipes[2];

	ASSERT_EQ(0, pipe(pipes));
	EXPECT_EQ(-EBADF, session_add_ram(&self->s, -1));
	EXPECT_EQ(-EMEDIUMTYPE, session_add_ram(&self->s, pipes[0]));
	EXPECT_EQ(-EMEDIUMTYPE, session_add_ram(&self->s, self->s.fd));
	EXPECT_EQ(-EMEDIUMTYPE, session_add_ram(&self->s, open("/proc/version", O_RDONLY)));
	EXPECT_EQ(-EMEDIUMTYPE, session_add_ram(&self->s, open("/dev", O_RDONLY | O_DIRECTORY)));
	EXPECT_EQ(-EINVAL, session_add_ram(&self->s, sized_memfd(0, 0)));
	EXPECT_EQ(-EINVAL, session_add_ram(&self->s, sized_memfd(PAGE - 1, 0)));
	ASSERT_EQ(0, session_add_ram(&self->s, fd));
	EXPECT_EQ(-EEXIST, session_add_ram(&self->s, fd));
	EXPECT_EQ(-EEXIST, session_add_ram(&self->s, dup(fd)));
}

/* A VMM that makes its file long does not make the kernel keep bits for it. */
TEST_F(ram, no_more_than_was_named)
{
	struct godwit_add_ram a = { .fd = sized_memfd(64ULL << 40, 0), .npages = MIB / PAGE };
	uint8_t *at = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
	struct vm vm;

	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(-ERANGE, session_add_pages(&self->s, sized_memfd(PAGE, 0), 2));
	EXPECT_EQ(-ERANGE, session_add_pages(&self->s, sized_memfd(PAGE, 0), UINT64_MAX));
	EXPECT_EQ(-EINVAL, session_add_pages(&self->s, sized_memfd(PAGE, 0), 0));
	vm_create(&vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, 2 * MIB, at));
	ASSERT_EQ(0, session_attach(&self->s, vm.fd));
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_ADD_RAM, &a));
	EXPECT_EQ(MIB / PAGE, a.npages);
	EXPECT_EQ(PAGE, a.map_bytes);
	/* The guest sees more than that. */
	EXPECT_EQ(-EFBIG, session_start(&self->s));
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, MIB, at));
	EXPECT_EQ(0, session_start(&self->s));
	EXPECT_EQ(0, session_harvest(&self->s, NULL));
	munmap(at, 2 * MIB);
	vm_destroy(&vm);
}

struct addition {
	struct session *s;
	int fd;
};

static int has_no_room(void *arg)
{
	struct addition *a = arg;

	/* All that a refusal touches is there: a page fault with no room left would end this process. */
	if (session_add_pages(a->s, a->fd, 0) != -EINVAL)
		return 2;
	return session_add_ram(a->s, a->fd) != -ENOMEM;
}

/*
 * Bitmaps are charged to the helper: for 128 MiB each there is no room. In a process of its own, which asks
 * for nothing more: what was given back may be charged for a moment still.
 */
TEST_F(ram, bitmaps_are_charged)
{
	struct addition a = { &self->s, sized_memfd(4ULL << 40, 0) };
	int status = run_charged("67108864", has_no_room, &a);

	close(a.fd);
	if (status < 0)
		SKIP(return, "no memory controller");
	PROOF(EXPECT_EQ(0, status));
	EXPECT_EQ(0, session_add_ram(&self->s, sized_memfd(MIB, 0)));
}

TEST_F(ram, at_most_64)
{
	unsigned int i;

	for (i = 0; i <= GODWIT_RAM_MAX; i++) {
		struct godwit_add_ram a = { .fd = sized_memfd(PAGE, 0), .npages = 1 };
		int r = ioctl(self->s.fd, GODWIT_ADD_RAM, &a) ? -errno : (int)a.index;

		EXPECT_EQ(i < GODWIT_RAM_MAX ? (int)i : -ENOSPC, r);
	}
}

/* Native pages 1, 2 and 5 of 8 are there. */
TEST_F(ram, next_data_on_hugetlbfs)
{
	uint64_t at, len, huge = 2 * MIB / PAGE;
	struct ram ram;

	ASSERT_EQ(0, ram_create(&ram, RAM_2M, 16 * MIB));
	ASSERT_EQ(0, session_add_ram(&self->s, ram.fd));
	PROOF(EXPECT_EQ(-ENXIO, session_next_data(&self->s, 0, 0, 8 * huge, &at, &len)));
	ram.map[2 * MIB] = 1;
	ram.map[4 * MIB] = 1;
	ram.map[10 * MIB] = 1;
	PROOF(ASSERT_EQ(0, session_next_data(&self->s, 0, 0, 8 * huge, &at, &len)));
	PROOF(EXPECT_EQ(huge, at));
	PROOF(EXPECT_EQ(2 * huge, len));
	PROOF(ASSERT_EQ(0, session_next_data(&self->s, 0, 3 * huge, 5 * huge, &at, &len)));
	PROOF(EXPECT_EQ(5 * huge, at));
	PROOF(EXPECT_EQ(huge, len));
	/* Ends and begins within native pages. */
	PROOF(ASSERT_EQ(0, session_next_data(&self->s, 0, huge + 7, huge, &at, &len)));
	PROOF(EXPECT_EQ(huge + 7, at));
	PROOF(EXPECT_EQ(huge, len));
	PROOF(ASSERT_EQ(0, session_next_data(&self->s, 0, 0, huge + 1, &at, &len)));
	PROOF(EXPECT_EQ(huge, at));
	PROOF(EXPECT_EQ(1, len));
	PROOF(EXPECT_EQ(-ENXIO, session_next_data(&self->s, 0, 0, huge, &at, &len)));
	PROOF(EXPECT_EQ(-ENXIO, session_next_data(&self->s, 0, 6 * huge, 2 * huge, &at, &len)));
	PROOF(EXPECT_EQ(-ENXIO, session_next_data(&self->s, 0, huge, 0, &at, &len)));
	EXPECT_EQ(-EINVAL, session_next_data(&self->s, 0, 0, 8 * huge + 1, &at, &len));
	EXPECT_EQ(-EINVAL, session_next_data(&self->s, 0, 1, UINT64_MAX, &at, &len));
	ram_destroy(&ram);
}

TEST_F(ram, next_data_on_tmpfs)
{
	uint64_t at, len;

	ASSERT_EQ(0, session_add_ram(&self->s, sized_memfd(PAGE, 0)));
	EXPECT_EQ(-EOPNOTSUPP, session_next_data(&self->s, 0, 0, 1, &at, &len));
}

/* More pages than an int counts: 9 TiB, of which a VM shows the last MiB. */
TEST_F(ram, more_than_8_tib)
{
	uint64_t bytes = 9ULL << 40, page = (bytes - MIB) / PAGE;
	uint64_t at[] = { 0, 1ULL << 30, (1ULL << 31) - 1, 1ULL << 31, page, bytes / PAGE - 1 };
	int fd = sized_memfd(bytes, 0);
	uint8_t *end = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bytes - MIB);
	struct bitmap *b = &self->s.ram[0];
	struct vm vm;
	unsigned int i;

	ASSERT_NE(MAP_FAILED, end);
	vm_create(&vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, MIB, end));
	ASSERT_EQ(0, session_attach(&self->s, vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->s, fd));
	ASSERT_EQ(0, session_start(&self->s));
	for (i = 0; i < ARRAY_SIZE(at); i++)
		PROOF(EXPECT_TRUE(bit_set(b, at[i])));
	memset(b->words + page / 64, 0, MIB / PAGE / 8);
	ASSERT_EQ(0, session_clear(&self->s, 0, page, MIB / PAGE));
	*(volatile uint8_t *)(end + 5 * PAGE) = 1;
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_TRUE(bit_set(b, page + 5)));
	munmap(end, MIB);
	close(fd);
	vm_destroy(&vm);
}

/* 129 MiB: a bitmap of 4128 bytes, two pages. */
FIXTURE(map) {
	struct session s;
	uint64_t bytes;
};

FIXTURE_SETUP(map)
{
	struct godwit_add_ram a = { .fd = sized_memfd(129 * MIB, 0), .npages = 129 * MIB / PAGE };

	session_open(&self->s);
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_ADD_RAM, &a));
	self->bytes = a.map_bytes;
	ASSERT_EQ(2 * PAGE, self->bytes);
}

FIXTURE_TEARDOWN(map)
{
	close(self->s.fd);
}

/* 0 or -errno */
static int try_mmap(int fd, uint64_t bytes, int prot, int flags, uint64_t offset)
{
	void *at = mmap(NULL, bytes, prot, flags, fd, offset);

	if (at == MAP_FAILED)
		return -errno;
	munmap(at, bytes);
	return 0;
}

#define RW	(PROT_READ | PROT_WRITE)

TEST_F(map, lengths_and_offsets)
{
	EXPECT_EQ(0, try_mmap(self->s.fd, self->bytes, RW, MAP_SHARED, 0));
	EXPECT_EQ(0, try_mmap(self->s.fd, self->bytes, PROT_READ, MAP_SHARED, 0));
	EXPECT_EQ(0, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, self->bytes + 1, RW, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, self->bytes + PAGE, RW, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, WINDOW, RW, MAP_SHARED, 0));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, PAGE));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, WINDOW - PAGE));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, WINDOW));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, (GODWIT_RAM_MAX - 1) * WINDOW));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, GODWIT_RAM_MAX * WINDOW));
	EXPECT_NE(0, try_mmap(self->s.fd, PAGE, RW, MAP_SHARED, 1ULL << 62));
}

TEST_F(map, private)
{
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, self->bytes, RW, MAP_PRIVATE, 0));
	EXPECT_EQ(-EINVAL, try_mmap(self->s.fd, self->bytes, PROT_READ, MAP_PRIVATE, 0));
}

/* The bitmap is for a helper that clears bits: a descriptor that cannot write is not enough to map it at all. */
TEST_F(map, read_only_descriptor)
{
	int fd = open("/dev/godwit", O_RDONLY | O_CLOEXEC);
	struct godwit_add_ram a = { .fd = sized_memfd(PAGE, 0), .npages = 1 };

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, ioctl(fd, GODWIT_ADD_RAM, &a));
	EXPECT_EQ(-EINVAL, try_mmap(fd, PAGE, PROT_READ, MAP_SHARED, 0));
	EXPECT_EQ(-EACCES, try_mmap(fd, PAGE, RW, MAP_SHARED, 0));
	close(fd);
}

TEST_F(map, does_not_grow)
{
	void *at = mmap(NULL, self->bytes, RW, MAP_SHARED, self->s.fd, 0);

	ASSERT_NE(MAP_FAILED, at);
	EXPECT_EQ(MAP_FAILED, mremap(at, self->bytes, 2 * self->bytes, MREMAP_MAYMOVE));
	munmap(at, self->bytes);
}

/* What is mapped is the bitmap and nothing behind it: it begins with zeros. */
TEST_F(map, begins_empty)
{
	const uint64_t *words = mmap(NULL, self->bytes, PROT_READ, MAP_SHARED, self->s.fd, 0);
	uint64_t i;

	ASSERT_NE(MAP_FAILED, words);
	for (i = 0; i < self->bytes / sizeof(*words); i++)
		PROOF(EXPECT_EQ(0, words[i]));
}

/* A mapping keeps the session, hence the module. */
TEST_F(map, outlives_the_descriptor)
{
	uint64_t *words = mmap(NULL, self->bytes, RW, MAP_SHARED, self->s.fd, 0);

	ASSERT_NE(MAP_FAILED, words);
	close(self->s.fd);
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	words[0] = 1;
	munmap(words, self->bytes);
	PROOF(EXPECT_EQ(0, module_unload_within(2000)));
	EXPECT_EQ(0, module_load());
	session_open(&self->s);
}

KST_MAIN
