/* SPDX-License-Identifier: GPL-2.0-only */
/* Opens the files that proc.h parses. "proc" is "/proc/PID", or a test's directory. */
#ifndef GODWIT_PROC_IO_H
#define GODWIT_PROC_IO_H

#include "base/err.h"
#include "proc/proc.h"

/*
 * err, from reading path, as an error of ours: GW_VM_GONE if the process is gone, else GW_INTERNAL;
 * the message for lack of permission says what godwit needs.
 */
int proc_failed(const char *path, int err, struct err *e);
int proc_load_maps(const char *proc, struct proc_maps *maps, struct err *e);
/* As proc_read_range(). */
int proc_load_range(const char *proc, uint64_t start, uint64_t end, struct proc_maps *maps,
		    struct err *e);
/* A descriptor that was closed meanwhile has no flags. */
int proc_load_fdinfo(const char *proc, const char *number, struct proc_fdinfo *info, struct err *e);

/*
 * Calls fn with the number of each thread (dir: "/proc/PID/task"), until fn returns anything but 0.
 * Return: what fn returned last, or an error of proc_failed().
 */
typedef int proc_entry_fn(const char *dir, const char *name, void *arg, struct err *e);
int proc_each_thread(const char *proc, proc_entry_fn *fn, void *arg, struct err *e);
/* The pid of a process but except that traces any of its threads; 0: none. */
int proc_tracer(const char *proc, pid_t except, pid_t *tracer, struct err *e);
/* Of a thread that proc_each_thread() has named; 0: it has ended. */
int proc_inner_tid(const char *dir, const char *tid, pid_t *inner, struct err *e);
/*
 * The directory of a thread of that process that has not ended: an ended thread, as a leader may
 * be, shows no open files. Takes it that threads share their open files. 1, 0: all have ended,
 * -errno.
 */
int proc_live_thread(const char *proc, char *dir, size_t size, struct err *e);
/* The process's name, on one line. */
void proc_name(const char *proc, char *name, size_t size);

/* Is every thread of that process stopped (SIGSTOP), or has it ended? */
bool proc_stopped(pid_t pid);
/* Has the process of this pidfd ended? */
bool proc_ended(int pidfd);

/* Calls fn for each open descriptor with the text of its link, until fn returns anything but 0. */
typedef int proc_fd_fn(void *arg, const char *number, const char *link, struct err *e);
int proc_each_fd(const char *proc, proc_fd_fn *fn, void *arg, struct err *e);

#endif
