// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of a session: every memslot gets the flags back that it had, in the time that sysfs says. No test asks whether
 * something was quick: what must not be waited for, a delay or a pause, is longer than a test may take.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kst.h"

#define SLOTS	6
#define BYTES	(64 * PAGE)
#define DELAY	SYSFS "retire_delay_ms"
#define PAUSE	SYSFS "retire_pause_ms"
#define PERCENT	SYSFS "retire_busy_percent"
#define WAIT	SYSFS "retire_busy_wait_ms"
#define PATIENCE	20000U	/* ms, on the slowest host, and less than a test's time */
#define EARLY	20	/* ms: a time in jiffies may be over by so much too soon */

FIXTURE(retire) {
	struct vm vm;
	struct ram ram;
	struct session s;
	char delay[16], pause[16];	/* as found */
};

/* Slots 1.. of one file. The log of slot 2 is on already, by the VMM. */
static void make_vm(struct vm *vm, struct ram *ram)
{
	unsigned int i;

	vm_create(vm, 1, 3);
	require(!ram_create(ram, RAM_TMPFS, SLOTS * BYTES), "a RAM file");
	for (i = 0; i < SLOTS; i++)
		require(!vm_slot(vm, i + 1, i == 1 ? KVM_MEM_LOG_DIRTY_PAGES : 0, RAM_GPA + i * BYTES, BYTES,
				 ram->map + i * BYTES), "a slot");
}

FIXTURE_SETUP(retire)
{
	snprintf(self->delay, sizeof(self->delay), "%ld", file_number(DELAY));
	snprintf(self->pause, sizeof(self->pause), "%ld", file_number(PAUSE));
	make_vm(&self->vm, &self->ram);
	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
}

FIXTURE_TEARDOWN(retire)
{
	if (module_loaded()) {
		require(!file_write(DELAY, self->delay), DELAY);
		require(!file_write(PAUSE, self->pause), PAUSE);
		require(!file_write(PERCENT, "90"), PERCENT);
		require(!file_write(WAIT, "1000"), WAIT);
	}
	ram_destroy(&self->ram);
	vm_destroy(&self->vm);
}

static void tune(const char *delay_ms, const char *pause_ms)
{
	require(!file_write(DELAY, delay_ms), DELAY);
	require(!file_write(PAUSE, pause_ms), PAUSE);
}

static unsigned int logged(struct vm *vm)
{
	unsigned int i, n = 0;

	for (i = 0; i < SLOTS; i++)
		n += vm_logged(vm, i + 1);
	return n;
}

/* Until no more than so many logs are on, or patience ends. */
static void wait_logged(struct vm *vm, unsigned int most)
{
	uint64_t start = now_ms();

	while (logged(vm) > most && now_ms() - start < PATIENCE)
		sleep_ms(2);
}

/* Only the VMM's own. */
static void wait_retired(struct vm *vm)
{
	wait_logged(vm, 1);
}

/* What retires does so now, and has when this returns: no delay and no pause is waited for. */
static void retire_now(FIXTURE_DATA(retire) *self)
{
	session_open(&self->s);
	require(!session_attach(&self->s, self->vm.fd), "GODWIT_ATTACH");
}

TEST_F(retire, flags_are_given_back)
{
	tune("0", "0");
	PROOF(ASSERT_EQ(SLOTS, logged(&self->vm)));
	session_close(&self->s);
	wait_retired(&self->vm);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 2)));
}

TEST_F(retire, never_started)
{
	tune("0", "0");
	session_close(&self->s);
	wait_retired(&self->vm);
	session_open(&self->s);
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	session_close(&self->s);
	sessions_wait_none();
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
}

/* What the VMM did with a slot meanwhile is its own. */
TEST_F(retire, changed_slots_are_left_alone)
{
	tune("60000", "0");
	session_close(&self->s);
	ASSERT_EQ(0, vm_slot(&self->vm, 3, 0, RAM_GPA + 2 * BYTES, 0, NULL));
	ASSERT_EQ(0, vm_slot(&self->vm, 3, KVM_MEM_LOG_DIRTY_PAGES, RAM_GPA + 2 * BYTES, BYTES, self->ram.map));
	ASSERT_EQ(0, vm_slot(&self->vm, 4, 0, RAM_GPA + 3 * BYTES, 0, NULL));
	retire_now(self);
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 3)));
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 4)));
	PROOF(EXPECT_EQ(2, logged(&self->vm)));
	/* It was not made again either. */
	PROOF(EXPECT_EQ(0, vm_slot(&self->vm, 4, 0, RAM_GPA + 3 * BYTES, BYTES, self->ram.map)));
	tune("0", "0");
	session_close(&self->s);
}

/* On 6.1, kvm_for_each_vcpu() without a guard walks up to ULONG_MAX here, and meets what is being made. */
TEST_F(retire, without_a_vcpu)
{
	struct session s;
	struct vm vm;

	tune("0", "0");
	vm_create(&vm, 0, 3);
	ASSERT_EQ(0, vm_slot(&vm, 1, 0, RAM_GPA, BYTES, self->ram.map));
	session_close(&self->s);
	wait_retired(&self->vm);
	session_begin(&s, vm.fd, &self->ram.fd, 1);
	PROOF(EXPECT_TRUE(vm_logged(&vm, 1)));
	session_close(&s);
	sessions_wait_none();
	PROOF(EXPECT_FALSE(vm_logged(&vm, 1)));
	vm_destroy(&vm);
}

/* Other memory is mapped behind a slot: what it shows is none of ours any more, its log still is. */
TEST_F(retire, slots_that_show_other_memory)
{
	void *at = self->ram.map + 2 * BYTES;

	tune("0", "0");
	ASSERT_EQ(at, mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 3)));
	session_close(&self->s);
	wait_retired(&self->vm);
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 3)));
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
}

