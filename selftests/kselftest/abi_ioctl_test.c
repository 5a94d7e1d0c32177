// SPDX-License-Identifier: GPL-2.0-only
/* The ioctls' binary interface, and every call with every argument wrong once, in every state. */
#include <assert.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "kst.h"

#define PAGES	256UL

static_assert(sizeof(struct godwit_attach) == 24, "ABI");
static_assert(sizeof(struct godwit_add_ram) == 40, "ABI");
static_assert(sizeof(struct godwit_start) == 8, "ABI");
static_assert(sizeof(struct godwit_harvest) == 64, "ABI");
static_assert(sizeof(struct godwit_range) == 24, "ABI");
static_assert(sizeof(struct godwit_keep) == 24, "ABI");
static_assert(sizeof(struct godwit_uffd) == 16, "ABI");
static_assert(offsetof(struct godwit_add_ram, npages) == 16, "ABI");
static_assert(offsetof(struct godwit_harvest, pages) == 16, "ABI");
static_assert(offsetof(struct godwit_range, npages) == 16, "ABI");
static_assert(GODWIT_ROW_CHANGE == 4 && GODWIT_ROWS == 5, "ABI");

FIXTURE(ioctl) {
	struct vm vm;
	struct ram ram;
	struct session s;
};

FIXTURE_SETUP(ioctl)
{
	vm_create(&self->vm, 1, 3);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, PAGES * PAGE, self->ram.map));
	session_open(&self->s);
}

FIXTURE_TEARDOWN(ioctl)
{
	session_close(&self->s);
	ram_destroy(&self->ram);
	vm_destroy(&self->vm);
}

static void started(struct _test_data_ioctl *self)
{
	require(!session_attach(&self->s, self->vm.fd), "GODWIT_ATTACH");
	require(!session_add_ram(&self->s, self->ram.fd), "GODWIT_ADD_RAM");
	require(!session_start(&self->s), "GODWIT_START");
}

static int call(int fd, unsigned long cmd, const void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

static const struct {
	unsigned long cmd, number;
} calls[] = {
	{ GODWIT_ATTACH, 0xc018b701 }, { GODWIT_ADD_RAM, 0xc028b702 }, { GODWIT_START, 0xc008b703 },
	{ GODWIT_HARVEST, 0xc040b704 }, { GODWIT_CLEAR, 0x4018b705 }, { GODWIT_NEXT_DATA, 0xc018b706 },
	{ GODWIT_MAPPERS, 0xc018b707 }, { GODWIT_NEXT_PINNED, 0xc018b708 },
	{ GODWIT_KEEP, 0xc018b709 }, { GODWIT_UFFD, 0xc010b70a },
};

TEST_F(ioctl, numbers)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		EXPECT_EQ(calls[i].number, calls[i].cmd);
	EXPECT_EQ(0xb70b, GODWIT_KEEP_END);
}

TEST_F(ioctl, unknown)
{
	char arg[256] = { 0 };
	unsigned int i;

	EXPECT_EQ(-ENOTTY, call(self->s.fd, 0, arg));
	EXPECT_EQ(-ENOTTY, call(self->s.fd, _IOWR(GODWIT_IOC_MAGIC, 0, char[24]), arg));
	EXPECT_EQ(-ENOTTY, call(self->s.fd, _IOWR(GODWIT_IOC_MAGIC, 0xff, char[24]), arg));
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		EXPECT_EQ(-ENOTTY, call(self->s.fd, calls[i].cmd ^ 0x100, arg));	/* another magic */
		EXPECT_EQ(-ENOTTY, call(self->s.fd, calls[i].cmd + (8 << 16), arg));	/* another size */
		EXPECT_EQ(-ENOTTY, call(self->s.fd, calls[i].cmd ^ 1UL << 31, arg));	/* another direction */
	}
}

TEST_F(ioctl, bad_pointers)
{
	char *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned int i;

	ASSERT_NE(MAP_FAILED, two);
	ASSERT_EQ(0, mprotect(two + PAGE, PAGE, PROT_NONE));
	started(self);
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		EXPECT_EQ(-EFAULT, call(self->s.fd, calls[i].cmd, NULL));
		EXPECT_EQ(-EFAULT, call(self->s.fd, calls[i].cmd, (void *)0xffffffff81000000UL));
		EXPECT_EQ(-EFAULT, call(self->s.fd, calls[i].cmd, (void *)(1UL << 63)));
		EXPECT_EQ(-EFAULT, call(self->s.fd, calls[i].cmd, two + PAGE - 4));
	}
	EXPECT_EQ(0, session_harvest(&self->s, NULL));
}

