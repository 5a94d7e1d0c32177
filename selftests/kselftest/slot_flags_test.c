// SPDX-License-Identifier: GPL-2.0-only
/* The VMM changes a memslot in the moment in which a harvest switches its log on. */
#include "kst.h"
#include "paused.h"

#define PAGES		512UL
#define BYTES		(PAGES * PAGE)
#define DELAY		SYSFS "retire_delay_ms"
#define TRIES		20
#define SOAK		16	/* slots of another VM, which take the memory that a slot has left */

/* Slot 1 is logged; slot 2, which shows the RAM's second half, is logged by the next harvest. */
FIXTURE(flags) {
	struct vm vm, other;
	struct ram ram;
	struct session s;
	char delay[16];	/* as found */
};

static int second_slot(FIXTURE_DATA(flags) *self, unsigned int id, unsigned int flags, uint64_t npages)
{
	return vm_slot(&self->vm, id, flags, RAM_GPA + BYTES, npages * PAGE,
		       npages ? self->ram.map + BYTES : NULL);
}

FIXTURE_SETUP(flags)
{
	unsigned int tries = TRIES;

	snprintf(self->delay, sizeof(self->delay), "%ld", file_number(DELAY));
	require(!file_write(DELAY, "0"), DELAY);
	vm_create(&self->vm, 1, 3);
	vm_create(&self->other, 1, 3);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, 2 * BYTES));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, self->ram.map));
	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
	session_settle(&self->s);
	/* A harvest that stands still for long enough takes the change that it has seen for an old one. */
	for (;;) {
		ASSERT_EQ(0, second_slot(self, 2, 0, PAGES));
		ASSERT_EQ(0, session_sync(&self->s, NULL));
		if (!vm_logged(&self->vm, 2) || !--tries)
			break;
		ASSERT_EQ(0, second_slot(self, 2, 0, 0));
	}
	sleep_ms(60);
	bits_forget(&self->s.ram[0]);
	ASSERT_TRUE(vm_logged(&self->vm, 1));
	ASSERT_FALSE(vm_logged(&self->vm, 2));
}

FIXTURE_TEARDOWN(flags)
{
	no_harvest_pauses();
	require(!file_write(DELAY, self->delay), DELAY);
	session_close(&self->s);
	ram_destroy(&self->ram);
	vm_destroy(&self->other);
	vm_destroy(&self->vm);
}

static void retire_now(FIXTURE_DATA(flags) *self)
{
	session_close(&self->s);
	sessions_wait_none();
	session_open(&self->s);		/* for the teardown */
}

static void switch_the_log_on(void *arg)
{
	FIXTURE_DATA(flags) *self = arg;

	require(!second_slot(self, 2, KVM_MEM_LOG_DIRTY_PAGES, PAGES), "its log goes on");
}

/* A log that the VMM itself has switched on is not ours to switch off. */
TEST_F(flags, log_of_the_vmm)
{
	EXPECT_EQ(0, harvest_while(&self->s, NULL, PAUSE_LAST_LOOK, switch_the_log_on, self));
	PROOF(EXPECT_EQ(PAGES, bits_count(&self->s.ram[0])));
	retire_now(self);
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 1)));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 2)));
}

static void soak_up(FIXTURE_DATA(flags) *self)
{
	unsigned int i;

	for (i = 0; i < SOAK; i++)
		require(!vm_slot(&self->other, i + 1, 0, RAM_GPA + i * BYTES, BYTES, self->ram.map), "a slot elsewhere");
}

static void make_it_anew(void *arg)
{
	FIXTURE_DATA(flags) *self = arg;

	require(!second_slot(self, 2, 0, 0), "the slot goes");
	soak_up(self);
	require(!second_slot(self, 2, 0, PAGES), "and comes");
}

/* The slot that is there is the VMM's new one: it stays, is logged, and has its flags again in the end. */
TEST_F(flags, slot_made_anew)
{
	EXPECT_EQ(0, harvest_while(&self->s, NULL, PAUSE_FLAGS, make_it_anew, self));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 2)));
	PROOF(EXPECT_EQ(PAGES, bits_count(&self->s.ram[0])));
	retire_now(self);
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 2)));
	/* KVM says EINVAL of a slot that is not there. */
	PROOF(EXPECT_EQ(0, second_slot(self, 2, 0, 0)));
}

static void delete_it(void *arg)
{
	FIXTURE_DATA(flags) *self = arg;

	require(!second_slot(self, 2, 0, 0), "the slot goes");
	soak_up(self);
}

/* The change of flags has made it again: its place must be free, as the VMM left it. */
TEST_F(flags, slot_deleted)
{
	EXPECT_EQ(0, harvest_while(&self->s, NULL, PAUSE_FLAGS, delete_it, self));
	PROOF(EXPECT_EQ(PAGES, bits_count(&self->s.ram[0])));
	PROOF(EXPECT_EQ(0, second_slot(self, 3, 0, PAGES)));
}

KST_MAIN
