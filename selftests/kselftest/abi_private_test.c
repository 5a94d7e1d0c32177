// SPDX-License-Identifier: GPL-2.0-only
/* Private RAM: what ADD_RAM and START say of it. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "kst.h"
#include "priv.h"
#include "private_fixture.h"

#define BYTES		(4 * MIB)
#define PAGES		(BYTES / PAGE)

/* 0 or -errno. */
static int add(struct session *s, struct godwit_add_ram *a)
{
	return ioctl(s->fd, GODWIT_ADD_RAM, a) ? -errno : 0;
}

TEST_F(private, the_tool_can_tell)
{
	struct godwit_attach a = { .vm_fd = -1 };
	struct session other;
	struct vm vm;

	vm_create(&vm, 1, 3);
	session_open(&other);
	a.vm_fd = vm.fd;
	ASSERT_EQ(0, ioctl(other.fd, GODWIT_ATTACH, &a));
	EXPECT_EQ(GODWIT_CAN_PRIVATE | GODWIT_CAN_UFFD, a.flags);
	session_close(&other);
	vm_destroy(&vm);
}

TEST_F(private, answers)
{
	static const struct {
		int flags;
		uint64_t bytes;
		unsigned int page_shift;
	} kinds[] = {
		{ MAP_PRIVATE, PAGE, 12 }, { MAP_PRIVATE | MAP_NORESERVE, 1UL << 40, 12 },
		{ MAP_PRIVATE | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, 4 * MIB, 21 },
		{ MAP_PRIVATE | MAP_HUGETLB | 30 << MAP_HUGE_SHIFT, 1024 * MIB, 30 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct godwit_add_ram a = {
			.fd = -1, .flags = GODWIT_RAM_PRIVATE, .npages = kinds[i].bytes / PAGE,
			.map_offset = (uintptr_t)priv_mmap(kinds[i].bytes, kinds[i].flags, -1),
		};

		ASSERT_EQ(0, add(&self->s, &a));
		EXPECT_EQ(i, a.index);
		EXPECT_EQ(kinds[i].page_shift, a.page_shift);
		EXPECT_EQ(kinds[i].bytes / PAGE, a.npages);
		EXPECT_EQ(i * (1ULL << 40), a.map_offset);
		EXPECT_EQ((kinds[i].bytes / PAGE + 8 * PAGE - 1) / (8 * PAGE) * PAGE, a.map_bytes);
	}
}

TEST_F(private, refused)
{
	uint8_t *at = priv_mmap(4 * PAGE, MAP_PRIVATE, -1), *hole = priv_mmap(3 * PAGE, MAP_PRIVATE, -1);
	struct session unattached;
	int fd = open("/proc/self/exe", O_RDONLY);

	require(!munmap(hole + PAGE, PAGE), "munmap");
	EXPECT_EQ(-EADDRNOTAVAIL, session_add_private(&self->s, hole, 3 * PAGE));
	EXPECT_EQ(-EADDRNOTAVAIL, session_add_private(&self->s, hole + PAGE, PAGE));
	EXPECT_EQ(-ENOTUNIQ,
		  session_add_private(&self->s, priv_mmap(PAGE, MAP_SHARED, sized_memfd(PAGE, 0)), PAGE));
	EXPECT_EQ(-ENOTUNIQ, session_add_private(&self->s, priv_mmap(PAGE, MAP_SHARED, -1), PAGE));
	EXPECT_EQ(-EMEDIUMTYPE, session_add_private(&self->s, priv_mmap(PAGE, MAP_PRIVATE, fd), PAGE));
	EXPECT_EQ(-EINVAL, session_add_private(&self->s, at + 1, PAGE));
	EXPECT_EQ(-EINVAL, session_add_private(&self->s, NULL, PAGE));
	EXPECT_EQ(-EINVAL, session_add_private(&self->s, at, 0));
	EXPECT_EQ(-EINVAL, session_add_private(&self->s, at, (uint64_t)-PAGE));
	EXPECT_EQ(-EINVAL, session_add_private(&self->s, (void *)(-4 * PAGE), PAGE));
	ASSERT_EQ(0, session_add_private(&self->s, at, 2 * PAGE));
	EXPECT_EQ(-EEXIST, session_add_private(&self->s, at, 2 * PAGE));
	EXPECT_EQ(-EEXIST, session_add_private(&self->s, at + PAGE, 3 * PAGE));
	EXPECT_EQ(1, session_add_private(&self->s, at + 2 * PAGE, 2 * PAGE));
	session_open(&unattached);
	EXPECT_EQ(-ENOTCONN, session_add_private(&unattached, at, PAGE));
	session_close(&unattached);
}

TEST_F(private, wrong_arguments)
{
	uint64_t at = (uintptr_t)priv_mmap(PAGE, MAP_PRIVATE, -1);
	struct godwit_add_ram a = {
		.fd = 0, .flags = GODWIT_RAM_PRIVATE, .npages = 1, .map_offset = at
	};
	struct godwit_add_ram b = {
		.fd = -1, .flags = GODWIT_RAM_PRIVATE << 1, .npages = 1, .map_offset = at
	};

	EXPECT_EQ(-EINVAL, add(&self->s, &a));
	EXPECT_EQ(-EINVAL, add(&self->s, &b));
	b.flags |= GODWIT_RAM_PRIVATE;
	EXPECT_EQ(-EINVAL, add(&self->s, &b));
}

/* Each process has such a mapping: of the kernel's clocks. */
static void *pfn_mapping(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start = 0;
	char line[256];

	require(maps, "/proc/self/maps");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "[vvar]"))
			start = strtoul(line, NULL, 16);
	fclose(maps);
	require(start, "[vvar]");
	return (void *)start;
}

