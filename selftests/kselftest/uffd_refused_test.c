// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which processes' userfaultfds a caller may have: of those whose memory it may open for writing,
 * and by no other file.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kst.h"
#include "postcopy.h"

#define PAGES		8
#define KTHREADD	2
#define USER		1000
#define BOUND		"/tmp/kst-mem"

FIXTURE(refused) {
	struct ram ram;
	struct player p;
	int dev;
	int uffd_dev;
};

FIXTURE_SETUP(refused)
{
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	player_start(&self->p, &self->ram);
	self->dev = open_godwit();
	self->uffd_dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->uffd_dev);
	ASSERT_EQ(0, keep_begin(self->dev, 1, 0, NULL));
}

FIXTURE_TEARDOWN(refused)
{
	close(self->uffd_dev);
	keep_end(self->dev);
	close(self->dev);
	player_end(&self->p);
	ram_destroy(&self->ram);
}

/* By a file of the process, or by any other one if pid is 0. */
static int by_file(int dev, int uffd_dev, pid_t pid, const char *name, int flags)
{
	char path[64];
	int fd, r;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	else
		snprintf(path, sizeof(path), "%s", name);
	fd = open(path, flags | O_CLOEXEC);
	require(fd >= 0, path);
	r = keep_uffd_by(dev, fd, uffd_dev, NULL);
	close(fd);
	return r;
}

TEST_F(refused, other_files)
{
	/* Of the process, some of it kept as its memory is; root may open each for writing. */
	static const char * const of_it[] = { "environ", "pagemap", "auxv", "comm", "oom_score_adj" };
	static const char * const other[] = { "/dev/zero", "/dev/godwit" };
	unsigned int i;

	for (i = 0; i < ARRAY_LEN(of_it); i++) {
		PROOF(EXPECT_EQ(-EMEDIUMTYPE, by_file(self->dev, self->uffd_dev, self->p.pid,
						      of_it[i], O_RDWR))) {
			TH_LOG("%s", of_it[i]);
		}
	}
	for (i = 0; i < ARRAY_LEN(other); i++) {
		PROOF(EXPECT_EQ(-EMEDIUMTYPE, by_file(self->dev, self->uffd_dev, 0, other[i],
						      O_RDWR))) {
			TH_LOG("%s", other[i]);
		}
	}
	PROOF(EXPECT_EQ(-EMEDIUMTYPE, keep_uffd_by(self->dev, self->ram.fd, self->uffd_dev, NULL)));
	PROOF(EXPECT_EQ(-EBADF, by_file(self->dev, self->uffd_dev, self->p.pid, "mem", O_RDONLY)));
	PROOF(EXPECT_EQ(-EBADF, by_file(self->dev, self->uffd_dev, self->p.pid, "mem", O_WRONLY)));
	PROOF(EXPECT_EQ(-EBADF, by_file(self->dev, self->uffd_dev, self->p.pid, "mem", O_PATH)));
	EXPECT_EQ(-EBADF, keep_uffd_by(self->dev, -1, self->uffd_dev, NULL));
	EXPECT_EQ(-EBADF, keep_uffd_by(self->dev, self->uffd_dev + 100, self->uffd_dev, NULL));
}

TEST_F(refused, other_devices)
{
	static const char * const other[] = {
		"/dev/null", "/dev/kvm", "/dev/godwit", "/dev/kmsg", "/proc/version",
	};
	int mem = open_mem(self->p.pid);
	unsigned int i;

	ASSERT_LE(0, mem);
	for (i = 0; i < ARRAY_LEN(other); i++) {
		int fd = open(other[i], O_RDONLY | O_CLOEXEC);

		ASSERT_LE(0, fd);
		PROOF(EXPECT_EQ(-ENODEV, keep_uffd_by(self->dev, mem, fd, NULL))) {
			TH_LOG("%s", other[i]);
		}
		close(fd);
	}
	EXPECT_EQ(-EBADF, keep_uffd_by(self->dev, mem, -1, NULL));
	PROOF(EXPECT_EQ(-ENODEV, keep_uffd_by(self->dev, mem, mem, NULL)));
	close(mem);
}

