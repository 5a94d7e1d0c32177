// SPDX-License-Identifier: GPL-2.0-only
/* The userfaultfd of another process: its faults are served, and nothing else of it changes. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "kst.h"
#include "postcopy.h"

#define PAGES	8
#define AT_ONCE	8

FIXTURE(uffd) {
	struct ram ram;
	struct player p;
	struct helper h;
};

FIXTURE_VARIANT(uffd) {
	enum ram_kind kind;
	uint64_t page;
};

FIXTURE_VARIANT_ADD(uffd, tmpfs_4k) { .kind = RAM_TMPFS, .page = PAGE };
FIXTURE_VARIANT_ADD(uffd, hugetlbfs_2m) { .kind = RAM_2M, .page = 2 * MIB };

FIXTURE_SETUP(uffd)
{
	ASSERT_EQ(0, ram_create(&self->ram, variant->kind, PAGES * variant->page));
	player_start(&self->p, &self->ram);
}

FIXTURE_TEARDOWN(uffd)
{
	player_end(&self->p);
	ram_destroy(&self->ram);
}

TEST_F(uffd, serves)
{
	unsigned int n;

	helper_begin(&self->h, &self->p, 1);
	for (n = 0; n < TOUCHES; n++) {
		player_touch(&self->p, n, n % 2 ? TOUCH_SYSCALL : TOUCH_LOAD, n);
		PROOF(ASSERT_EQ(n, helper_fault(&self->h, &self->p, 10000)));
	}
	for (n = 0; n < TOUCHES; n++) {
		PROOF(EXPECT_FALSE(player_touched(&self->p, n, 20)));
		EXPECT_EQ(0, helper_copy(&self->h, &self->p, n));
		PROOF(EXPECT_TRUE(player_saw(&self->p, n)));
	}
	/* What was not touched comes as well, and once. */
	EXPECT_EQ(0, helper_copy(&self->h, &self->p, TOUCHES));
	EXPECT_EQ(-EEXIST, helper_copy(&self->h, &self->p, TOUCHES));
	player_touch(&self->p, 0, TOUCH_LOAD, TOUCHES);
	PROOF(EXPECT_TRUE(player_saw(&self->p, 0)));
	helper_close(&self->h);
}

TEST_F(uffd, serves_zeros)
{
	int r;

	helper_begin(&self->h, &self->p, 1);
	player_touch(&self->p, 0, TOUCH_LOAD, 3);
	PROOF(ASSERT_EQ(3, helper_fault(&self->h, &self->p, 10000)));
	r = helper_zero(&self->h, &self->p, 3);
	/* There is no such call for hugetlbfs: its helpers copy zeros. */
	EXPECT_EQ(variant->kind == RAM_2M ? -EINVAL : 0, r);
	if (!r) {
		PROOF(EXPECT_TRUE(player_touched(&self->p, 0, 10000)));
		PROOF(EXPECT_EQ(0, self->p.touches[0].value + self->p.touches[0].differ));
	}
	helper_close(&self->h);
}

/* As with a vhost-user backend: what comes through one is there for the other, which is woken. */
TEST_F(uffd, two_processes_map_it)
{
	struct helper other;
	struct player q;

	player_start(&q, &self->ram);
	helper_begin(&self->h, &self->p, 1);
	other.dev = self->h.dev;
	other.uffd = keep_uffd(other.dev, q.pid, &other.kept);
	ASSERT_LE(0, other.uffd);
	EXPECT_FALSE(other.kept);
	EXPECT_EQ(0, helper_api(&other));
	EXPECT_EQ(0, helper_register(&other, &q));
	player_touch(&self->p, 0, TOUCH_LOAD, 5);
	player_touch(&q, 0, TOUCH_LOAD, 5);
	PROOF(EXPECT_EQ(5, helper_fault(&self->h, &self->p, 10000)));
	PROOF(EXPECT_EQ(5, helper_fault(&other, &q, 10000)));
	EXPECT_EQ(0, helper_copy(&self->h, &self->p, 5));
	PROOF(EXPECT_TRUE(player_saw(&self->p, 0)));
	EXPECT_EQ(-EEXIST, helper_copy(&other, &q, 5));
	EXPECT_EQ(0, helper_wake(&other, &q));
	PROOF(EXPECT_TRUE(player_saw(&q, 0)));
	/* The other way round. */
	player_touch(&q, 0, TOUCH_LOAD, 6);
	PROOF(EXPECT_EQ(6, helper_fault(&other, &q, 10000)));
	EXPECT_EQ(0, helper_copy(&other, &q, 6));
	PROOF(EXPECT_TRUE(player_saw(&q, 0)));
	player_touch(&self->p, 0, TOUCH_LOAD, 6);
	PROOF(EXPECT_TRUE(player_saw(&self->p, 0)));
	helper_close(&self->h);
	close(other.uffd);
	player_end(&q);
}

/* The process's table and the caller's are as they were, but for the caller's new descriptor. */
TEST_F(uffd, file_tables)
{
	unsigned int theirs = files_open(self->p.pid), ours, n;
	int dev = open_godwit();

	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	ours = files_open(getpid());
	for (n = 0; n < 20; n++) {
		int fd = keep_uffd(dev, self->p.pid, NULL);

		ASSERT_LE(0, fd);
		PROOF(EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD)));
		EXPECT_EQ(O_NONBLOCK, fcntl(fd, F_GETFL) & O_NONBLOCK);
		PROOF(EXPECT_EQ(theirs, files_open(self->p.pid)));
		PROOF(EXPECT_EQ(ours + 1, files_open(getpid())));
		close(fd);
		if (n % 2) {
			ASSERT_EQ(0, keep_end(dev));
			ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
		}
	}
	PROOF(EXPECT_EQ(ours, files_open(getpid())));
	close(dev);
}

struct asking {
	int dev;
	pid_t pid;
	pthread_t thread;
	bool kept;
	int fd;
};

static void *ask(void *arg)
{
	struct asking *a = arg;

	a->fd = keep_uffd(a->dev, a->pid, &a->kept);
	return NULL;
}

/* Threads that ask at once for one process: one of them has a new one made, and all have that. */
TEST_F(uffd, at_once)
{
	struct asking a[AT_ONCE];
	unsigned int n, made = 0;
	int dev = open_godwit();

	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	for (n = 0; n < AT_ONCE; n++) {
		a[n] = (struct asking) { .dev = dev, .pid = self->p.pid };
		require(!pthread_create(&a[n].thread, NULL, ask, &a[n]), "pthread_create");
	}
	for (n = 0; n < AT_ONCE; n++) {
		pthread_join(a[n].thread, NULL);
		EXPECT_LE(0, a[n].fd);
		made += !a[n].kept;
		close(a[n].fd);
	}
	PROOF(EXPECT_EQ(1, made));
	PROOF(EXPECT_EQ(1, file_number(SYSFS "kept_userfaultfds")));
	close(dev);
}

KST_MAIN