TEST_F(private, device_memory)
{
	EXPECT_EQ(-ENODEV, session_add_private(&self->s, pfn_mapping(), PAGE));
}

/* What the VMM maps there after ADD_RAM: said by START and by HARVEST, and nothing is lost. */
TEST_F(private, another_kind_later)
{
	uint8_t *at = priv_mmap(BYTES, MAP_PRIVATE, -1);
	int fd = sized_memfd(PAGE, 0), exe = open("/proc/self/exe", O_RDONLY);

	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, at));
	ASSERT_EQ(0, session_add_private(&self->s, at, BYTES));
	require(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == at, "mmap");
	EXPECT_EQ(-ENOTUNIQ, session_start(&self->s));
	require(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0) == at,
		"mmap");
	ASSERT_EQ(0, session_start(&self->s));
	session_settle(&self->s);
	require(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, exe, 0) == at, "mmap");
	at[2 * PAGE] = 1;
	EXPECT_EQ(-EMEDIUMTYPE, session_harvest(&self->s, NULL));
	require(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		     0) == at,
		"mmap");
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_TRUE(bit_set(&self->s.ram[0], 0)));
	PROOF(EXPECT_TRUE(bit_set(&self->s.ram[0], 2)));
}

/* As newer kernels have them. */
struct guest_memfd {
	uint64_t size;
	uint64_t flags;
	uint64_t reserved[6];
};

struct region2 {
	uint32_t slot;
	uint32_t flags;
	uint64_t guest_phys_addr;
	uint64_t memory_size;
	uint64_t userspace_addr;
	uint64_t guest_memfd_offset;
	uint32_t guest_memfd;
	uint32_t pad[29];
};

#define CREATE_GUEST_MEMFD	_IOWR(KVMIO, 0xd4, struct guest_memfd)
#define SET_REGION2		_IOW(KVMIO, 0x49, struct region2)
#define MAPPED_AND_SHARED	3
#define MEMORY_IN_GUEST_MEMFD	4

/* 0 or -errno. */
static int slot_in_guest_memfd(struct vm *vm, uint8_t *at, uint64_t bytes)
{
	struct guest_memfd g = { .size = bytes, .flags = MAPPED_AND_SHARED };
	int fd = ioctl(vm->fd, CREATE_GUEST_MEMFD, &g);
	struct region2 region = {
		.slot = 1,
		.flags = MEMORY_IN_GUEST_MEMFD,
		.guest_phys_addr = RAM_GPA,
		.memory_size = bytes,
		.userspace_addr = (uintptr_t)at,
		.guest_memfd = fd,
	};

	return ioctl(vm->fd, SET_REGION2, &region) ? -errno : 0;
}

