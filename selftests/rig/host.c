// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"

void require_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "# required: %s:%d: %s: %s\n", file, line, what, strerror(errno));
	abort();
}

bool proof_failed(const char *what, const char *file, int line)
{
	fprintf(stderr, "# proof failed: %s:%d: %s\n", file, line, what);
	return true;
}

void prove_failed(const char *what, const char *file, int line)
{
	proof_failed(what, file, line);
	abort();
}

void emulator_failed(const char *format, ...)
{
	char why[256];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	/* One write: other processes print too. */
	fprintf(stderr, "# emulator: %s\n", why);
	abort();
}

bool module_loaded(void)
{
	return !access("/sys/module/godwit", F_OK);
}

int module_load(void)
{
	const char *path = getenv("GODWIT_MODULE");
	int fd, r;

	if (!path)
		return system("modprobe godwit") ? -ENOENT : 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return r;
}

int module_unload(void)
{
	return syscall(SYS_delete_module, "godwit", O_NONBLOCK) ? -errno : 0;
}

int module_unload_within(unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	int r;

	while ((r = module_unload()) && now_ms() < end)
		sleep_ms(5);
	return r;
}

int file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int r = fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return r;
}

long file_number(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	require(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0, path);
	close(fd);
	return strtol(text, NULL, 10);
}

long session_number(const char *name)
{
	char path[128];
	long id;

	require(sessions_count(&id), "a session");
	snprintf(path, sizeof(path), SYSFS "sessions/%ld/%s", id, name);
	return file_number(path);
}

unsigned int sessions_count(long *newest)
{
	DIR *all = opendir(SYSFS "sessions");
	unsigned int n = 0;
	struct dirent *e;
	long id, last = 0;

	require(all, SYSFS "sessions");
	while ((e = readdir(all))) {
		id = strtol(e->d_name, NULL, 10);
		n += id > 0;
		last = id > last ? id : last;
	}
	closedir(all);
	if (newest)
		*newest = last;
	return n;
}

int sessions_wait_none_within(unsigned int ms)
{
	uint64_t end = now_ms() + ms;
	struct stat st;

	/* A directory's links are its subdirectories and 2. */
	while (stat(SYSFS "sessions", &st) || st.st_nlink != 2) {
		if (now_ms() > end)
			return -ETIMEDOUT;
		sleep_ms(10);
	}
	return 0;
}

void sessions_wait_none(void)
{
	prove(!sessions_wait_none_within(10000), "a session stays");
}

void rows_on(unsigned int mask)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", ALL_ROWS & ~mask);
	require(!file_write(ROWS_OFF, text), ROWS_OFF);
}

void flush_off(void)
{
	require(!file_write(ROWS_OFF, "32"), ROWS_OFF);
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

uint64_t now_ms(void)
{
	return now_ns() / 1000000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&t, NULL);
}

int wait_process(pid_t pid)
{
	int status;

	require(waitpid(pid, &status, 0) == pid, "waitpid");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void kill_process(pid_t pid)
{
	kill(pid, SIGKILL);
	wait_process(pid);
}

char process_state(pid_t pid)
{
	char path[64], text[256] = "", *at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	require(f && fgets(text, sizeof(text), f), path);
	fclose(f);
	at = strrchr(text, ')');
	return at ? at[2] : '?';
}

pid_t fork_child(void)
{
	const pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	require(pid >= 0, "fork");
	if (!pid) {
		pid_t now;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* One that was killed before that would leave this process to nobody. 0: of another pid namespace. */
		now = getppid();
		if (now && now != parent)
			_exit(1);
	}
	return pid;
}

pid_t fork_ready(void (*run)(void *arg), void *arg)
{
	int pipes[2];
	char byte;
	pid_t pid;

	require(!pipe(pipes), "pipe");
	pid = fork_child();
	if (!pid) {
		run(arg);
		if (write(pipes[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(pipes[1]);	/* or a child that dies would be waited for */
	require(read(pipes[0], &byte, 1) == 1, "a process");
	close(pipes[0]);
	return pid;
}

#define CGROUP	"/sys/fs/cgroup/kst"

int run_charged(const char *bytes, int (*run)(void *arg), void *arg)
{
	int status;
	pid_t pid;

	if (mkdir(CGROUP, 0755) && errno != EEXIST)
		return -1;
	file_write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	if (file_write(CGROUP "/memory.max", bytes))
		return -1;
	pid = fork_child();
	if (!pid) {
		require(!file_write(CGROUP "/cgroup.procs", "0"), "a cgroup");
		_exit(run(arg));
	}
	status = wait_process(pid);
	rmdir(CGROUP);
	return status;
}

unsigned long flushes(void)
{
	long cpus = file_number("/sys/module/godwit/parameters/flushed_cpus"), all = sysconf(_SC_NPROCESSORS_ONLN);

	require(cpus >= 0 && cpus % all == 0, "a count for each CPU");
	return cpus / all;
}

void drop_sys_admin(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	require(!syscall(SYS_capget, &head, data), "capget");
	data[0].effective &= ~(1U << CAP_SYS_ADMIN);
	require(!syscall(SYS_capset, &head, data), "capset");
}

void pin_to_cpu(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	require(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

uint32_t random_seed(void)
{
	const char *given = getenv("KST_SEED");
	uint32_t seed;

	if (given)
		seed = strtoul(given, NULL, 0);
	else
		require(getrandom(&seed, sizeof(seed), 0) == sizeof(seed), "getrandom");
	fprintf(stderr, "# KST_SEED=%u\n", seed);
	return seed;
}
