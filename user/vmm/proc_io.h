/* SPDX-License-Identifier: GPL-2.0-only */
/* Opening what proc.h parses. "proc" is "/proc/PID", or what a test puts in its place. */
#ifndef GODWIT_PROC_IO_H
#define GODWIT_PROC_IO_H

#include "err.h"
#include "vmm/proc.h"

/* A file of /proc that cannot be read: GW_VM_GONE, or GW_INTERNAL when we are not allowed to. */
int proc_failed(const char *path, int err, struct err *e);
int proc_load_maps(const char *proc, struct proc_maps *maps, struct err *e);
/* A descriptor that was closed meanwhile has no flags. */
int proc_load_fdinfo(const char *proc, const char *number, struct proc_fdinfo *info, struct err *e);

/*
 * Calls fn with the number of each thread (dir: "/proc/PID/task"), until it returns something else than 0. Errors: those of
 * proc_failed(), and of fn.
 */
typedef int proc_entry_fn(const char *dir, const char *name, void *arg, struct err *e);
int proc_each_thread(const char *proc, proc_entry_fn *fn, void *arg, struct err *e);
/* Who traces any of its threads; 0: nobody. */
int proc_tracer(const char *proc, pid_t *tracer, struct err *e);
/*
 * Of a thread of that process which lives, its directory: one that has ended, as a leader may have, shows no open files. Threads
 * are taken to share them. 1, 0: none lives, -errno.
 */
int proc_live_thread(const char *proc, char *dir, size_t size, struct err *e);
/* What it is called, on one line. */
void proc_name(const char *proc, char *name, size_t size);

/* All threads of that process are stopped (SIGSTOP), or have ended. */
bool proc_stopped(pid_t pid);
/* pidfd: of a process: it has ended. */
bool proc_ended(int pidfd);

/* Calls fn for each open descriptor with what its link says, until fn returns something else than 0. */
typedef int proc_fd_fn(void *arg, const char *number, const char *link, struct err *e);
int proc_each_fd(const char *proc, proc_fd_fn *fn, void *arg, struct err *e);

#endif