TEST_F(refused, wrong_arguments)
{
	int mem = open_mem(self->p.pid);
	struct godwit_uffd flags = { .mem_fd = mem, .dev_fd = self->uffd_dev, .flags = 1 };
	struct godwit_uffd *unwritable;
	unsigned int files = files_open(getpid());
	bool kept;
	int fd;

	EXPECT_EQ(-1, ioctl(self->dev, GODWIT_UFFD, &flags));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(-1, ioctl(self->dev, GODWIT_UFFD, NULL));
	EXPECT_EQ(EFAULT, errno);
	/* The answer cannot be written: no descriptor stays, and the next call has what was made. */
	unwritable = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*unwritable = (struct godwit_uffd) { .mem_fd = mem, .dev_fd = self->uffd_dev };
	require(!mprotect(unwritable, PAGE, PROT_READ), "mprotect");
	EXPECT_EQ(-1, ioctl(self->dev, GODWIT_UFFD, unwritable));
	EXPECT_EQ(EFAULT, errno);
	PROOF(EXPECT_EQ(files, files_open(getpid())));
	fd = keep_uffd_by(self->dev, mem, self->uffd_dev, &kept);
	EXPECT_LE(0, fd);
	EXPECT_TRUE(kept);
	close(fd);
	close(mem);
}

/* No process, no longer a process, or about to be none. */
TEST_F(refused, no_process)
{
	int kernel = open_mem(KTHREADD), mem = open_mem(self->p.pid);

	ASSERT_LE(0, mem);
	/* Newer kernels do not open it. */
	PROOF(EXPECT_EQ(-ESRCH, kernel < 0 ? kernel :
				keep_uffd_by(self->dev, kernel, self->uffd_dev, NULL)));
	kill_process(self->p.pid);
	PROOF(EXPECT_EQ(-ESRCH, keep_uffd_by(self->dev, mem, self->uffd_dev, NULL)));
	PROOF(EXPECT_EQ(-ENOENT, open_mem(self->p.pid)));
	self->p.pid = 0;
	close(mem);
}

static void wait_only(void *arg)
{
	(void)arg;
}

/* So many, and no more. */
TEST_F(refused, too_many)
{
	pid_t pids[GODWIT_UFFD_MAX + 1];
	unsigned int n;

	for (n = 0; n <= GODWIT_UFFD_MAX; n++) {
		int fd;

		pids[n] = fork_ready(wait_only, NULL);
		fd = keep_uffd(self->dev, pids[n], NULL);
		EXPECT_TRUE(n < GODWIT_UFFD_MAX ? fd >= 0 : fd == -ENOSPC) {
			TH_LOG("number %u: %d", n, fd);
		}
		close(fd);
	}
	for (n = 0; n <= GODWIT_UFFD_MAX; n++)
		kill_process(pids[n]);
}

static void drop_ptrace(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	require(!syscall(SYS_capget, &head, data), "capget");
	data[0].effective &= ~(1U << CAP_SYS_PTRACE);
	data[0].permitted &= ~(1U << CAP_SYS_PTRACE);
	require(!syscall(SYS_capset, &head, data), "capset");
}

static void be_of_another_user(void *arg)
{
	(void)arg;
	require(!setgid(USER) && !setuid(USER), "setuid");
}

/* In a child, as what is dropped is gone. */
#define IN_A_CHILD(what) ({							\
	pid_t pid_ = fork_child();						\
	if (!pid_)								\
		_exit(what);							\
	wait_process(pid_);							\
})

/* By a helper that has CAP_SYS_ADMIN: the kernel does not let it open the memory. */
static int without_ptrace(pid_t pid)
{
	drop_ptrace();
	return -open_mem(pid);
}

/* All that it needs is open: by one without CAP_SYS_ADMIN. */
static int without_admin(int dev, pid_t pid, bool in_a_user_namespace)
{
	int mem = open_mem(pid), uffd_dev = open("/dev/userfaultfd", O_RDWR);

	require(mem >= 0 && uffd_dev >= 0, "open");
	if (in_a_user_namespace)
		require(!unshare(CLONE_NEWUSER), "unshare");
	else
		drop_sys_admin();
	return -keep_uffd_by(dev, mem, uffd_dev, NULL);
}

