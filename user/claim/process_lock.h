/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A lock on a process, whatever memory it has: flock() of its "pagemap" in /proc.
 *
 * Each mount of /proc has inodes of its own, so where it is opened counts. It is opened below the
 * root directory of the process itself: that leads every godwit on this host to one mount, from
 * whatever pid or mount namespace it comes, and under whatever options. Only a program that may
 * trace the process can open the file, so no other user can take the lock.
 *
 * Other things that were considered: a file in /run (a service may have a directory, or a /run, of
 * its own), an abstract unix socket (one for each network namespace, and any user may take it), a
 * pidfd (before Linux 6.9 all of them are one inode, and any user may lock it), an object in QEMU
 * (it outlives a godwit that is killed).
 */
#ifndef GODWIT_PROCESS_LOCK_H
#define GODWIT_PROCESS_LOCK_H

#include <sys/types.h>

/**
 * process_lock_open() - the file whose lock is the process's
 * A process whose root directory has no /proc (a chroot) is looked up in our own /proc: that lock
 * does not hold against a godwit with another mount of it.
 * Return: a descriptor to flock(), or -1: we may not trace the process, or it has ended.
 */
int process_lock_open(pid_t pid);

#endif
