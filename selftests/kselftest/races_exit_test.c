// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process that maps the RAM exits: while another one takes pages out of its mapping, while its aio does not end, while
 * it forks.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/mman.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "blockdev.h"
#include "kst.h"
#include "rig.h"

#define BYTES	(64UL << 20)
#define TRIES	10	/* without the repair each of them fails */
#define NEWS	300	/* more mappings than a sweep takes in at a time (kmod/ledger/sweep.h) */
#define THE_PAGE	7UL	/* the page that they show */
#define FORKS	4	/* without the repair Linux 6.12 fails at the first */
#define VMAS	60000UL	/* so many take long to be copied; 65,530 are allowed */
#define MAKE_MS	5000	/* a kernel that checks its tree at each change makes fewer meanwhile, and copies them as slowly */
#define LOW	((void *)(16 * MIB))	/* below all else that a program has */

/* Between the test and the process. */
static struct told {
	volatile bool ready;
	volatile bool go;
	volatile bool forks;
	volatile bool forked;
	volatile uint64_t delay_ns;
} *told;

FIXTURE(exits) {
	struct rig rig;
};

FIXTURE_SETUP(exits)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	told = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, told);
	rig_begin(&self->rig, 3, PAGE);
	pin_to_cpu(0);
}

FIXTURE_TEARDOWN(exits)
{
	if (self->rig.ram.map)
		rig_end(&self->rig);
}

/* CPU 1: has an entry for each page, and exits so long after it is told to. */
static void map_and_exit(struct rig *rig)
{
	uint64_t at, end;

	pin_to_cpu(1);
	for (at = 0; at < BYTES; at += PAGE)
		(void)*(volatile uint8_t *)(rig->ram.map + at);
	told->ready = true;
	while (!told->go)
		;
	for (end = now_ns() + told->delay_ns; now_ns() < end; )
		;
	_exit(0);
}

/* Returns how long the punch took. */
static uint64_t punch_while_it_exits(struct rig *rig)
{
	uint64_t began;
	pid_t pid;

	require(!fallocate(rig->ram.fd, 0, 0, BYTES), "fallocate");
	told->ready = told->go = false;
	pid = fork_child();
	if (!pid)
		map_and_exit(rig);
	while (!told->ready)
		sched_yield();
	require(!session_harvest(&rig->s, NULL), "a harvest that finds the mapping");
	began = now_ns();
	told->go = true;
	require(!fallocate(rig->ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), "a hole");
	began = now_ns() - began;
	wait_process(pid);
	return began;
}

/*
 * The kernel tells a process that exits of no end any more. A hole that is punched meanwhile is reported once, and not
 * by each harvest from then on.
 */
TEST_F_TIMEOUT(exits, while_a_hole_is_punched, 120)
{
	unsigned int i, again = 0;
	struct godwit_harvest h;
	uint64_t took = 0;

	if (!self->rig.ram.map)
		return;
	srand(random_seed());
	for (i = 0; i < TRIES; i++) {
		told->delay_ns = took ? (uint64_t)rand() % took : 0;
		took = punch_while_it_exits(&self->rig);
		ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
		PROOF(EXPECT_EQ(BYTES / PAGE, bits_count(&self->rig.s.ram[0])));
		bits_forget(&self->rig.s.ram[0]);
		ASSERT_EQ(0, session_harvest(&self->rig.s, &h));
		again += h.pages[GODWIT_ROW_UNMAP] > 0 || bits_count(&self->rig.s.ram[0]) == BYTES / PAGE;
		bits_forget(&self->rig.s.ram[0]);
	}
	TH_LOG("a punch took %lu us", took / 1000);
	PROOF(EXPECT_EQ(0, again));
}

static void suspend(bool on)
{
	require(!system(on ? "dmsetup --noudevsync suspend --nolockfs kst-linear" : "dmsetup --noudevsync resume kst-linear"),
		"dmsetup");
}

/* Maps one page of the RAM so often, asks a suspended disk for a block, and exits: its mappings stay until the answer. */
static void map_often_and_exit(struct rig *rig, int disk)
{
	static uint8_t block[PAGE] __attribute__((aligned(PAGE)));
	struct iocb read = {
		.aio_fildes = (uint32_t)disk,
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_buf = (uintptr_t)block,
		.aio_nbytes = PAGE,
	}, *reads = &read;
	aio_context_t ctx = 0;
	unsigned int i;

	session_unmap(&rig->s);
	close(rig->s.fd);
	require(!munmap(rig->ram.map, BYTES), "munmap");
	for (i = 0; i < NEWS; i++) {
		volatile uint8_t *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rig->ram.fd, THE_PAGE * PAGE);

		require(page != MAP_FAILED, "mmap");
		*page = 1;
	}
	require(!syscall(SYS_io_setup, 1, &ctx), "io_setup");
	require(syscall(SYS_io_submit, ctx, 1, &reads) == 1, "io_submit");
	told->ready = true;
	_exit(0);
}

