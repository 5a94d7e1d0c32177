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

/* All threads of that process are stopped (SIGSTOP), or have ended. */
bool proc_stopped(pid_t pid);

/* Calls fn for each open descriptor with what its link says, until fn returns something else than 0. */
typedef int proc_fd_fn(void *arg, const char *number, const char *link, struct err *e);
int proc_each_fd(const char *proc, proc_fd_fn *fn, void *arg, struct err *e);

#endif
