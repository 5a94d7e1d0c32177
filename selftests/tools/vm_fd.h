/* SPDX-License-Identifier: GPL-2.0-only */
/* The descriptor by which a VMM has its VM. */
#ifndef VM_FD_H
#define VM_FD_H

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Its number in that process, or -1. */
static inline int find_vm_fd(pid_t pid)
{
	char path[64], to[64];

	for (int fd = 0; fd < 4096; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && (to[n] = '\0', !strcmp(to, "anon_inode:kvm-vm")))
			return fd;
	}
	return -1;
}

#endif