/* A harvest does not wait for its end: that may never come, and the guest may stand still. */
TEST_F_TIMEOUT(exits, while_its_aio_hangs, 120)
{
	char node[BLOCKDEV_NODE];
	int disk;
	pid_t pid;

	if (!self->rig.ram.map)
		return;
	ASSERT_EQ(0, blockdev_make(&blockdevs[DEV_BRD], node));
	disk = blockdev_open(&blockdevs[DEV_DM_LINEAR]);
	ASSERT_LE(0, disk);
	ASSERT_EQ(0, session_harvest(&self->rig.s, NULL));
	bits_forget(&self->rig.s.ram[0]);
	suspend(true);
	told->ready = false;
	pid = fork_child();
	if (!pid)
		map_often_and_exit(&self->rig, disk);
	while (!told->ready || process_state(pid) != 'D')
		sleep_ms(1);
	PROOF(EXPECT_EQ(0, session_harvest(&self->rig.s, NULL)));
	PROOF(EXPECT_EQ('D', process_state(pid)));
	PROOF(EXPECT_TRUE(bit_set(&self->rig.s.ram[0], THE_PAGE)));
	PROOF(EXPECT_EQ(1, bits_count(&self->rig.s.ram[0])));
	suspend(false);
	wait_process(pid);
	close(disk);
	EXPECT_TRUE(blockdevs_drop_but(0));
}

/* Its mapping of the RAM is the first to be copied when it forks. No two of those behind it can be merged. */
static void map_much_and_fork(struct rig *rig)
{
	uint64_t i, began = now_ms();
	uint8_t *many;

	pin_to_cpu(1);
	session_unmap(&rig->s);
	close(rig->s.fd);
	require(!munmap(rig->ram.map, BYTES), "munmap");
	require(mmap(LOW, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, rig->ram.fd, 0) == LOW,
		"a low mapping");
	many = mmap(NULL, VMAS * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	require(many != MAP_FAILED, "mmap");
	for (i = 0; i < VMAS && now_ms() - began < MAKE_MS; i += 2)
		require(!mprotect(many + i * PAGE, PAGE, PROT_READ), "mprotect");
	told->ready = true;
	while (!told->go)
		;
	told->forks = true;
	if (fork() >= 0)
		told->forked = true;
	pause();
	_exit(0);
}

/* Kills one that forks, so long after it has begun. */
static void kill_while_it_forks(struct rig *rig, unsigned int us)
{
	pid_t pid = fork_child();

	if (!pid)
		map_much_and_fork(rig);
	while (!told->forks)
		sched_yield();
	usleep(us);
	kill_process(pid);
	_exit(0);
}

/*
 * What it was about to make of itself has mappings of the RAM, and no process: from Linux 6.8 on a harvest that waits
 * for their lock gets it when the fork has failed, and what is behind them is not to be touched.
 */
TEST_F_TIMEOUT(exits, while_it_forks, 240)
{
	unsigned int i, broken_off = 0;
	struct vm another;

	if (!self->rig.ram.map)
		return;
	srand(random_seed());
	for (i = 0; i < FORKS; i++) {
		pid_t pid;

		told->ready = told->go = told->forks = told->forked = false;
		pid = fork_child();
		if (!pid)
			kill_while_it_forks(&self->rig, (unsigned int)rand() % 50000);
		while (!told->ready)
			sleep_ms(1);
		ASSERT_EQ(0, session_harvest(&self->rig.s, NULL));
		told->go = true;
		while (!waitpid(pid, NULL, WNOHANG)) {
			int r = session_harvest(&self->rig.s, NULL);

			PROOF(ASSERT_TRUE(!r || r == -EAGAIN));
		}
		broken_off += !told->forked;
		PROOF(ASSERT_EQ(0, session_harvest(&self->rig.s, NULL)));
	}
	TH_LOG("%u of %u forks were broken off", broken_off, FORKS);
	SHOWN(broken_off);
	/* It takes the lock that a register of a notifier that went wrong would have kept. */
	vm_create(&another, 1, 3);
	vm_destroy(&another);
}

KST_MAIN
