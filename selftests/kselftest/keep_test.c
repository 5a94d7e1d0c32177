// SPDX-License-Identifier: GPL-2.0-only
/* Userfaultfds outlive their helper: until another one takes them over, or the process has gone. */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include "kst.h"
#include "postcopy.h"
#include "session.h"
#include "vm.h"

#define PAGES	8
#define LOOK_MS	1000	/* the module's */
#define KEPT	SYSFS "kept_userfaultfds"

FIXTURE(kept) {
	struct ram ram;
	struct player p;
	struct helper h;
};

FIXTURE_VARIANT(kept) {
	enum ram_kind kind;
	uint64_t page;
};

FIXTURE_VARIANT_ADD(kept, tmpfs_4k) { .kind = RAM_TMPFS, .page = PAGE };
FIXTURE_VARIANT_ADD(kept, hugetlbfs_2m) { .kind = RAM_2M, .page = 2 * MIB };

FIXTURE_SETUP(kept)
{
	ASSERT_EQ(0, ram_create(&self->ram, variant->kind, PAGES * variant->page));
	player_start(&self->p, &self->ram);
}

FIXTURE_TEARDOWN(kept)
{
	player_end(&self->p);
	ram_destroy(&self->ram);
	if (!module_loaded())
		EXPECT_EQ(0, module_load());
}

/* Two faults wait, of which the helper has read the first and the second, one of them, or none. */
static unsigned int faults_read;

static void have_faults(struct helper *h, struct player *p, unsigned int first_page)
{
	unsigned int n;

	for (n = 0; n < 2; n++)
		player_touch(p, n, n ? TOUCH_SYSCALL : TOUCH_LOAD, first_page + n);
	for (n = 0; n < faults_read; n++)
		require(helper_fault(h, p, 10000) >= 0, "a fault");
	sleep_ms(100);
}

static void begin_and_leave(void *arg)
{
	struct player *p = arg;
	struct helper h;

	helper_begin(&h, p, 1);
	have_faults(&h, p, 0);
}

static void take_and_leave(void *arg)
{
	struct player *p = arg;
	struct helper h;

	helper_take(&h, p, 1);
}

static void die(void (*helper)(void *arg), struct player *p)
{
	kill_process(fork_ready(helper, p));
}

/* Each thread sees the page, and it is the source's. */
static bool serve_two(struct helper *h, struct player *p)
{
	unsigned int n;

	for (n = 0; n < 2; n++) {
		int64_t page = helper_fault(h, p, 10000);

		if (page < 0 || helper_copy(h, p, page))
			return false;
	}
	return player_saw(p, 0) && player_saw(p, 1);
}

TEST_F(kept, helper_is_killed)
{
	for (faults_read = 0; faults_read <= 2; faults_read++) {
		die(begin_and_leave, &self->p);
		/* Longer than until the module has looked once. */
		PROOF(EXPECT_FALSE(player_touched(&self->p, 0, LOOK_MS + 500)));
		PROOF(EXPECT_FALSE(player_touched(&self->p, 1, 0)));
		/* Again and again. */
		die(take_and_leave, &self->p);
		die(take_and_leave, &self->p);
		PROOF(EXPECT_FALSE(player_touched(&self->p, 0, 100)));
		helper_take(&self->h, &self->p, 1);
		/* What the former helper has done is known, and may be done again. */
		EXPECT_EQ(-EINVAL, helper_api(&self->h));
		EXPECT_EQ(0, helper_register(&self->h, &self->p));
		EXPECT_EQ(0, helper_wake(&self->h, &self->p));
		PROOF(EXPECT_TRUE(serve_two(&self->h, &self->p)));
		EXPECT_EQ(0, keep_end(self->h.dev));
		helper_close(&self->h);
		require(!fallocate(self->ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				   self->ram.bytes), "fallocate");
	}
}

static void begin_unregistered(void *arg)
{
	struct player *p = arg;
	int dev = open_godwit();

	require(!keep_begin(dev, 1, 0, NULL), "GODWIT_KEEP");
	require(keep_uffd(dev, p->pid, NULL) >= 0, "GODWIT_UFFD");
}