/* The call is done, its answer has nowhere to go. */
TEST_F(ioctl, answer_to_read_only_memory)
{
	struct godwit_harvest *h = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ASSERT_NE(MAP_FAILED, h);
	started(self);
	bits_forget(&self->s.ram[0]);
	EXPECT_EQ(-EFAULT, call(self->s.fd, GODWIT_HARVEST, h));
	PROOF(EXPECT_EQ(PAGES, bits_count(&self->s.ram[0])));
}

TEST_F(ioctl, unknown_flags)
{
	unsigned int bit;

	started(self);
	for (bit = 0; bit < 32; bit++) {
		struct godwit_add_ram add = { .fd = self->ram.fd, .flags = 1U << bit };
		struct godwit_start start = { .flags = 1U << bit };
		struct godwit_harvest harvest = { .flags = 1U << bit };
		struct godwit_range range = { .flags = 1U << bit };

		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_ADD_RAM, &add));
		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_START, &start));
		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_CLEAR, &range));
		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_NEXT_DATA, &range));
		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_NEXT_PINNED, &range));
		EXPECT_EQ(-EINVAL, call(self->s.fd, GODWIT_HARVEST, &harvest));
	}
}

/**
 * struct stuck - a write to a file that waits for the page that it writes, with the file's lock held
 * @uffd: ends it when it is closed
 */
struct stuck {
	pthread_t thread;
	int fd, uffd;
	void *page;
};

static void *write_withheld(void *arg)
{
	struct stuck *st = arg;

	require(pwrite(st->fd, st->page, PAGE, 0) == PAGE, "write");
	return NULL;
}

static void begin_stuck(struct stuck *st, int fd)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .range.len = PAGE, .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffd_msg msg;

	st->fd = fd;
	st->page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area.range.start = (uintptr_t)st->page;
	st->uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	require(st->uffd >= 0 && !ioctl(st->uffd, UFFDIO_API, &api) && !ioctl(st->uffd, UFFDIO_REGISTER, &area), "userfaultfd");
	pthread_create(&st->thread, NULL, write_withheld, st);
	require(read(st->uffd, &msg, sizeof(msg)) == sizeof(msg), "a fault");
}

static void end_stuck(struct stuck *st)
{
	close(st->uffd);
	pthread_join(st->thread, NULL);
	munmap(st->page, PAGE);
}

/* It could be a hole that is being punched. START does not wait for ever, and can be called again. */
TEST_F(ioctl, start_while_the_file_is_locked)
{
	struct stuck st;

	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	begin_stuck(&st, self->ram.fd);
	PROOF(EXPECT_EQ(-EINPROGRESS, session_start(&self->s)));
	EXPECT_EQ(-ENODATA, session_harvest(&self->s, NULL));
	end_stuck(&st);
	EXPECT_EQ(0, session_start(&self->s));
	EXPECT_EQ(0, session_harvest(&self->s, NULL));
}

TEST_F(ioctl, ranges)
{
	static const struct {
		uint64_t first, npages;
		int answer;
	} ranges[] = {
		{ 0, 0, 0 }, { 0, PAGES, 0 }, { PAGES, 0, 0 }, { PAGES - 1, 1, 0 }, { 63, 2, 0 },
		{ 0, PAGES + 1, -EINVAL }, { 1, PAGES, -EINVAL }, { PAGES, 1, -EINVAL }, { PAGES + 1, 0, -EINVAL },
		{ 1, UINT64_MAX, -EINVAL }, { UINT64_MAX, 1, -EINVAL }, { UINT64_MAX, 2, -EINVAL },
		{ UINT64_MAX, UINT64_MAX, -EINVAL }, { 1ULL << 63, 1ULL << 63, -EINVAL },
		{ 2, UINT64_MAX - 1, -EINVAL }, { 1ULL << 52, 1, -EINVAL },
	};
	unsigned int i;

	started(self);
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		EXPECT_EQ(ranges[i].answer, session_clear(&self->s, 0, ranges[i].first, ranges[i].npages)) {
			TH_LOG("range %u", i);
		}
	}
	EXPECT_EQ(-EINVAL, session_clear(&self->s, 1, 0, 0));
	EXPECT_EQ(-EINVAL, session_clear(&self->s, GODWIT_RAM_MAX - 1, 0, 0));
	EXPECT_EQ(-EINVAL, session_clear(&self->s, GODWIT_RAM_MAX, 0, 0));
	EXPECT_EQ(-EINVAL, session_clear(&self->s, UINT32_MAX, 0, 0));
}