/* Where this kernel has such memory for ordinary VMs; where it has not, KVM itself refuses. */
TEST_F(private, guest_memfd)
{
	uint8_t *at = priv_mmap(BYTES, MAP_PRIVATE, -1);
	int r = slot_in_guest_memfd(&self->vm, at, BYTES);

	TH_LOG("a slot in a guest_memfd: %s", strerror(-r));
	EXPECT_EQ(r ? 0 : -EOPNOTSUPP, session_add_private(&self->s, at + MIB, MIB));
	if (!r)
		return;
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, at));
	EXPECT_EQ(0, session_start(&self->s));
}

/* The slots that show it, wherever in the range. */
TEST_F(private, slots)
{
	uint8_t *at = priv_mmap(BYTES, MAP_PRIVATE, -1);
	struct godwit_start a = { 0 };

	ASSERT_EQ(0, session_add_private(&self->s, at + MIB, 2 * MIB));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, MIB, at));
	EXPECT_EQ(-ENOENT, session_start(&self->s));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, MIB + MIB / 2, at));
	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + 2 * MIB, MIB, at + 2 * MIB));
	vm_table_add(&self->vm, RAM_GPA, (MIB + MIB / 2) / PAGE);
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_START, &a));
	EXPECT_EQ(2, a.memslots);
	rows_on(1 << GODWIT_ROW_VCPU);
	session_settle(&self->s);
	vcpu_batch(&self->vm, 0, 1, 1, 2000);
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_LT(0, bits_count(&self->s.ram[0])));
	PROOF(EXPECT_GE(128, bits_count(&self->s.ram[0])));
}

TEST_F(private, too_many_mappings)
{
	uint8_t *at = priv_mmap(2100 * PAGE, MAP_PRIVATE, -1);
	unsigned int i;

	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 2100 * PAGE, at));
	for (i = 0; i < 2100; i += 2)
		require(!mprotect(at + i * PAGE, PAGE, PROT_READ), "mprotect");
	ASSERT_EQ(0, session_add_private(&self->s, at, 2100 * PAGE));
	EXPECT_EQ(-ENOSPC, session_start(&self->s));
	require(!mprotect(at, 2100 * PAGE, PROT_READ | PROT_WRITE), "mprotect");
	EXPECT_EQ(0, session_start(&self->s));
}

/*
 * One VMM, two VMs: of two sessions that want one range, or a huge page that both have, the second
 * is refused.
 */
TEST_F(private, a_range_has_one_session)
{
	uint8_t *at = priv_mmap(BYTES, MAP_PRIVATE, -1);
	struct session other;
	struct vm vm;

	vm_create(&vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, at));
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, BYTES, at));
	ASSERT_EQ(0, session_add_private(&self->s, at, PAGE));
	ASSERT_EQ(0, session_start(&self->s));
	session_open(&other);
	ASSERT_EQ(0, session_attach(&other, vm.fd));
	ASSERT_EQ(0, session_add_private(&other, at + PAGE, PAGE));
	EXPECT_EQ(-EBUSY, session_start(&other));
	session_close(&other);
	session_open(&other);
	ASSERT_EQ(0, session_attach(&other, vm.fd));
	ASSERT_EQ(0, session_add_private(&other, at + 3 * MIB, PAGE));
	EXPECT_EQ(0, session_start(&other));
	session_close(&other);
	vm_destroy(&vm);
}

