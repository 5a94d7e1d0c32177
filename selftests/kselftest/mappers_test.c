// SPDX-License-Identifier: GPL-2.0-only
/* GODWIT_MAPPERS: which processes can store to a RAM file, whatever they are made of, and no others. */
#include <assert.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kst.h"
#include "rig.h"

#define ROOM	16
#define UNTOLD	0xdeadU

static_assert(sizeof(struct godwit_mappers) == 24, "ABI");
static_assert(offsetof(struct godwit_mappers, room) == 8, "ABI");

FIXTURE(mappers) {
	struct rig rig;
	uint32_t pids[ROOM];
};

/* This process has the VM and maps its RAM; what it forks maps it as well, unless it says otherwise. */
FIXTURE_SETUP(mappers)
{
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, 4 * MIB));
	rig_begin(&self->rig, 3, 4 * MIB);
}

FIXTURE_TEARDOWN(mappers)
{
	rig_end(&self->rig);
}

/* How many there are, or -errno. */
static int ask(int fd, uint32_t *pids, uint32_t room)
{
	struct godwit_mappers a = { .pids = (uintptr_t)pids, .room = room };
	unsigned int i;

	for (i = 0; pids && i < ROOM; i++)
		pids[i] = UNTOLD;
	return ioctl(fd, GODWIT_MAPPERS, &a) ? -errno : (int)a.count;
}

/* After a harvest, which sees new mappings. */
static int harvest_and_ask(struct _test_data_mappers *self)
{
	require(!session_harvest(&self->rig.s, NULL), "a harvest");
	return ask(self->rig.s.fd, self->pids, ROOM);
}

static unsigned int told(const uint32_t *pids, pid_t pid)
{
	unsigned int i, n = 0;

	for (i = 0; i < ROOM; i++)
		n += pids[i] == (uint32_t)pid;
	return n;
}

static void nothing(void *arg)
{
	(void)arg;
}

TEST_F(mappers, the_vmm_alone)
{
	PROOF(EXPECT_EQ(1, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(1, told(self->pids, getpid())));
}

TEST_F(mappers, one_more)
{
	pid_t pid = fork_ready(nothing, NULL);

	/* What no harvest has seen yet is not told. */
	EXPECT_EQ(1, ask(self->rig.s.fd, self->pids, ROOM));
	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(1, told(self->pids, getpid())));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	kill_process(pid);
	/* Its mm has gone before it could be waited for. */
	PROOF(EXPECT_EQ(1, ask(self->rig.s.fd, self->pids, ROOM)));
	PROOF(EXPECT_EQ(0, told(self->pids, pid)));
}

TEST_F(mappers, a_zombie_stores_nothing)
{
	pid_t pid = fork_ready(nothing, NULL);
	siginfo_t info;

	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	kill(pid, SIGKILL);
	ASSERT_EQ(0, waitid(P_PID, pid, &info, WEXITED | WNOWAIT));
	PROOF(EXPECT_EQ(1, ask(self->rig.s.fd, self->pids, ROOM)));
	wait_process(pid);
}

/* Instead of the mapping that it has inherited: one whose stores never reach the file. */
static void map_for_reading(void *arg)
{
	struct ram *ram = arg;
	char path[64];
	int fd;

	munmap(ram->map, ram->bytes);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", ram->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	require(fd >= 0 && mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED, "a mapping for reading");
	require(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, ram->fd, 0) != MAP_FAILED, "a private mapping");
}

TEST_F(mappers, readers_are_left_out)
{
	pid_t pid = fork_ready(map_for_reading, &self->rig.ram);

	PROOF(EXPECT_EQ(1, harvest_and_ask(self)));
	kill_process(pid);
}

/* A mapping that could be made writable counts. */
static void protect(void *arg)
{
	struct ram *ram = arg;

	require(!mprotect(ram->map, ram->bytes, PROT_NONE), "mprotect");
}

TEST_F(mappers, protected_for_now)
{
	pid_t pid = fork_ready(protect, &self->rig.ram);

	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	kill_process(pid);
}

static int pipes[2];

static void *stay(void *unused)
{
	(void)unused;
	require(write(pipes[1], "", 1) == 1, "write");
	for (;;)
		pause();
}

/* Its leader exits and its threads run on. */
static pid_t headless(unsigned int threads)
{
	pid_t pid;
	char byte;

	require(!pipe(pipes), "pipe");
	pid = fork_child();
	if (!pid) {
		pthread_t thread;

		while (threads--)
			require(!pthread_create(&thread, NULL, stay, NULL), "a thread");
		syscall(SYS_exit, 0);
	}
	for (unsigned int i = 0; i < threads; i++)
		require(read(pipes[0], &byte, 1) == 1, "a thread");
	return pid;
}

TEST_F(mappers, threads_without_a_leader)
{
	pid_t pid = headless(3);

	while (process_state(pid) != 'Z')
		sleep_ms(1);
	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	kill_process(pid);
}

static int stay_alone(void *unused)
{
	(void)unused;
	return pause();
}

/* Two processes, one mm: both are told. */
TEST_F(mappers, one_mm_of_two)
{
	uint8_t *stack = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	ASSERT_NE(MAP_FAILED, stack);
	pid = clone(stay_alone, stack + MIB, CLONE_VM | SIGCHLD, NULL);
	ASSERT_LT(0, pid);
	PROOF(EXPECT_EQ(2, ask(self->rig.s.fd, self->pids, ROOM)));
	PROOF(EXPECT_EQ(1, told(self->pids, getpid())));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	kill_process(pid);
}

