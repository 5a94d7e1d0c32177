// SPDX-License-Identifier: GPL-2.0-only
/*
 * For a bounded time, and 50 times in make check-all: helpers of a post-copy are killed at any
 * moment, the process that they serve is killed or execs at any moment, helpers fight for a keep.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "kst.h"
#include "postcopy.h"

#define PAGES		4096
#define RACE_MS		1000
#define DEATHS		6	/* at least, with the pages served in between */
#define ROUNDS		30
#define FIGHTERS	3
#define GONE_MS		5000
#define KEPT		SYSFS "kept_userfaultfds"

FIXTURE(races) {
	struct ram ram;
	struct player p;
	uint32_t seed;
};

FIXTURE_SETUP(races)
{
	self->seed = random_seed();
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	player_start(&self->p, &self->ram);
}

FIXTURE_TEARDOWN(races)
{
	player_end(&self->p);
	ram_destroy(&self->ram);
}

static unsigned int draw_below(uint32_t *seed, unsigned int limit)
{
	*seed = *seed * 1664525 + 1013904223;
	return (*seed >> 8) % limit;
}

static bool none_kept_within(unsigned int ms)
{
	uint64_t begin = now_ms();

	while (file_number(KEPT) && now_ms() - begin < ms)
		sleep_ms(10);
	return !file_number(KEPT);
}

static void begin_and_leave(void *arg)
{
	struct helper h;

	helper_begin(&h, arg, 1);
}

/* Serves until it is killed. The one before may still exit. */
static void take_and_serve(struct player *p)
{
	struct helper h = { .dev = open_godwit() };
	int r;

	while ((r = keep_begin(h.dev, 1, GODWIT_KEEP_TAKE, NULL)) == -EBUSY)
		sleep_ms(1);
	prove(!r, "a helper that was killed has left its keep");
	h.uffd = keep_uffd(h.dev, p->pid, &h.kept);
	prove(h.uffd >= 0 && h.kept, "what it had is kept");
	require(!helper_wake(&h, p), "UFFDIO_WAKE");
	for (;;) {
		int64_t page = helper_fault(&h, p, 1000);

		r = page < 0 ? 0 : helper_copy(&h, p, page);
		require(!r || r == -EEXIST, "UFFDIO_COPY");
	}
}

/* Helpers one after the other, each with a short life. Ends when one has died of something else. */
static void kill_helpers(struct player *p, uint32_t seed, volatile unsigned int *deaths)
{
	for (;;) {
		pid_t pid = fork_child();

		if (!pid)
			take_and_serve(p);
		sleep_ms(draw_below(&seed, 60));
		kill(pid, SIGKILL);
		if (wait_process(pid) != 128 + SIGKILL)
			_exit(1);
		++*deaths;
	}
}

TEST_F(races, helpers_are_killed)
{
	volatile unsigned int *deaths = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
					     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t begin = now_ms();
	unsigned int page, n;
	pid_t pid;

	ASSERT_NE(MAP_FAILED, deaths);
	kill_process(fork_ready(begin_and_leave, &self->p));
	pid = fork_child();
	if (!pid)
		kill_helpers(&self->p, self->seed, deaths);
	/* Each thread waits for a page. */
	for (page = 0; page < PAGES && (now_ms() - begin < RACE_MS || *deaths < DEATHS); page++) {
		n = page % TOUCHES;
		if (page >= TOUCHES)
			PROOF(ASSERT_TRUE(player_saw(&self->p, n)));
		player_touch(&self->p, n, page % 3 ? TOUCH_LOAD : TOUCH_SYSCALL, page);
	}
	for (n = 0; n < TOUCHES; n++)
		PROOF(EXPECT_TRUE(player_saw(&self->p, n)));
	PROOF(EXPECT_EQ(0, waitpid(pid, NULL, WNOHANG)));
	TH_LOG("%u pages, %u deaths", page, *deaths);
	EXPECT_LE(DEATHS, *deaths);
	kill_process(pid);
	player_end(&self->p);
	PROOF(EXPECT_TRUE(none_kept_within(GONE_MS)));
	player_start(&self->p, &self->ram);
}

static void wait_only(void *arg)
{
	(void)arg;
}

/* One program after the other, in one process. */
static void exec_again(void)
{
	setenv("AGAIN", "exec sh -c \"$AGAIN\"", 1);
	execl("/bin/sh", "sh", "-c", "exec sh -c \"$AGAIN\"", NULL);
	_exit(1);
}