/* A VMM in a process of its own, by which it is told that the addresses are its, and not ours. */
static void furnish(struct vm *vm, void *arg)
{
	uint8_t *at = mmap(*(void **)arg, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	require(at != MAP_FAILED, "mmap");
	require(!madvise(at, BYTES, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
	at[5 * PAGE] = 1;
	require(!vm_slot(vm, 1, 0, RAM_GPA, BYTES, at), "a slot");
}

TEST(addresses_are_the_vmms)
{
	uint8_t *at =
		mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t first, len;
	struct session s;
	int vm_fd;
	pid_t pid = vm_elsewhere(furnish, &at, &vm_fd);

	require(!munmap(at, BYTES), "munmap");
	session_open(&s);
	ASSERT_EQ(0, session_attach(&s, vm_fd));
	ASSERT_EQ(0, session_add_private(&s, at, BYTES));
	ASSERT_EQ(0, session_start(&s));
	session_settle(&s);
	PROOF(ASSERT_EQ(0, session_next_data(&s, 0, 0, PAGES, &first, &len)));
	PROOF(EXPECT_EQ(5, first));
	PROOF(EXPECT_EQ(1, len));
	kill_process(pid);
	EXPECT_EQ(-EOWNERDEAD, session_harvest(&s, NULL));
	EXPECT_EQ(-EOWNERDEAD, session_next_data(&s, 0, 0, PAGES, &first, &len));
	close(vm_fd);
	session_close(&s);
	sessions_wait_none();
}

struct addition {
	struct session *s;
	uint8_t *at;
};

static int has_no_room(void *arg)
{
	struct addition *a = arg;

	/* All that a refusal touches is there: a page fault with no room left would end this process. */
	if (session_add_private(a->s, a->at, 0) != -EINVAL)
		return 2;
	return session_add_private(a->s, a->at, 1UL << 40) != -ENOMEM;
}

/* Bitmaps are charged to the helper; for 2 x 32 MiB there is no room. */
TEST_F(private, bitmaps_are_charged)
{
	struct addition a = { &self->s, priv_mmap(1UL << 40, MAP_PRIVATE | MAP_NORESERVE, -1) };
	int status = run_charged("16777216", has_no_room, &a);

	if (status < 0)
		SKIP(return, "no memory controller");
	PROOF(EXPECT_EQ(0, status));
}

#define MANY_SLOTS	(65536 / GODWIT_RAM_MAX)	/* and the VM's own */
#define MANY_BYTES	(GODWIT_RAM_MAX * PAGE)

/*
 * Each slot over as many RAMs as a session can have, a page each: what a VMM can make us keep and
 * compare is bounded, and what is within the bounds works.
 */
TEST_F_TIMEOUT(private, many_slots_over_many_rams, 300)
{
	uint8_t *at = priv_mmap(MANY_BYTES, MAP_PRIVATE, -1);
	struct godwit_start a = { 0 };
	unsigned int i;

	for (i = 0; i < GODWIT_RAM_MAX; i++) {
		struct godwit_add_ram ram = {
			.fd = -1, .flags = GODWIT_RAM_PRIVATE, .npages = 1,
			.map_offset = (uintptr_t)(at + i * PAGE),
		};

		ASSERT_EQ(0, add(&self->s, &ram));
	}
	for (i = 1; i <= MANY_SLOTS; i++)
		ASSERT_EQ(0, vm_slot(&self->vm, i, 0, RAM_GPA + i * MANY_BYTES, MANY_BYTES, at));
	PROOF(ASSERT_EQ(-ENOSPC, session_start(&self->s)));
	ASSERT_EQ(0, vm_slot(&self->vm, MANY_SLOTS, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_START, &a));
	EXPECT_EQ(MANY_SLOTS - 1, a.memslots);
}

/* MAPPERS names the VMM, and no other process. */
TEST_F(private, mappers)
{
	uint8_t *at = priv_mmap(BYTES, MAP_PRIVATE, -1);
	uint32_t pids[4] = { 0 };
	struct godwit_mappers a = { .pids = (uintptr_t)pids, .room = 4 };

	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, at));
	ASSERT_EQ(0, session_add_private(&self->s, at, BYTES));
	ASSERT_EQ(0, session_start(&self->s));
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_MAPPERS, &a));
	PROOF(EXPECT_EQ(1, a.count));
	PROOF(EXPECT_EQ(getpid(), pids[0]));
}

KST_MAIN