/* The first process of a pid namespace, where this one and its own parent cannot be seen. */
static void look_from_within(struct _test_data_mappers *self)
{
	require(getpid() == 1, "a pid namespace");
	prove(harvest_and_ask(self) == 3, "three processes map the RAM");
	prove(told(self->pids, 1) == 1, "it sees itself");
	prove(told(self->pids, 0) == 2, "and not the others");
	_exit(0);
}

TEST_F(mappers, pid_namespaces)
{
	pid_t parent = fork_child();

	if (!parent) {
		pid_t first;

		require(!unshare(CLONE_NEWPID), "unshare");
		first = fork_child();
		if (!first)
			look_from_within(self);
		_exit(wait_process(first));
	}
	PROOF(EXPECT_EQ(0, wait_process(parent)));
	PROOF(EXPECT_EQ(1, harvest_and_ask(self)));
}

#define VHOST_FD	200

static void own_vhost(void *arg)
{
	int fd = open("/dev/vhost-net", O_RDWR | O_CLOEXEC);

	(void)arg;
	require(dup2(fd, VHOST_FD) == VHOST_FD, "/dev/vhost-net");
	close(fd);
	require(!ioctl(VHOST_FD, VHOST_SET_OWNER), "VHOST_SET_OWNER");
}

/* A device keeps the mm of a process that has ended, and its mappings: counted, as pid 0. */
TEST_F(mappers, held_by_a_device)
{
	int pidfd, fd;
	pid_t pid;

	if (system("modprobe vhost_net") || access("/dev/vhost-net", F_OK))
		SKIP(return, "no vhost-net");
	pid = fork_ready(own_vhost, NULL);
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	fd = syscall(SYS_pidfd_getfd, pidfd, VHOST_FD, 0);
	ASSERT_LE(0, fd);
	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	kill_process(pid);
	PROOF(EXPECT_EQ(2, ask(self->rig.s.fd, self->pids, ROOM)));
	PROOF(EXPECT_EQ(1, told(self->pids, 0)));
	close(fd);
	close(pidfd);
	PROOF(EXPECT_EQ(1, harvest_and_ask(self)));
}

TEST_F(mappers, little_room)
{
	pid_t pid = fork_ready(nothing, NULL);

	PROOF(EXPECT_EQ(2, harvest_and_ask(self)));
	PROOF(EXPECT_EQ(2, ask(self->rig.s.fd, NULL, 0)));
	PROOF(EXPECT_EQ(2, ask(self->rig.s.fd, self->pids, 1)));
	PROOF(EXPECT_NE(UNTOLD, self->pids[0]));
	PROOF(EXPECT_EQ(UNTOLD, self->pids[1]));
	PROOF(EXPECT_EQ(2, ask(self->rig.s.fd, self->pids, 2)));
	PROOF(EXPECT_EQ(UNTOLD, self->pids[2]));
	kill_process(pid);
}

TEST_F(mappers, wrong_arguments)
{
	struct godwit_mappers good = { .pids = (uintptr_t)self->pids, .room = ROOM }, a;
	unsigned int bit;

	for (bit = 0; bit < 32; bit++) {
		a = good;
		a.flags = 1U << bit;
		EXPECT_EQ(-1, ioctl(self->rig.s.fd, GODWIT_MAPPERS, &a));
		EXPECT_EQ(EINVAL, errno);
		a = good;
		a.reserved = 1U << bit;
		EXPECT_EQ(-1, ioctl(self->rig.s.fd, GODWIT_MAPPERS, &a));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(-EINVAL, ask(self->rig.s.fd, NULL, GODWIT_MAPPERS_MAX + 1));
	EXPECT_EQ(-EINVAL, ask(self->rig.s.fd, NULL, UINT32_MAX));
	EXPECT_EQ(-EFAULT, ask(self->rig.s.fd, NULL, ROOM));
	/* Only what is stored has to be there. */
	a = good;
	a.room = GODWIT_MAPPERS_MAX;
	EXPECT_EQ(0, ioctl(self->rig.s.fd, GODWIT_MAPPERS, &a));
	EXPECT_EQ(1, a.count);
}

static void furnish(struct vm *vm, void *arg)
{
	struct ram *ram = arg;

	require(!vm_slot(vm, 1, 0, RAM_GPA, ram->bytes, ram->map), "a slot");
}

/* Another VMM's: before START nothing is known, after its end nothing is left. */
TEST_F(mappers, states)
{
	struct session s;
	struct ram ram;
	int vm_fd;
	pid_t pid;

	ASSERT_EQ(0, ram_create(&ram, RAM_TMPFS, MIB));
	pid = vm_elsewhere(furnish, &ram, &vm_fd);
	munmap(ram.map, ram.bytes);
	session_open(&s);
	EXPECT_EQ(-ENODATA, ask(s.fd, self->pids, ROOM));
	ASSERT_EQ(0, session_attach(&s, vm_fd));
	ASSERT_EQ(0, session_add_ram(&s, ram.fd));
	EXPECT_EQ(-ENODATA, ask(s.fd, self->pids, ROOM));
	ASSERT_EQ(0, session_start(&s));
	PROOF(EXPECT_EQ(1, ask(s.fd, self->pids, ROOM)));
	PROOF(EXPECT_EQ(1, told(self->pids, pid)));
	close(vm_fd);
	kill_process(pid);
	EXPECT_EQ(-EOWNERDEAD, ask(s.fd, self->pids, ROOM));
	session_close(&s);
	close(ram.fd);
}

KST_MAIN