TEST_F(refused, without_the_right)
{
	pid_t foreign = fork_ready(be_of_another_user, NULL);

	PROOF(EXPECT_EQ(EACCES, IN_A_CHILD(without_ptrace(foreign))));
	PROOF(EXPECT_EQ(EPERM, IN_A_CHILD(without_admin(self->dev, self->p.pid, false))));
	PROOF(EXPECT_EQ(EPERM, IN_A_CHILD(without_admin(self->dev, self->p.pid, true))));
	/* With it: whatever user it is of. */
	EXPECT_LE(0, keep_uffd(self->dev, foreign, NULL));
	kill_process(foreign);
}

/* Another /proc, in other namespaces, as a container has; its first process waits there. */
static void be_in_a_container(void *arg)
{
	pid_t *inner = arg, pid;
	int mounted[2];
	char byte;

	require(!unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare");
	require(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
	require(!pipe(mounted), "pipe");
	pid = fork_child();
	if (pid) {
		require(read(mounted[0], &byte, 1) == 1, "a process");
		*inner = pid;
		return;
	}
	require(!mount("proc", "/proc", "proc", 0, NULL), "mount");
	require(write(mounted[1], "", 1) == 1, "write");
	for (;;)
		pause();
}

/* A helper in the container takes the userfaultfd of a process there. */
static int inside(int dev)
{
	int r;

	require(!unshare(CLONE_NEWNS | CLONE_NEWPID), "unshare");
	require(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
	return IN_A_CHILD(({
		require(!mount("proc", "/proc", "proc", 0, NULL), "mount");
		r = keep_uffd(dev, getpid(), NULL);
		r < 0 ? -r : 0;
	}));
}

/*
 * A caller binds its own environment over its own memory: then the two that are compared are alike.
 * Another process's environment is open to callers that may not write its memory.
 */
static int bound_over(int dev, int uffd_dev, pid_t pid)
{
	int r;

	require(!unshare(CLONE_NEWNS), "unshare");
	require(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount");
	require(!mount("/proc/self/environ", "/proc/self/mem", NULL, MS_BIND, NULL), "mount");
	r = by_file(dev, uffd_dev, pid, "environ", O_RDWR);
	if (r != -EMEDIUMTYPE)
		return 1;
	/* The same the other way round. */
	return by_file(dev, uffd_dev, pid, "mem", O_RDWR) == -EMEDIUMTYPE ? 0 : 2;
}

TEST_F(refused, what_is_bound_over_the_callers_own)
{
	PROOF(EXPECT_EQ(0, IN_A_CHILD(bound_over(self->dev, self->uffd_dev, self->p.pid))));
}

TEST_F(refused, namespaces)
{
	pid_t *inner = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char path[64];
	int mem, fd;
	pid_t outer;

	ASSERT_NE(MAP_FAILED, inner);
	EXPECT_EQ(0, IN_A_CHILD(inside(self->dev)));
	outer = fork_ready(be_in_a_container, inner);
	/* From outside: by our own /proc, but not by the container's, which does not show us. */
	EXPECT_LE(0, keep_uffd(self->dev, *inner, NULL));
	snprintf(path, sizeof(path), "/proc/%d/root/proc/1/mem", *inner);
	mem = open(path, O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, mem);
	PROOF(EXPECT_EQ(-EMEDIUMTYPE, keep_uffd_by(self->dev, mem, self->uffd_dev, NULL)));
	close(mem);
	kill_process(outer);
	/* The file itself, bound to another place, is what it was. */
	fd = open(BOUND, O_CREAT | O_WRONLY, 0600);
	require(fd >= 0, BOUND);
	close(fd);
	snprintf(path, sizeof(path), "/proc/%d/mem", self->p.pid);
	require(!mount(path, BOUND, NULL, MS_BIND, NULL), "mount");
	EXPECT_LE(0, by_file(self->dev, self->uffd_dev, 0, BOUND, O_RDWR));
	require(!umount(BOUND) && !unlink(BOUND), "umount");
}

KST_MAIN
