// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <sys/uio.h>

#include "proc/memory.h"

ssize_t proc_memory_read(pid_t pid, uint64_t at, void *buf, size_t len)
{
	struct iovec ours = { buf, len };
	struct iovec theirs = { (void *)(uintptr_t)at, len };
	ssize_t n = process_vm_readv(pid, &ours, 1, &theirs, 1, 0);

	return n < 0 ? -errno : n;
}

ssize_t proc_memory_write(pid_t pid, uint64_t at, const void *buf, size_t len)
{
	struct iovec ours = { (void *)(uintptr_t)buf, len };
	struct iovec theirs = { (void *)(uintptr_t)at, len };
	ssize_t n = process_vm_writev(pid, &ours, 1, &theirs, 1, 0);

	return n < 0 ? -errno : n;
}
