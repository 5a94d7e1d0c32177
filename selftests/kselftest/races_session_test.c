// SPDX-License-Identifier: GPL-2.0-only
/*
 * For a bounded time, and 50 times in make check-all: entries go away under a harvest, a session is closed under a
 * call, sessions fight.
 */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "kst.h"
#include "rig.h"

#define RACE_MS		1000
#define SESSIONS	20
#define BYTES	(1UL << 20)

FIXTURE(gone) {
	struct rig rig;
};

FIXTURE_VARIANT(gone) {
	void (*way)(struct rig *rig);
};

static void map_anew(struct rig *rig)
{
	require(!munmap(rig->ram.map, BYTES), "munmap");
	rig->ram.map = ram_map(&rig->ram);
	require(rig->ram.map, "mmap");
}

static void punch(struct rig *rig)
{
	require(!fallocate(rig->ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, BYTES / 4, BYTES / 2), "fallocate");
}

FIXTURE_VARIANT_ADD(gone, dontneed) { .way = rig_drop };
FIXTURE_VARIANT_ADD(gone, pageout) { .way = rig_page_out };
FIXTURE_VARIANT_ADD(gone, munmap) { .way = map_anew };
FIXTURE_VARIANT_ADD(gone, punch_hole) { .way = punch };

static void (*the_way)(struct rig *rig);

/* Odd steps go on until the next step is asked for. */
static void write_and_drop(struct rig *rig, unsigned int step)
{
	static uint64_t value;
	unsigned int i;

	while (step % 2 && rig->writer.shared->step == step) {
		for (i = 0; i < 32; i++, value++)
			*(volatile uint64_t *)(rig->ram.map + value * 37 % 256 * PAGE) = value;
		the_way(rig);
	}
}

FIXTURE_SETUP(gone)
{
	the_way = variant->way;
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	rig_writer(&self->rig, write_and_drop);
	rig_begin(&self->rig, 3, BYTES);
}

FIXTURE_TEARDOWN(gone)
{
	rig_end(&self->rig);
}

TEST_F(gone, under_harvests)
{
	uint64_t end = now_ms() + RACE_MS;
	unsigned int i;

	while (now_ms() < end) {
		writer_step(&self->rig.writer);
		for (i = 0; i < 10; i++)
			rig_round(&self->rig, true);
		writer_step_wait(&self->rig.writer);
		rig_round(&self->rig, false);
		/* Punching unmaps first; a copy of what was read before the pages went is put right by the file itself. */
		shadow_take_holes(&self->rig.shadow);
		PROOF(ASSERT_EQ(0, shadow_differs(&self->rig.shadow)));
	}
}

FIXTURE(fight) {
	struct vm vm;
	struct ram ram;
};

FIXTURE_SETUP(fight)
{
	vm_create(&self->vm, 1, 3);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, BYTES));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, BYTES, self->ram.map));
	vm_table_add(&self->vm, RAM_GPA, BYTES / PAGE);
}

FIXTURE_TEARDOWN(fight)
{
	ram_destroy(&self->ram);
	vm_destroy(&self->vm);
}

static void *harvest_until_closed(void *arg)
{
	struct session *s = arg;
	long r;

	while (!(r = session_sync(s, NULL)))
		;
	return (void *)r;
}

TEST_F(fight, closed_under_a_call)
{
	unsigned int n;

	vcpu_start(&self->vm, 0, random_seed());
	for (n = 0; n < SESSIONS; n++) {
		pthread_t threads[2];
		struct session s;
		unsigned int i;
		void *r;

		session_begin(&s, self->vm.fd, &self->ram.fd, 1);
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL, harvest_until_closed, &s));
		sleep_ms(n);
		session_close(&s);
		for (i = 0; i < 2; i++) {
			pthread_join(threads[i], &r);
			EXPECT_EQ(-EBADF, (long)r);
		}
	}
	vcpu_stop(&self->vm, 0);
}

/* Attaches whenever it can, until both sides could; won: how often each could, shared. */
static void fight_for(int vm_fd, int ram_fd, volatile unsigned int *won, unsigned int side)
{
	uint64_t begin = now_ms();

	while (now_ms() - begin < (won[0] && won[1] ? 1 : 20) * RACE_MS) {
		struct session s;
		int r;

		session_open(&s);
		r = session_attach(&s, vm_fd);
		require(!r || r == -EBUSY, "GODWIT_ATTACH");
		if (!r) {
			require(!session_add_ram(&s, ram_fd) && !session_start(&s), "GODWIT_START");
			require(!session_sync(&s, NULL), "GODWIT_HARVEST");
			won[side]++;
		}
		session_close(&s);
		sleep_ms(1 + won[side] % 3);
	}
}

TEST_F(fight, two_for_a_vm)
{
	volatile unsigned int *won = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, won);
	pid = fork_child();
	if (!pid) {
		fight_for(self->vm.fd, self->ram.fd, won, 1);
		_exit(0);
	}
	fight_for(self->vm.fd, self->ram.fd, won, 0);
	EXPECT_EQ(0, wait_process(pid));
	TH_LOG("won %u and %u times", won[0], won[1]);
	EXPECT_LT(0, won[0]);
	EXPECT_LT(0, won[1]);
	sessions_wait_none();
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 1)));
}

KST_MAIN