/* Else it would wait for longer than a test may take. */
TEST_F(retire, close_does_not_wait)
{
	tune("60000", "60000");
	session_close(&self->s);
	PROOF(EXPECT_EQ(SLOTS, logged(&self->vm)));
	retire_now(self);
	tune("0", "0");
	session_close(&self->s);
}

TEST_F(retire, delay)
{
	uint64_t start;

	tune("600", "0");
	start = now_ms();
	session_close(&self->s);
	wait_logged(&self->vm, SLOTS - 1);
	PROOF(EXPECT_LE(600 - EARLY, now_ms() - start));
	wait_retired(&self->vm);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
}

TEST_F(retire, pause_between_slots)
{
	uint64_t start;

	tune("0", "100");
	start = now_ms();
	session_close(&self->s);
	wait_retired(&self->vm);
	/* One log is the VMM's: nothing to wait for there. */
	EXPECT_LE((SLOTS - 2) * 100 - EARLY, now_ms() - start);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
}

static void tune_busy(const char *percent, const char *wait_ms)
{
	require(!file_write(PERCENT, percent), PERCENT);
	require(!file_write(WAIT, wait_ms), WAIT);
}

/* While the vCPU runs, and its CPU is never idle, nothing happens; when it has stopped, all of it. */
TEST_F(retire, waits_for_calm)
{
	tune("0", "0");
	tune_busy("50", "60000");
	vm_table_add(&self->vm, RAM_GPA, SLOTS * BYTES / PAGE);
	vcpu_start(&self->vm, 0, 1);
	vcpu_wait(&self->vm, 0, 1000);
	session_close(&self->s);
	sleep_ms(1500);
	PROOF(EXPECT_EQ(SLOTS, logged(&self->vm)));
	vcpu_stop(&self->vm, 0);
	wait_retired(&self->vm);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
}

/* A guest that is never calm gets its logs off all the same: after the limit, or at once. */
TEST_F(retire, calm_is_not_waited_for_without_end)
{
	uint64_t start;

	tune("0", "0");
	tune_busy("50", "1000");
	vm_table_add(&self->vm, RAM_GPA, SLOTS * BYTES / PAGE);
	vcpu_start(&self->vm, 0, 1);
	vcpu_wait(&self->vm, 0, 1000);
	start = now_ms();
	session_close(&self->s);
	wait_retired(&self->vm);
	EXPECT_LT(500, now_ms() - start);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));

	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
	tune_busy("100", "60000");
	session_close(&self->s);
	wait_retired(&self->vm);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	vcpu_stop(&self->vm, 0);
}

/* The next session hurries the one that retires, and begins with the flags that were the VMM's. */
TEST_F(retire, attach_ends_the_delay)
{
	tune("60000", "60000");
	session_close(&self->s);
	PROOF(EXPECT_EQ(SLOTS, logged(&self->vm)));
	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
	PROOF(EXPECT_EQ(SLOTS, logged(&self->vm)));
	tune("0", "0");
	session_close(&self->s);
	wait_retired(&self->vm);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 2)));
}

/* In the middle: some slots are done, the pause would be long. */
TEST_F(retire, attach_ends_the_pauses)
{
	tune("0", "60000");
	session_close(&self->s);
	wait_logged(&self->vm, SLOTS - 1);
	PROOF(ASSERT_EQ(SLOTS - 1, logged(&self->vm)));
	retire_now(self);
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	session_close(&self->s);
}

TEST_F(retire, unload_ends_the_delay)
{
	tune("60000", "60000");
	session_close(&self->s);
	PROOF(EXPECT_EQ(0, module_unload()));
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	EXPECT_EQ(0, module_load());
}

TEST_F(retire, unload_ends_the_pauses)
{
	tune("0", "60000");
	session_close(&self->s);
	wait_logged(&self->vm, SLOTS - 1);
	PROOF(ASSERT_EQ(SLOTS - 1, logged(&self->vm)));
	PROOF(EXPECT_EQ(0, module_unload()));
	PROOF(EXPECT_EQ(1, logged(&self->vm)));
	EXPECT_EQ(0, module_load());
}

static void show_ram(struct vm *vm, void *arg)
{
	struct ram *ram = arg;

	require(!vm_slot(vm, 1, 0, RAM_GPA, BYTES, ram->map), "a slot");
}

/* A VM of another process, whose session is ours. Its RAM file's descriptor too. */
static pid_t watched_elsewhere(struct session *s)
{
	struct ram ram;
	int vm_fd;
	pid_t pid;

	require(!ram_create(&ram, RAM_TMPFS, BYTES), "a RAM file");
	pid = vm_elsewhere(show_ram, &ram, &vm_fd);
	session_begin(s, vm_fd, &ram.fd, 1);
	close(vm_fd);
	ram_destroy(&ram);
	return pid;
}

TEST_F(retire, vm_exits_under_a_session)
{
	struct session other;
	pid_t pid = watched_elsewhere(&other);

	kill_process(pid);
	EXPECT_EQ(-EOWNERDEAD, session_harvest(&other, NULL));
	EXPECT_EQ(-EOWNERDEAD, session_clear(&other, 0, 0, 1));
	EXPECT_EQ(-EOWNERDEAD, session_start(&other));
	session_close(&other);
	session_close(&self->s);
}

TEST_F(retire, vm_exits_while_retiring)
{
	struct session other;
	pid_t pid = watched_elsewhere(&other);

	tune("60000", "60000");
	session_close(&other);
	kill_process(pid);
	session_close(&self->s);
	PROOF(EXPECT_EQ(0, module_unload()));
	EXPECT_EQ(0, module_load());
}

KST_MAIN
