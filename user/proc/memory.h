/* SPDX-License-Identifier: GPL-2.0-only */
/* The memory of another process, by address. */
#ifndef GODWIT_PROC_MEMORY_H
#define GODWIT_PROC_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

/*
 * Return: how many bytes were copied, fewer than len where that process maps no more from there on;
 * -EFAULT: it does not map the first; -ESRCH: there is no such process; other values of -errno.
 */
ssize_t proc_memory_read(pid_t pid, uint64_t at, void *buf, size_t len);
ssize_t proc_memory_write(pid_t pid, uint64_t at, const void *buf, size_t len);

#endif