/* What may be answered for a process that goes, or becomes another program, at any moment. */
static bool is_an_answer(int r)
{
	return r >= 0 || r == -ESRCH || r == -ENOENT;
}

/* Returns how many answers were a userfaultfd; *wrong: the last one that should not be. */
static unsigned int ask_until_gone(int dev, pid_t pid, int *wrong)
{
	unsigned int given = 0;
	int r;

	do {
		r = keep_uffd(dev, pid, NULL);
		if (!is_an_answer(r))
			*wrong = r;
		given += r >= 0;
		if (r >= 0)
			close(r);
	} while (r >= 0);
	return given;
}

TEST_F(races, process_is_killed)
{
	unsigned int n, given = 0, files;
	int dev = open_godwit(), wrong = 0;

	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	files = files_open(getpid());
	for (n = 0; n < ROUNDS; n++) {
		unsigned int lives_ms = draw_below(&self->seed, 12);
		pid_t pid = fork_ready(wait_only, NULL), killer = fork_child();

		if (!killer) {
			sleep_ms(lives_ms);
			kill(pid, SIGKILL);
			_exit(0);
		}
		/* It is a zombie from then on, whose memory cannot be opened, until it is waited for. */
		given += ask_until_gone(dev, pid, &wrong);
		wait_process(killer);
		wait_process(pid);
	}
	TH_LOG("%u given", given);
	PROOF(EXPECT_EQ(0, wrong));
	PROOF(EXPECT_EQ(files, files_open(getpid())));
	PROOF(EXPECT_TRUE(none_kept_within(GONE_MS)));
	close(dev);
}

TEST_F(races, process_execs)
{
	unsigned int given = 0;
	int dev = open_godwit(), wrong = 0;
	uint64_t begin = now_ms();
	pid_t pid = fork_child();

	if (!pid)
		exec_again();
	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	while (now_ms() - begin < (given > 3 ? 1 : 20) * RACE_MS) {
		int r = keep_uffd(dev, pid, NULL);

		/* Programs of the last second may still count. */
		if (!is_an_answer(r) && r != -ENOSPC)
			wrong = r;
		given += r >= 0;
		if (r >= 0)
			close(r);
	}
	TH_LOG("%u given", given);
	EXPECT_LT(3, given);
	PROOF(EXPECT_EQ(0, wrong));
	kill_process(pid);
	PROOF(EXPECT_TRUE(none_kept_within(GONE_MS)));
	close(dev);
}

/* Shared: how many have the keep now, had it in all, and what went wrong. */
struct fight {
	atomic_int now, most, wins, wrong;
};

static void fight(struct fight *f, struct player *p)
{
	for (;;) {
		int dev = open_godwit(), uffd, r = keep_begin(dev, 1, GODWIT_KEEP_TAKE, NULL);
		bool kept = false;

		if (!r) {
			int now = atomic_fetch_add(&f->now, 1) + 1;

			if (now > atomic_load(&f->most))
				atomic_store(&f->most, now);
			uffd = keep_uffd(dev, p->pid, &kept);
			if (uffd < 0 || !kept)
				atomic_store(&f->wrong, uffd < 0 ? uffd : 1);
			if (uffd >= 0)
				close(uffd);
			atomic_fetch_add(&f->wins, 1);
			atomic_fetch_sub(&f->now, 1);
		} else if (r != -EBUSY) {
			atomic_store(&f->wrong, r);
		}
		close(dev);
	}
}

TEST_F(races, helpers_fight)
{
	struct fight *f = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[FIGHTERS];
	uint64_t begin = now_ms();
	unsigned int n;
	int most;

	ASSERT_NE(MAP_FAILED, f);
	kill_process(fork_ready(begin_and_leave, &self->p));
	for (n = 0; n < FIGHTERS; n++) {
		pids[n] = fork_child();
		if (!pids[n])
			fight(f, &self->p);
	}
	while (now_ms() - begin < (atomic_load(&f->wins) > FIGHTERS ? 1 : 20) * RACE_MS)
		sleep_ms(10);
	/* Now, as one that is killed with the keep does not count itself out. */
	most = atomic_load(&f->most);
	for (n = 0; n < FIGHTERS; n++)
		kill_process(pids[n]);
	TH_LOG("%d wins", atomic_load(&f->wins));
	EXPECT_LT(FIGHTERS, atomic_load(&f->wins));
	PROOF(EXPECT_EQ(1, most));
	PROOF(EXPECT_EQ(0, atomic_load(&f->wrong)));
	PROOF(EXPECT_EQ(1, file_number(KEPT)));
}

KST_MAIN
