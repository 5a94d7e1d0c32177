// SPDX-License-Identifier: GPL-2.0-only
/*
 * What counts as a process that lives: a userfaultfd that is let go too early gives its guest zeros.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "kst.h"
#include "postcopy.h"

#define LOOK_MS	1000	/* the module's */
#define KEPT	SYSFS "kept_userfaultfds"
#define STACK	(64UL << 10)

/* Shared with the process. */
struct words {
	volatile bool go;
	volatile pid_t sharer;
};

FIXTURE(lives) {
	struct words *words;
	pid_t pid;
};

static void *wait_for_ever(void *arg)
{
	for (;;)
		sleep_ms(1000);
	return arg;
}

static int share(void *arg)
{
	return !wait_for_ever(arg);
}

/* Its leader exits when it is told to; another thread lives on. */
static void lose_leader(struct words *w)
{
	pthread_t thread;

	require(!pthread_create(&thread, NULL, wait_for_ever, NULL), "pthread_create");
	while (!w->go)
		sleep_ms(1);
	pthread_exit(NULL);
}

/* Another process has the same memory. */
static void have_a_sharer(struct words *w)
{
	uint8_t *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(stack != MAP_FAILED, "mmap");
	w->sharer = clone(share, stack + STACK, CLONE_VM | SIGCHLD, NULL);
	require(w->sharer > 0, "clone");
	wait_for_ever(NULL);
}

FIXTURE_SETUP(lives)
{
	self->words = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->words);
}

FIXTURE_TEARDOWN(lives)
{
	munmap(self->words, PAGE);
}

/* The module has a userfaultfd of it, and no helper has. */
static void leave_one(pid_t pid)
{
	int dev = open_godwit(), uffd;

	require(!keep_begin(dev, 1, 0, NULL), "GODWIT_KEEP");
	uffd = keep_uffd(dev, pid, NULL);
	require(uffd >= 0, "GODWIT_UFFD");
	close(uffd);
	close(dev);
}

/* While the module looks twice. */
static bool is_kept(void)
{
	sleep_ms(2 * LOOK_MS + LOOK_MS / 2);
	return file_number(KEPT) == 1;
}

static bool goes(void)
{
	uint64_t begin = now_ms();

	while (file_number(KEPT) && now_ms() - begin < 10 * LOOK_MS)
		sleep_ms(10);
	return !file_number(KEPT);
}

TEST_F(lives, without_its_leader)
{
	pid_t pid = fork_child();

	if (!pid)
		lose_leader(self->words);
	leave_one(pid);
	PROOF(EXPECT_TRUE(is_kept()));
	self->words->go = true;
	while (process_state(pid) != 'Z')
		sleep_ms(1);
	PROOF(EXPECT_TRUE(is_kept()));
	kill_process(pid);
	PROOF(EXPECT_TRUE(goes()));
}

TEST_F(lives, in_another_process)
{
	pid_t pid = fork_child();

	if (!pid)
		have_a_sharer(self->words);
	while (!self->words->sharer)
		sleep_ms(1);
	leave_one(pid);
	kill_process(pid);
	PROOF(EXPECT_TRUE(is_kept()));
	kill(self->words->sharer, SIGKILL);
	PROOF(EXPECT_TRUE(goes()));
}

/* Stopped, as by a debugger. */
TEST_F(lives, while_it_is_stopped)
{
	pid_t pid = fork_child();

	if (!pid)
		wait_for_ever(NULL);
	leave_one(pid);
	kill(pid, SIGSTOP);
	PROOF(EXPECT_TRUE(is_kept()));
	kill_process(pid);
	PROOF(EXPECT_TRUE(goes()));
}

KST_MAIN
