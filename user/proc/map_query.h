/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a process maps, from the kernel's own numbers and not from the text of /proc/PID/maps: from
 * Linux 6.11 on, an ioctl of that file. It is a third of the work, or less, as only mappings of
 * files are asked for, or only shared ones, and the kernel prints no paths.
 */
#ifndef GODWIT_MAP_QUERY_H
#define GODWIT_MAP_QUERY_H

#include "proc/proc.h"

/* m->path is empty. true: ends the search. */
typedef bool (*map_query_fn)(const struct proc_map *m, void *arg);

/**
 * map_query() - pass on the mappings of files, in the order of their addresses
 * @fd: /proc/PID/maps
 * @shared: only shared ones
 * Return: 1: fn has ended it; 0: that was all; -ENOTTY: the kernel has no such ioctl, or fd is
 * another file; -ESRCH: the process has no memory; or another -errno.
 */
int map_query(int fd, bool shared, map_query_fn fn, void *arg);

#endif
