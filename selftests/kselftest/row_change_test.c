// SPDX-License-Identifier: GPL-2.0-only
/* Ledger row "change": memslots and mappings that come, go and move. The rows that could see the same are off. */
#include <errno.h>
#include <sys/mman.h>

#include "kst.h"
#include "paused.h"
#include "rig.h"

#define PAGES	1024UL
#define HALF	(PAGES / 2)

FIXTURE(change) {
	struct vm vm;
	struct ram ram;
	struct session s;
};

FIXTURE_VARIANT(change) {
	unsigned int manual;
};

FIXTURE_VARIANT_ADD(change, manual3) { .manual = 3 };
FIXTURE_VARIANT_ADD(change, manual1) { .manual = 1 };
FIXTURE_VARIANT_ADD(change, manual0) { .manual = 0 };

#define SLOT_OTHER	4
#define IN_SMM		(1 << 16)	/* of a slot's number: KVM's address space of SMM */

/* Shows the RAM's second half, which no other slot does, where nothing is written; npages 0: no more. */
static int other_half(FIXTURE_DATA(change) *self, unsigned int slot, uint64_t npages)
{
	return vm_slot(&self->vm, slot, 0, RAM_GPA + 2 * PAGES * PAGE, npages * PAGE,
		       npages ? self->ram.map + HALF * PAGE : NULL);
}

FIXTURE_SETUP(change)
{
	vm_create(&self->vm, 1, variant->manual);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, HALF * PAGE, self->ram.map));
	ASSERT_EQ(0, other_half(self, SLOT_OTHER, HALF));
	vm_table_add(&self->vm, RAM_GPA, PAGES);
	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
	session_settle(&self->s);
	rows_on(1 << GODWIT_ROW_CHANGE);
}

FIXTURE_TEARDOWN(change)
{
	rows_on(ALL_ROWS);
	session_close(&self->s);
	ram_destroy(&self->ram);
	vm_destroy(&self->vm);
}

/* Harvests; are exactly the pages [first, first + npages) reported, and by this row? */
static bool changed(struct session *s, uint64_t first, uint64_t npages)
{
	struct godwit_harvest h;
	uint64_t bits, at;

	require(!session_sync(s, &h), "GODWIT_HARVEST");
	bits = bits_count(&s->ram[0]);
	for (at = first; at < first + npages && bit_take(&s->ram[0], at); at++)
		;
	if (bits == npages && at == first + npages && h.pages[GODWIT_ROW_CHANGE] >= npages)
		return true;
	fprintf(stderr, "# %lu bits, %llu counted, not pages %lu to %lu\n", bits, h.pages[GODWIT_ROW_CHANGE], first,
		first + npages);
	return false;
}

/* Where a change of slots is seen by KVM's generation only, all RAM counts: see kmod/slots.c. */
static uint64_t others(unsigned int manual)
{
	return manual == 3 ? 0 : HALF;
}

/*
 * What a harvest has just seen change is not logged yet, and counts as written, until a harvest that comes when the
 * memslots have been left alone for a while; with that one it counts once more.
 */
static bool logged_when_quiet(FIXTURE_DATA(change) *self, unsigned int slot)
{
	sleep_ms(60);
	return !session_sync(&self->s, NULL) && vm_logged(&self->vm, slot) &&
	       (bits_forget(&self->s.ram[0]), true);
}

TEST_F(change, nothing)
{
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
}

TEST_F(change, slot_added)
{
	uint32_t seed = 1, at = guest_pick(&seed, PAGES);

	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + HALF * PAGE, HALF * PAGE, self->ram.map + HALF * PAGE));
	PROOF(EXPECT_TRUE(changed(&self->s, HALF - others(variant->manual), HALF + others(variant->manual))));
	PROOF(EXPECT_TRUE(logged_when_quiet(self, 2)));
	/* Its log works from now on. */
	rows_on(1 << GODWIT_ROW_VCPU);
	vcpu_batch(&self->vm, 0, 1, 7, 1);
	ASSERT_EQ(0, session_sync(&self->s, NULL));
	PROOF(EXPECT_TRUE(bit_set(&self->s.ram[0], at)));
}

TEST_F(change, row_off)
{
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_CHANGE | 1 << GODWIT_ROW_VCPU));
	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + HALF * PAGE, HALF * PAGE, self->ram.map + HALF * PAGE));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_EQ(0, bits_count(&self->s.ram[0])));
}