/* Before it has registered anything: the next one does. */
TEST_F(kept, helper_is_killed_early)
{
	die(begin_unregistered, &self->p);
	helper_take(&self->h, &self->p, 1);
	EXPECT_EQ(0, helper_api(&self->h));
	EXPECT_EQ(0, helper_register(&self->h, &self->p));
	faults_read = 0;
	have_faults(&self->h, &self->p, 2);
	PROOF(EXPECT_TRUE(serve_two(&self->h, &self->p)));
	helper_close(&self->h);
}

TEST_F(kept, end)
{
	helper_begin(&self->h, &self->p, 1);
	PROOF(EXPECT_EQ(1, file_number(KEPT)));
	EXPECT_EQ(-1, ioctl(self->h.dev, GODWIT_KEEP_END, 1));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(0, keep_end(self->h.dev));
	EXPECT_EQ(-ENODATA, keep_end(self->h.dev));
	EXPECT_EQ(-ENODATA, keep_uffd(self->h.dev, self->p.pid, NULL));
	PROOF(EXPECT_EQ(0, file_number(KEPT)));
	/* The helper's own still holds faults up. */
	player_touch(&self->p, 1, TOUCH_LOAD, 1);
	PROOF(EXPECT_EQ(1, helper_fault(&self->h, &self->p, 10000)));
	EXPECT_EQ(0, helper_copy(&self->h, &self->p, 1));
	PROOF(EXPECT_TRUE(player_saw(&self->p, 1)));
	helper_close(&self->h);
	PROOF(EXPECT_EQ(0, module_unload_within(3000)));
	/* Nothing is registered any more: what nothing has is zero. */
	player_touch(&self->p, 0, TOUCH_LOAD, 0);
	PROOF(EXPECT_TRUE(player_touched(&self->p, 0, 10000)));
	EXPECT_EQ(0, self->p.touches[0].value);
}

TEST_F(kept, module_stays)
{
	faults_read = 0;
	die(begin_and_leave, &self->p);
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload_within(LOOK_MS + 1000)));
	PROOF(EXPECT_FALSE(player_touched(&self->p, 0, 0)));
	kill_process(self->p.pid);
	self->p.pid = 0;
	PROOF(EXPECT_EQ(0, module_unload_within(10 * LOOK_MS)));
}

TEST_F(kept, process_is_killed)
{
	int dev;

	faults_read = 1;
	die(begin_and_leave, &self->p);
	PROOF(EXPECT_EQ(1, file_number(KEPT)));
	kill_process(self->p.pid);
	self->p.pid = 0;
	dev = open_godwit();
	PROOF(EXPECT_EQ(-ENOENT, keep_begin(dev, 1, GODWIT_KEEP_TAKE, NULL)));
	EXPECT_EQ(0, keep_begin(dev, 1, 0, NULL));
	close(dev);
}

TEST_F(kept, process_execs)
{
	int mem = open_mem(self->p.pid), uffd_dev = open("/dev/userfaultfd", O_RDWR), dev, fd;
	bool kept;

	ASSERT_LE(0, mem);
	die(begin_unregistered, &self->p);
	player_exec(&self->p);
	dev = open_godwit();
	PROOF(EXPECT_EQ(-ENOENT, keep_begin(dev, 1, GODWIT_KEEP_TAKE, NULL)));
	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	PROOF(EXPECT_EQ(-ESRCH, keep_uffd_by(dev, mem, uffd_dev, NULL)));
	/* The program that it is now is another. */
	fd = keep_uffd(dev, self->p.pid, &kept);
	EXPECT_LE(0, fd);
	PROOF(EXPECT_FALSE(kept));
	close(fd);
	close(mem);
	close(uffd_dev);
	close(dev);
}

/*
 * Who took another guest's keep by mistake leaves it as it was: the exit of its own process is none
 * of that guest's.
 */
