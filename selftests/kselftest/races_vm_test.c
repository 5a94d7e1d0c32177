// SPDX-License-Identifier: GPL-2.0-only
/* For a bounded time, and 50 times in make check-all: the VMM changes slots, forks, is killed while a session harvests. */
#include <sys/syscall.h>

#include "kst.h"
#include "rig.h"

#define RACE_MS	1000
#define VMMS	40
#define BYTES	(2UL << 20)
#define SLOT	8		/* the one that comes and goes */
#define SPARE	(RAM_GPA + 4 * BYTES)

FIXTURE(races) {
	struct rig rig;
};

FIXTURE_VARIANT(races) {
	unsigned int manual;
};

FIXTURE_VARIANT_ADD(races, manual3) { .manual = 3 };
FIXTURE_VARIANT_ADD(races, manual0) { .manual = 0 };

FIXTURE_SETUP(races)
{
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	rig_begin(&self->rig, variant->manual, BYTES);
}

FIXTURE_TEARDOWN(races)
{
	rig_end(&self->rig);
}

struct changer {
	struct rig *rig;
	volatile bool stop;
	pthread_t thread;
	unsigned int rounds;
	unsigned int errors;
	const char *first;	/* the call that failed, and why */
	int error;
};

static void change(struct changer *c, const char *what, uint64_t gpa, uint64_t bytes)
{
	int r = vm_slot(&c->rig->vm, SLOT, 0, gpa, bytes, c->rig->ram.map);

	if (r && !c->errors++) {
		c->first = what;
		c->error = r;
	}
}

/*
 * Makes, moves and deletes a slot that shows the RAM a second time. A slot that came back would be in the way.
 * A harvest over which slots change ends in -EAGAIN, so every 16th round leaves time for one.
 */
static void *change_slots(void *arg)
{
	struct changer *c = arg;

	while (!c->stop) {
		change(c, "make", SPARE, BYTES);
		sleep_ms(c->rounds % 4);
		change(c, "move", SPARE + BYTES, BYTES);
		change(c, "delete", 0, 0);
		change(c, "make smaller", SPARE, BYTES / 2);
		sleep_ms(c->rounds++ % 3);
		change(c, "delete", 0, 0);
		if (c->rounds % 16 == 0)
			sleep_ms(30);
	}
	return NULL;
}

/*
 * For ms, and longer (20 times, at most) until enough have succeeded and as much has happened beside them. -EAGAIN: slots change; nothing
 * is lost.
 */
static unsigned int harvest_for(struct rig *rig, unsigned int ms, unsigned int enough, const volatile unsigned int *beside)
{
	uint64_t begin = now_ms(), spent = 0;
	unsigned int done = 0;

	for (; spent < ms || ((done < enough || *beside < enough) && spent < 20 * ms); spent = now_ms() - begin) {
		int r = session_sync(&rig->s, NULL);

		require(!r || r == -EAGAIN, "GODWIT_HARVEST");
		shadow_take(&rig->shadow, &rig->s.ram[0]);
		done += !r;
	}
	return done;
}

TEST_F(races, slots_change)
{
	struct changer c = { .rig = &self->rig };

	vcpu_start(&self->rig.vm, 0, random_seed());
	require(!pthread_create(&c.thread, NULL, change_slots, &c), "pthread_create");
	EXPECT_LE(4, harvest_for(&self->rig, RACE_MS, 4, &c.rounds));
	c.stop = true;
	pthread_join(c.thread, NULL);
	vcpu_stop(&self->rig.vm, 0);
	TH_LOG("%u rounds of changes", c.rounds);
	EXPECT_LE(4, c.rounds);
	/* The VMM's own calls work as without us: QEMU aborts when one of them fails. */
	PROOF(EXPECT_EQ(0, c.errors)) {
		TH_LOG("to %s the slot: %s", c.first, strerror(-c.error));
	}
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
	/* It is gone, and its place is free. */
	PROOF(EXPECT_EQ(0, vm_slot(&self->rig.vm, SLOT + 1, 0, SPARE, 2 * BYTES, self->rig.vm.low)));
}

struct forker {
	volatile bool stop;
	pthread_t thread;
	unsigned int forks;
};

/* Children inherit the mapping, write nothing (what is gone between two harvests is not seen), and go. */
static void *fork_often(void *arg)
{
	struct forker *f = arg;

	while (!f->stop) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		wait_process(pid);
		f->forks++;
	}
	return NULL;
}

TEST_F(races, the_vmm_forks)
{
	struct forker f = { 0 };

	vcpu_start(&self->rig.vm, 0, random_seed());
	require(!pthread_create(&f.thread, NULL, fork_often, &f), "pthread_create");
	EXPECT_LE(4, harvest_for(&self->rig, RACE_MS, 4, &f.forks));
	f.stop = true;
	pthread_join(f.thread, NULL);
	vcpu_stop(&self->rig.vm, 0);
	TH_LOG("%u forks", f.forks);
	EXPECT_LE(4, f.forks);
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

/* A VMM with a vCPU that runs. */
static void be_a_vmm(struct vm *vm, void *arg)
{
	struct ram *ram = arg;

	require(!vm_slot(vm, 1, 0, RAM_GPA, ram->bytes, ram->map), "a slot");
	vm_table_add(vm, RAM_GPA, ram->bytes / PAGE);
	vcpu_start(vm, 0, 1);
}

static void *kill_later(void *arg)
{
	pid_t pid = *(pid_t *)arg;

	sleep_ms(pid % 50);
	kill(pid, SIGKILL);
	return NULL;
}

/* One VMM that is killed in the middle of something. */
static void killed_once(struct ram *ram)
{
	int vm_fd, r;
	pid_t pid = vm_elsewhere(be_a_vmm, ram, &vm_fd);
	pthread_t thread;
	struct session s;

	require(!pthread_create(&thread, NULL, kill_later, &pid), "pthread_create");

	session_open(&s);
	r = session_attach(&s, vm_fd);
	close(vm_fd);
	if (!r)
		r = session_add_ram(&s, ram->fd);
	if (!r)
		r = session_start(&s);
	while (!r)
		r = session_sync(&s, NULL);
	errno = -r;
	require(r == -EOWNERDEAD, "the answer when the VM has died");
	session_close(&s);
	pthread_join(thread, NULL);
	wait_process(pid);
}

TEST(the_vmm_is_killed)
{
	unsigned int n;
	struct ram ram;

	ASSERT_EQ(0, ram_create(&ram, RAM_TMPFS, BYTES));
	for (n = 0; n < VMMS; n++)
		killed_once(&ram);
	ram_destroy(&ram);
}

KST_MAIN
