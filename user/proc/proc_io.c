// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "proc/proc_io.h"

int proc_failed(const char *path, int err, struct err *e)
{
	if (err == ENOENT || err == ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH, "%s: %s: the VMM has exited", path, strerror(err));
	if (err == EACCES || err == EPERM)
		return err_set(e, GW_NO_MODULE, err,
			       "%s: %s: run godwit as root (godwit needs CAP_SYS_PTRACE, and CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN)",
			       path, strerror(err));
	return err_set(e, GW_INTERNAL, err, "%s: %s", path, strerror(err));
}

static int proc_load_some_maps(const char *proc, uint64_t start, uint64_t end,
			       struct proc_maps *maps, struct err *e)
{
	CLEANUP_FCLOSE FILE *f = NULL;
	char path[PATH_MAX];
	int r;

	*maps = (struct proc_maps) { 0 };
	snprintf(path, sizeof(path), "%s/maps", proc);
	f = fopen(path, "re");
	if (!f)
		return proc_failed(path, errno, e);
	r = end ? proc_read_range(f, start, end, maps) : proc_read_maps(f, maps);
	return r ? proc_failed(path, -r, e) : 0;
}

int proc_load_maps(const char *proc, struct proc_maps *maps, struct err *e)
{
	return proc_load_some_maps(proc, 0, 0, maps, e);
}

int proc_load_range(const char *proc, uint64_t start, uint64_t end, struct proc_maps *maps,
		    struct err *e)
{
	return proc_load_some_maps(proc, start, end, maps, e);
}

/* 1; 0: it is gone, with its process, thread or descriptor; or -errno. */
static int proc_open_text(const char *path, FILE **f, struct err *e)
{
	*f = fopen(path, "re");
	if (*f)
		return 1;
	return errno == ENOENT ? 0 : proc_failed(path, errno, e);
}

int proc_load_fdinfo(const char *proc, const char *number, struct proc_fdinfo *info, struct err *e)
{
	CLEANUP_FCLOSE FILE *f = NULL;
	char path[PATH_MAX];
	int r;

	*info = (struct proc_fdinfo) { 0 };
	snprintf(path, sizeof(path), "%s/fdinfo/%s", proc, number);
	r = proc_open_text(path, &f, e);
	if (r <= 0)
		return r;
	r = proc_read_fdinfo(f, info);
	return r && r != -ENOENT ? proc_failed(path, -r, e) : 0;
}

/*
 * The field after the name in brackets in /proc/PID/task/TID/stat. 'X': the thread has ended
 * meanwhile; '?': unknown.
 */
static char proc_thread_state(const char *dir, const char *tid)
{
	char path[PATH_MAX], line[512], *at;
	CLEANUP_FCLOSE FILE *f = NULL;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/%s/stat", dir, tid);
	f = fopen(path, "re");
	if (!f)
		return errno == ENOENT || errno == ESRCH ? 'X' : '?';
	n = fread(line, 1, sizeof(line) - 1, f);
	line[n] = '\0';
	at = strrchr(line, ')');
	return at && at[1] == ' ' ? at[2] : '?';
}

/* Calls fn with each name in a directory of that process, until fn returns anything but 0. */
static int proc_each_entry(const char *proc, const char *what, proc_entry_fn *fn, void *arg,
			   struct err *e)
{
	char dir[PATH_MAX - NAME_MAX - 16];
	struct dirent *de;
	int r = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/%s", proc, what);
	d = opendir(dir);
	if (!d)
		return proc_failed(dir, errno, e);
	while (!r && (de = readdir(d)))
		if (*de->d_name != '.')
			r = fn(dir, de->d_name, arg, e);
	closedir(d);
	return r;
}

int proc_each_thread(const char *proc, proc_entry_fn *fn, void *arg, struct err *e)
{
	return proc_each_entry(proc, "task", fn, arg, e);
}

/* read: of /proc/PID/task/TID/status; a thread that has ended leaves *v as it is. */
static int proc_read_status(const char *tasks, const char *tid, int (*read)(FILE *f, pid_t *v),
			    pid_t *v, struct err *e)
{
	CLEANUP_FCLOSE FILE *f = NULL;
	char path[PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%s/%s/status", tasks, tid);
	r = proc_open_text(path, &f, e);
	if (r <= 0)
		return r;
	r = read(f, v);
	return r && r != -ESRCH ? proc_failed(path, -r, e) : 0;
}

struct tracer_search {
	pid_t except;
	pid_t tracer;
};

static int proc_find_tracer(const char *tasks, const char *tid, void *arg, struct err *e)
{
	struct tracer_search *s = arg;
	pid_t tracer = 0;
	int r = proc_read_status(tasks, tid, proc_read_tracer, &tracer, e);

	if (!r && tracer != s->except)
		s->tracer = tracer;
	return r ? r : s->tracer != 0;
}

int proc_tracer(const char *proc, pid_t except, pid_t *tracer, struct err *e)
{
	struct tracer_search s = { .except = except };
	int r = proc_each_thread(proc, proc_find_tracer, &s, e);

	*tracer = s.tracer;
	return r < 0 ? r : 0;
}

int proc_inner_tid(const char *dir, const char *tid, pid_t *inner, struct err *e)
{
	struct err none = { 0 };
	int r;

	*inner = 0;
	r = proc_read_status(dir, tid, proc_read_inner_tid, inner, &none);
	if (r == -ENODATA) {
		*inner = (pid_t)strtol(tid, NULL, 10);
		return 0;
	}
	if (r)
		*e = none;
	return r;
}

struct live_thread {
	char *dir;
	size_t size;
};

static int proc_find_live(const char *tasks, const char *tid, void *arg, struct err *e)
{
	struct live_thread *live = arg;

	(void)e;
	if (strchr("ZX", proc_thread_state(tasks, tid)))
		return 0;
	snprintf(live->dir, live->size, "%s/%s", tasks, tid);
	return 1;
}

int proc_live_thread(const char *proc, char *dir, size_t size, struct err *e)
{
	struct live_thread live = { dir, size };

	return proc_each_thread(proc, proc_find_live, &live, e);
}

void proc_name(const char *proc, char *name, size_t size)
{
	char path[PATH_MAX], line[64] = "?";
	CLEANUP_FCLOSE FILE *f = NULL;

	snprintf(path, sizeof(path), "%s/comm", proc);
	f = fopen(path, "re");
	if (f && fgets(line, sizeof(line), f))
		line[strcspn(line, "\n")] = '\0';
	one_line(name, size, line);
}

static int proc_find_unstopped(const char *tasks, const char *tid, void *arg, struct err *e)
{
	(void)arg;
	(void)e;
	return !strchr("TtZX", proc_thread_state(tasks, tid));
}

bool proc_stopped(pid_t pid)
{
	struct err ignored = { 0 };
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	return !proc_each_thread(proc, proc_find_unstopped, NULL, &ignored);
}

bool proc_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

struct fd_visitor {
	proc_fd_fn *fn;
	void *arg;
};

static int proc_visit_fd(const char *dir, const char *number, void *arg, struct err *e)
{
	const struct fd_visitor *v = arg;
	char path[PATH_MAX], link[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, number);
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return errno == ENOENT || errno == EINVAL ? 0 : proc_failed(path, errno, e);
	link[n] = '\0';
	return v->fn(v->arg, number, link, e);
}

int proc_each_fd(const char *proc, proc_fd_fn *fn, void *arg, struct err *e)
{
	struct fd_visitor v = { fn, arg };

	return proc_each_entry(proc, "fd", proc_visit_fd, &v, e);
}