TEST_F(kept, takes_no_other_process)
{
	struct pollfd told = { .events = POLLIN };
	pid_t own = fork_child();
	unsigned int count;
	int dev, fd;
	bool kept;

	if (!own) {
		pause();
		_exit(0);
	}
	die(begin_unregistered, &self->p);
	dev = open_godwit();
	ASSERT_EQ(0, keep_begin(dev, 1, GODWIT_KEEP_TAKE, &count));
	EXPECT_EQ(1, count);
	PROOF(EXPECT_EQ(-ENOENT, keep_uffd(dev, own, NULL)));
	EXPECT_EQ(1, file_number(KEPT));
	close(dev);
	dev = open_godwit();
	ASSERT_EQ(0, keep_begin(dev, 1, GODWIT_KEEP_TAKE, &count));
	EXPECT_EQ(1, count);
	fd = keep_uffd(dev, self->p.pid, &kept);
	EXPECT_LE(0, fd);
	EXPECT_TRUE(kept);
	kill_process(own);
	told.fd = dev;
	PROOF(EXPECT_EQ(0, poll(&told, 1, 2 * LOOK_MS + LOOK_MS / 2)));
	/* One that begins anew may have it. */
	EXPECT_EQ(0, keep_end(dev));
	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	close(fd);
	fd = keep_uffd(dev, self->p.pid, &kept);
	EXPECT_LE(0, fd);
	EXPECT_FALSE(kept);
	close(fd);
	close(dev);
}

struct reading {
	struct player *p;
	volatile uint64_t *begun;
};

static void read_in_it(void *arg)
{
	struct reading *r = arg;
	uint64_t word;
	struct iovec to = { &word, sizeof(word) }, from = { r->p->at, sizeof(word) };

	*r->begun = 1;
	process_vm_readv(r->p->pid, &to, 1, &from, 1, 0);
	*r->begun = 2;
}

/*
 * Another task waits in the mm for a page, as KVM's and vhost's threads do, which no signal
 * reaches. Shared with it: *begun. faults: how many there are then for the helper to read.
 */
static pid_t read_elsewhere(struct reading *r, struct helper *h, unsigned int faults)
{
	pid_t pid;

	r->begun = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(r->begun != MAP_FAILED, "mmap");
	pid = fork_child();
	if (!pid) {
		close_range(3, ~0U, 0);		/* else it has the helper's */
		read_in_it(r);
		_exit(0);
	}
	while (faults--)
		require(helper_fault(h, r->p, 10000) >= 0, "a fault");
	require(*r->begun == 1, "a fault that waits");
	return pid;
}

static bool goes_on(const struct reading *r)
{
	uint64_t begin = now_ms();

	while (*r->begun == 1 && now_ms() - begin < 10 * LOOK_MS)
		sleep_ms(10);
	return *r->begun == 2;
}

/* The process is no more, and its mm has a user, which waits: it goes on. */
TEST_F(kept, killed_while_another_waits_in_it)
{
	struct reading r = { .p = &self->p, .begun = NULL };
	pid_t pid;

	faults_read = 0;
	die(begin_and_leave, &self->p);
	helper_take(&self->h, &self->p, 1);
	pid = read_elsewhere(&r, &self->h, 3);
	helper_close(&self->h);
	kill_process(self->p.pid);
	self->p.pid = 0;
	PROOF(EXPECT_TRUE(goes_on(&r)));
	kill_process(pid);
	PROOF(EXPECT_EQ(0, module_unload_within(10 * LOOK_MS)));
}

/* The same under a helper that lives: it is told, and closes what it has. */
TEST_F(kept, killed_under_a_helper)
{
	struct reading r = { .p = &self->p, .begun = NULL };
	int mem = open_mem(self->p.pid), uffd_dev = open("/dev/userfaultfd", O_RDWR);
	struct pollfd told = { .events = POLLIN };
	pid_t pid;

	ASSERT_LE(0, mem);
	helper_begin(&self->h, &self->p, 1);
	told.fd = self->h.dev;
	pid = read_elsewhere(&r, &self->h, 1);
	EXPECT_EQ(0, poll(&told, 1, 2 * LOOK_MS));
	kill_process(self->p.pid);
	self->p.pid = 0;
	PROOF(EXPECT_EQ(1, poll(&told, 1, 10 * LOOK_MS)));
	EXPECT_EQ(POLLHUP, told.revents);
	PROOF(EXPECT_EQ(-ESRCH, keep_uffd_by(self->h.dev, mem, uffd_dev, NULL)));
	PROOF(EXPECT_EQ(0, file_number(KEPT)));
	EXPECT_EQ(1, *r.begun);
	close(self->h.uffd);
	PROOF(EXPECT_TRUE(goes_on(&r)));
	kill_process(pid);
	/* Its next keep begins anew. */
	EXPECT_EQ(0, keep_end(self->h.dev));
	EXPECT_EQ(0, keep_begin(self->h.dev, 2, 0, NULL));
	EXPECT_EQ(0, poll(&told, 1, 0));
	close(self->h.dev);
	close(mem);
	close(uffd_dev);
}

