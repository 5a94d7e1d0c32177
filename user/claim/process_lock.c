// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "claim/process_lock.h"

#define AUXV_MAX	1024u

/* proc: a directory of that file system, ours or the process's own. */
static int process_open(int proc, pid_t pid, const char *name, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "%d/%s", (int)pid, name);
	return openat(proc, path, flags | O_CLOEXEC);
}

static ssize_t process_auxv(int proc, pid_t pid, char auxv[AUXV_MAX])
{
	int fd = process_open(proc, pid, "auxv", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, auxv, AUXV_MAX);

	if (fd >= 0)
		close(fd);
	return n;
}

/* The auxiliary vector has addresses that are random for each process. */
static bool process_is_same(int proc, pid_t pid, int other_proc, pid_t other)
{
	char a[AUXV_MAX], b[AUXV_MAX];
	ssize_t n = process_auxv(proc, pid, a);

	return n > 0 && process_auxv(other_proc, other, b) == n && !memcmp(a, b, (size_t)n);
}

/* /proc as the process sees it. Its owner may have put anything there. */
static int process_proc(int proc, pid_t pid)
{
	struct statfs st;
	int root = process_open(proc, pid, "root", O_PATH | O_DIRECTORY), its;

	if (root < 0)
		return -1;
	its = openat(root, "proc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	close(root);
	if (its >= 0 && !fstatfs(its, &st) && st.f_type == PROC_SUPER_MAGIC)
		return its;
	if (its >= 0)
		close(its);
	return -1;
}

/* The numbers of the process, of our pid namespace first; its own /proc has one of them. */
static int process_open_its(int proc, pid_t pid, int its)
{
	int status = process_open(proc, pid, "status", O_RDONLY), fd = -1;
	CLEANUP_FCLOSE FILE *f = status < 0 ? NULL : fdopen(status, "r");
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;
	char *at;

	while (f && getline(&line, &cap, f) > 0 && strncmp(line, "NSpid:", 6))
		;
	at = line && !strncmp(line, "NSpid:", 6) ? line + 6 : NULL;
	while (at && fd < 0) {
		long number = strtol(at, &at, 10);

		if (number <= 0)
			break;
		if (process_is_same(proc, pid, its, (pid_t)number))
			fd = process_open(its, (pid_t)number, "pagemap", O_RDONLY);
	}
	return fd;
}

int process_lock_open(pid_t pid)
{
	int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC), its, fd = -1;

	if (proc < 0)
		return -1;
	its = process_proc(proc, pid);
	if (its >= 0) {
		fd = process_open_its(proc, pid, its);
		close(its);
	}
	if (fd < 0)
		fd = process_open(proc, pid, "pagemap", O_RDONLY);
	close(proc);
	return fd;
}