TEST_F(ioctl, states)
{
	struct ram other;

	/* NEW */
	EXPECT_EQ(-EINVAL, session_start(&self->s));
	EXPECT_EQ(-ENODATA, session_harvest(&self->s, NULL));
	EXPECT_EQ(-EINVAL, session_clear(&self->s, 0, 0, 0));
	/* ATTACHED */
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	EXPECT_EQ(-EINVAL, session_start(&self->s));
	EXPECT_EQ(-ENODATA, session_harvest(&self->s, NULL));
	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	EXPECT_EQ(-ENODATA, session_clear(&self->s, 0, 0, 1));
	EXPECT_EQ(-ENODATA, session_sync(&self->s, NULL));
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 1)));
	/* STARTED */
	ASSERT_EQ(0, session_start(&self->s));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 1)));
	EXPECT_EQ(-EBUSY, session_start(&self->s));
	EXPECT_EQ(-EBUSY, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, ram_create(&other, RAM_TMPFS, PAGE));
	EXPECT_EQ(-EBUSY, session_add_ram(&self->s, other.fd));
	ram_destroy(&other);
}

TEST_F(ioctl, start_without_a_slot_of_ours)
{
	struct ram other;

	ASSERT_EQ(0, ram_create(&other, RAM_TMPFS, PAGE));
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->s, other.fd));
	EXPECT_EQ(-ENOENT, session_start(&self->s));
	/* Not too late. */
	ASSERT_EQ(1, session_add_ram(&self->s, self->ram.fd));
	EXPECT_EQ(0, session_start(&self->s));
	ram_destroy(&other);
}

/* Two VMs share it. The second session would throw away what the first one has not harvested yet. */
TEST_F(ioctl, a_file_has_one_session)
{
	struct session other;
	struct vm vm;

	vm_create(&vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, PAGES * PAGE, self->ram.map));
	started(self);
	session_settle(&self->s);
	*(volatile uint8_t *)(self->ram.map + 3 * PAGE) = 1;

	session_open(&other);
	ASSERT_EQ(0, session_attach(&other, vm.fd));
	ASSERT_EQ(0, session_add_ram(&other, self->ram.fd));
	PROOF(EXPECT_EQ(-EBUSY, session_start(&other)));
	PROOF(EXPECT_FALSE(vm_logged(&vm, 1)));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_TRUE(bit_set(&self->s.ram[0], 3)));

	/* One that retires is hurried. */
	session_close(&self->s);
	PROOF(EXPECT_EQ(0, session_start(&other)));
	EXPECT_EQ(0, session_harvest(&other, NULL));
	session_close(&other);
	session_open(&self->s);
	vm_destroy(&vm);
}

TEST_F(ioctl, start_counts_slots)
{
	struct godwit_start a = { 0 };

	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + PAGES * PAGE, PAGE, self->ram.map));
	ASSERT_EQ(0, vm_slot(&self->vm, 3, KVM_MEM_READONLY, RAM_GPA + 2 * PAGES * PAGE, PAGE, self->ram.map));
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	ASSERT_EQ(0, call(self->s.fd, GODWIT_START, &a));
	PROOF(EXPECT_EQ(2, a.memslots));	/* what the guest cannot write needs no log */
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 3)));
}

#define MANY_SLOTS	400
#define MANY_VMAS	200UL

/* Each slot over all of these mappings, of which no two can be one. */
static void many_of_both(struct vm *vm, const struct ram *ram)
{
	uint8_t *at = mmap(NULL, MANY_VMAS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long i;

	require(at != MAP_FAILED, "address space");
	for (i = 0; i < MANY_VMAS; i++)
		require(mmap(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, ram->fd,
			     (MANY_VMAS - i) * PAGE) != MAP_FAILED, "a mapping");
	for (i = 1; i <= MANY_SLOTS; i++)
		require(!vm_slot(vm, 1 + i, 0, RAM_GPA + i * PAGES * PAGE, MANY_VMAS * PAGE, at), "a slot");
}

/* What a VMM can make us keep and compare is bounded, and what is within the bounds is done soon. */
TEST_F(ioctl, many_slots_over_many_mappings)
{
	struct godwit_start a = { 0 };
	unsigned long i;
	uint64_t start;

	many_of_both(&self->vm, &self->ram);
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	PROOF(ASSERT_EQ(-ENOSPC, session_start(&self->s)));
	for (i = MANY_SLOTS / 2 + 1; i <= MANY_SLOTS; i++)
		ASSERT_EQ(0, vm_slot(&self->vm, 1 + i, 0, RAM_GPA + i * PAGES * PAGE, 0, NULL));
	ASSERT_EQ(0, call(self->s.fd, GODWIT_START, &a));
	EXPECT_EQ(MANY_SLOTS / 2 + 1, a.memslots);
	start = now_ms();
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	EXPECT_GT(5000, now_ms() - start);
}

/* The session ends with the last descriptor. */
TEST_F(ioctl, duplicated_descriptor)
{
	struct session copy;

	started(self);
	copy = self->s;
	copy.fd = dup(self->s.fd);
	ASSERT_LE(0, copy.fd);
	close(self->s.fd);
	EXPECT_EQ(0, session_harvest(&copy, NULL));
	self->s.fd = copy.fd;
}

KST_MAIN