/* Names: each once, one helper for each, and a process in one of them. */
TEST_F(kept, names)
{
	struct godwit_keep nameless = { .flags = 0 }, unknown = { .token = TOKEN(3), .flags = 2 };
	int dev[3], uffd, again;
	unsigned int n, count;
	bool kept;

	for (n = 0; n < ARRAY_LEN(dev); n++)
		dev[n] = open_godwit();
	EXPECT_EQ(-ENODATA, keep_uffd(dev[0], self->p.pid, NULL));
	EXPECT_EQ(-ENOENT, keep_begin(dev[0], 1, GODWIT_KEEP_TAKE, NULL));
	EXPECT_EQ(-1, ioctl(dev[0], GODWIT_KEEP, &nameless));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, ioctl(dev[0], GODWIT_KEEP, &unknown));
	EXPECT_EQ(EINVAL, errno);
	ASSERT_EQ(0, keep_begin(dev[0], 1, 0, &count));
	EXPECT_EQ(0, count);
	EXPECT_EQ(-EBUSY, keep_begin(dev[0], 2, 0, NULL));
	uffd = keep_uffd(dev[0], self->p.pid, &kept);
	ASSERT_LE(0, uffd);
	EXPECT_FALSE(kept);
	again = keep_uffd(dev[0], self->p.pid, &kept);
	ASSERT_LE(0, again);
	PROOF(EXPECT_TRUE(kept));
	EXPECT_EQ(-EEXIST, keep_begin(dev[1], 1, 0, NULL));
	PROOF(EXPECT_EQ(-EBUSY, keep_begin(dev[1], 1, GODWIT_KEEP_TAKE, NULL)));
	ASSERT_EQ(0, keep_begin(dev[1], 2, 0, NULL));
	PROOF(EXPECT_EQ(-EBUSY, keep_uffd(dev[1], self->p.pid, NULL)));
	close(uffd);
	close(again);
	close(dev[0]);
	/* Left, and not this one's. */
	PROOF(EXPECT_EQ(-EBUSY, keep_uffd(dev[1], self->p.pid, NULL)));
	EXPECT_EQ(-EEXIST, keep_begin(dev[2], 1, 0, NULL));
	EXPECT_EQ(0, keep_begin(dev[2], 1, GODWIT_KEEP_TAKE, &count));
	EXPECT_EQ(1, count);
	/* One that has nothing is not kept. */
	close(dev[1]);
	dev[1] = open_godwit();
	EXPECT_EQ(-ENOENT, keep_begin(dev[1], 2, GODWIT_KEEP_TAKE, NULL));
	EXPECT_EQ(0, keep_end(dev[2]));
	EXPECT_EQ(-ENOENT, keep_begin(dev[1], 1, GODWIT_KEEP_TAKE, NULL));
	close(dev[1]);
	close(dev[2]);
}

/* What switches a log on would wait for a vCPU that waits for a page. */
TEST_F(kept, no_session_of_its_vm)
{
	struct session s;
	struct vm vm;
	int dev = open_godwit(), uffd;

	vm_create(&vm, 1, 3);
	session_open(&s);
	ASSERT_EQ(0, keep_begin(dev, 1, 0, NULL));
	uffd = keep_uffd(dev, getpid(), NULL);
	ASSERT_LE(0, uffd);
	PROOF(EXPECT_EQ(-EINPROGRESS, session_attach(&s, vm.fd)));
	close(uffd);
	close(dev);
	PROOF(EXPECT_EQ(-EINPROGRESS, session_attach(&s, vm.fd)));
	dev = open_godwit();
	ASSERT_EQ(0, keep_begin(dev, 1, GODWIT_KEEP_TAKE, NULL));
	EXPECT_EQ(0, keep_end(dev));
	EXPECT_EQ(0, session_attach(&s, vm.fd));
	session_close(&s);
	vm_destroy(&vm);
	close(dev);
}

KST_MAIN