TEST_F(change, slot_deleted)
{
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, HALF + others(variant->manual))));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
}

TEST_F(change, slot_moved)
{
	/* By a VMM that knows of no log: it goes off with the flags, and has to come back. */
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA + PAGES * PAGE, HALF * PAGE, self->ram.map));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, HALF + others(variant->manual))));
	PROOF(EXPECT_TRUE(logged_when_quiet(self, 1)));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
}

TEST_F(change, slot_made_anew)
{
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, HALF * PAGE, self->ram.map));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, HALF + others(variant->manual))));
	PROOF(EXPECT_TRUE(logged_when_quiet(self, 1)));
}

/* The same with the log on, as a VMM in a migration of its own does it. */
TEST_F(change, slot_made_anew_with_its_log_on)
{
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, KVM_MEM_LOG_DIRTY_PAGES, RAM_GPA, HALF * PAGE, self->ram.map));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, HALF + others(variant->manual))));
}

/* What a vCPU writes through a slot that is there for just as long. Leaves the page's bit as the next harvest sets it. */
static bool written_for_a_moment(FIXTURE_DATA(change) *self, unsigned int flags, uint32_t value)
{
	uint32_t seed = 0, state, at;

	do {
		state = ++seed;
		at = guest_pick(&state, PAGES);
	} while (at < HALF);
	require(!vm_slot(&self->vm, 2, flags, RAM_GPA + HALF * PAGE, HALF * PAGE, self->ram.map + HALF * PAGE), "add");
	vcpu_batch(&self->vm, 0, seed, value, 1);
	require(!vm_slot(&self->vm, 2, 0, RAM_GPA + HALF * PAGE, 0, NULL), "delete");
	require(!session_harvest(&self->s, NULL), "GODWIT_HARVEST");
	return bit_set(&self->s.ram[0], at);
}

static void leave_alone(FIXTURE_DATA(change) *self)
{
	unsigned int i;

	for (i = 0; i < 3; i++) {
		sleep_ms(60);
		require(!session_sync(&self->s, NULL), "GODWIT_HARVEST");
		bits_forget(&self->s.ram[0]);
	}
}

/*
 * Its log is gone with it, and the VMM's entry was writable and clean already, once it has been written and swept. So no
 * other row has the write.
 */
static void came_and_went(struct __test_metadata *_metadata, FIXTURE_DATA(change) *self)
{
	unsigned int flags;

	for (flags = 0; flags <= KVM_MEM_LOG_DIRTY_PAGES; flags++) {
		rows_on(ALL_ROWS);
		written_for_a_moment(self, flags, 7);
		leave_alone(self);
		PROOF(EXPECT_TRUE(written_for_a_moment(self, flags, 8)));
		leave_alone(self);
		rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_CHANGE));
		SHOWN(!written_for_a_moment(self, flags, 9));
		leave_alone(self);
	}
}

TEST_F(change, slot_came_and_went)
{
	ASSERT_EQ(0, other_half(self, SLOT_OTHER, 0));
	came_and_went(_metadata, self);
}

/* As a window to SMM's RAM does, which the guest may open in its own address space: that one's log has nothing of it. */
TEST_F(change, slot_came_and_went_that_smm_has)
{
	ASSERT_EQ(0, other_half(self, SLOT_OTHER, 0));
	ASSERT_EQ(0, other_half(self, SLOT_OTHER | IN_SMM, HALF));
	came_and_went(_metadata, self);
}

/* Its log would have said which pages were written in SMM. */
TEST_F(change, slot_came_and_went_in_smm)
{
	ASSERT_EQ(0, other_half(self, SLOT_OTHER | IN_SMM, HALF));
	ASSERT_EQ(0, other_half(self, SLOT_OTHER | IN_SMM, 0));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, PAGES)));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
}

/* No slot shows any page when the two harvests look. */
TEST_F(change, only_slot_came_and_went)
{
	ASSERT_EQ(0, other_half(self, SLOT_OTHER, 0));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL));
	ASSERT_EQ(0, session_sync(&self->s, NULL));
	came_and_went(_metadata, self);
}

static void make_anew(void *arg)
{
	FIXTURE_DATA(change) *self = arg;

	require(!vm_slot(&self->vm, 1, 0, RAM_GPA, 0, NULL), "the slot goes");
	require(!vm_slot(&self->vm, 1, KVM_MEM_LOG_DIRTY_PAGES, RAM_GPA, HALF * PAGE, self->ram.map), "and comes");
}

