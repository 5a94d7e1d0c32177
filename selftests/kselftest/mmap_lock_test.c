// SPDX-License-Identifier: GPL-2.0-only
/* A process that has newly mapped the RAM file holds its mmap_lock: a harvest fails, and does not wait for it. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kst.h"
#include "rig.h"

#define HOLD_PARAM	"/sys/module/godwit/parameters/hold_mmap_lock_ms"
#define PAGES		256UL
#define WRITTEN		5UL
#define HOLDERS		64U

/* Another process: what it has done so far. */
struct steps {
	volatile bool begun, over, written;
};

FIXTURE(mmap_lock) {
	struct rig rig;
	struct steps *steps;	/* of the one that was forked last */
};

FIXTURE_SETUP(mmap_lock)
{
	self->steps = mmap(NULL, HOLDERS * sizeof(*self->steps), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->steps);
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, PAGES * PAGE));
}

FIXTURE_TEARDOWN(mmap_lock)
{
	rig_end(&self->rig);
}

/* A child that maps the RAM file as this process does, and holds its own mmap_lock soon. */
static pid_t fork_holder(FIXTURE_DATA(mmap_lock) *self, const char *ms)
{
	pid_t pid = fork_child();

	if (!pid) {
		/* The session is this process's parent's alone. */
		if (self->rig.s.nr_rams) {
			session_unmap(&self->rig.s);
			close(self->rig.s.fd);
		}
		self->steps->begun = true;
		require(!file_write(HOLD_PARAM, ms), HOLD_PARAM);
		self->steps->over = true;
		self->rig.ram.map[WRITTEN * PAGE] = 1;
		self->steps->written = true;
		pause();
		_exit(0);
	}
	return pid;
}

/* 'D': it sleeps, and no signal but SIGKILL could wake it. */
static void wait_until_it_holds(const struct steps *steps, pid_t pid)
{
	while (!steps->begun || process_state(pid) != 'D')
		sleep_ms(1);
}

static pid_t start_holder(FIXTURE_DATA(mmap_lock) *self, const char *ms)
{
	pid_t pid = fork_holder(self, ms);

	wait_until_it_holds(self->steps, pid);
	return pid;
}

TEST_F(mmap_lock, a_harvest_does_not_wait)
{
	struct bitmap *bits;
	pid_t pid;

	rig_begin(&self->rig, 3, PAGES * PAGE);
	bits = &self->rig.s.ram[0];
	pid = start_holder(self, "8000");
	PROOF(EXPECT_EQ(-EAGAIN, session_harvest(&self->rig.s, NULL)));
	PROOF(EXPECT_FALSE(self->steps->over));
	/* It can be tried again as often as one likes, and the session can do all else. */
	PROOF(EXPECT_EQ(-EAGAIN, session_sync(&self->rig.s, NULL)));
	PROOF(EXPECT_FALSE(self->steps->over));
	while (!self->steps->written)
		sleep_ms(10);
	/* The first one that sees the mapping reports what was stored through it. */
	PROOF(EXPECT_EQ(0, session_harvest(&self->rig.s, NULL)));
	PROOF(EXPECT_TRUE(bit_set(bits, WRITTEN)));
	kill_process(pid);
}

/* The time is that of all, not of each: so long the guest may stand still. */
TEST_F(mmap_lock, a_harvest_does_not_wait_for_each_of_many)
{
	struct steps *steps = self->steps;
	pid_t pids[HOLDERS];
	unsigned int i;

	rig_begin(&self->rig, 3, PAGES * PAGE);
	for (i = 0; i < HOLDERS; i++) {
		self->steps = steps + i;
		pids[i] = fork_holder(self, "8000");
	}
	for (i = 0; i < HOLDERS; i++)
		wait_until_it_holds(steps + i, pids[i]);
	PROOF(EXPECT_EQ(-EAGAIN, session_harvest(&self->rig.s, NULL)));
	PROOF(EXPECT_FALSE(self->steps->over));
	/* Those that were not tried are found by the next one. */
	for (i = 0; i < HOLDERS; i++)
		while (!steps[i].written)
			sleep_ms(10);
	PROOF(EXPECT_EQ(0, session_harvest(&self->rig.s, NULL)));
	PROOF(EXPECT_TRUE(bit_set(&self->rig.s.ram[0], WRITTEN)));
	for (i = 0; i < HOLDERS; i++)
		kill_process(pids[i]);
}

/* Nothing is lost by an end in between either: dirty logging goes off while the lock is still held. */
TEST_F(mmap_lock, a_session_ends)
{
	pid_t pid;

	rig_begin(&self->rig, 3, PAGES * PAGE);
	pid = start_holder(self, "4000");
	PROOF(EXPECT_EQ(-EAGAIN, session_harvest(&self->rig.s, NULL)));
	session_close(&self->rig.s);
	sessions_wait_none();
	PROOF(EXPECT_FALSE(self->steps->over));
	PROOF(EXPECT_FALSE(vm_logged(&self->rig.vm, 1)));
	kill_process(pid);
	session_begin(&self->rig.s, self->rig.vm.fd, &self->rig.ram.fd, 1);
}

/* Before START nothing of the guest stands still: the lock is waited for. */
TEST_F(mmap_lock, start_waits)
{
	pid_t pid;

	vm_create(&self->rig.vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&self->rig.vm, 1, 0, RAM_GPA, PAGES * PAGE, self->rig.ram.map));
	session_open(&self->rig.s);
	ASSERT_EQ(0, session_attach(&self->rig.s, self->rig.vm.fd));
	ASSERT_EQ(0, session_add_ram(&self->rig.s, self->rig.ram.fd));
	pid = start_holder(self, "1500");
	PROOF(EXPECT_EQ(0, session_start(&self->rig.s)));
	kill_process(pid);
}

KST_MAIN