/* Between a harvest's look at the slots and at their logs: what the guest wrote stood in the old one's. */
TEST_F(change, slot_made_anew_in_a_harvest)
{
	uint32_t seed = 7, at = guest_pick(&seed, PAGES);
	struct godwit_harvest h;

	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + HALF * PAGE, HALF * PAGE, self->ram.map + HALF * PAGE));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	ASSERT_TRUE(logged_when_quiet(self, 2));
	rows_on(1 << GODWIT_ROW_CHANGE | 1 << GODWIT_ROW_VCPU);
	while (at >= HALF)
		at = guest_pick(&seed, PAGES);
	vcpu_batch(&self->vm, 0, 7, 1, 16);
	EXPECT_EQ(0, harvest_while(&self->s, &h, PAUSE_SLOTS_SEEN, make_anew, self));
	PROOF(EXPECT_TRUE(bit_set(&self->s.ram[0], at)));
}

TEST_F(change, log_switched_off_by_the_vmm)
{
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, HALF * PAGE, self->ram.map));
	EXPECT_FALSE(vm_logged(&self->vm, 1));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, HALF + others(variant->manual))));
	PROOF(EXPECT_TRUE(logged_when_quiet(self, 1)));
}

TEST_F(change, slot_of_other_memory)
{
	ASSERT_EQ(0, vm_slot(&self->vm, 3, 0, RAM_GPA + PAGES * PAGE, 16 * PAGE, self->vm.low));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 2 * others(variant->manual))));
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 3)));
}

/* Two mappings that show the file as one did, from mprotect() or mbind(), are no change. */
TEST_F(change, mapping_split)
{
	ASSERT_EQ(0, mprotect(self->ram.map + 7 * PAGE, PAGE, PROT_READ));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
}

static void map_once_more(void *arg)
{
	require(ram_map(arg), "mmap");
}

TEST_F(change, mapped_by_a_new_process)
{
	pid_t pid = fork_ready(map_once_more, &self->ram);

	PROOF(EXPECT_TRUE(changed(&self->s, 0, PAGES)));
	PROOF(EXPECT_TRUE(changed(&self->s, 0, 0)));
	kill_process(pid);
}

#define TIMES	20

/* rows_off: with 32 or without: no flush. */
static unsigned long flushes_of_starts(FIXTURE_DATA(change) *self, const char *rows_off)
{
	unsigned long n = 0, before, i;

	require(!file_write(ROWS_OFF, rows_off), ROWS_OFF);
	for (i = 0; i < TIMES; i++) {
		session_open(&self->s);
		require(!session_attach(&self->s, self->vm.fd), "ATTACH");
		require(session_add_ram(&self->s, self->ram.fd) == 0, "ADD_RAM");
		before = flushes();
		require(!session_start(&self->s), "START");
		n += flushes() - before;
		session_close(&self->s);
	}
	return n;
}

/*
 * What reclaim unmaps from a mapping that is not known yet gets no note, and its flush may come later: a CPU goes on
 * storing to a page that no entry shows, which the helper may have read by then. As in row_unmap_test.c: a time that no
 * test can hold open, but the flush that ends it is counted. Nothing is written, so that the sweep does not flush.
 */
TEST_F(change, new_mapping_is_flushed)
{
	unsigned long without = session_flushes(&self->s, TIMES, NULL, NULL);
	unsigned long with = session_flushes(&self->s, TIMES, map_once_more, &self->ram);

	PROOF(EXPECT_LE(without + TIMES / 2, with));
}

TEST_F(change, start_is_flushed)
{
	session_close(&self->s);
	EXPECT_EQ(0, flushes_of_starts(self, "63"));
	PROOF(EXPECT_LE(TIMES, flushes_of_starts(self, "31")));
	session_open(&self->s);
}

TEST_F(change, counted_in_changes)
{
	struct godwit_harvest before, after;

	ASSERT_EQ(0, session_harvest(&self->s, &before));
	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + HALF * PAGE, HALF * PAGE, self->ram.map + HALF * PAGE));
	ASSERT_EQ(0, session_harvest(&self->s, &after));
	PROOF(EXPECT_EQ(before.changes + 1, after.changes));
}

KST_MAIN
