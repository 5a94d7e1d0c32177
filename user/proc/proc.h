/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parses the text of /proc/PID. Pure: a FILE in, values out. -EPROTO: the text is not of the form
 * that the kernel writes.
 */
#ifndef GODWIT_PROC_H
#define GODWIT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/**
 * struct proc_map - a line of /proc/PID/maps
 * @offset: bytes into the file
 * @writable: PROT_WRITE
 * @shared: MAP_SHARED
 * @path: as the kernel shows it: a newline is "\012", an unlinked file ends in " (deleted)"; may be
 *	empty
 */
struct proc_map {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	dev_t dev;
	ino_t ino;
	bool writable;
	bool shared;
	char *path;
};

struct proc_maps {
	struct proc_map *map;
	size_t n;
};

/* One line without its newline; m->path points into line. */
int proc_parse_map(char *line, struct proc_map *m);
/* The shared mappings of files; proc_free_maps() also after an error. */
int proc_read_maps(FILE *f, struct proc_maps *maps);
/* All mappings that lie in [start, end), if only in part, in the order of their addresses. */
int proc_read_range(FILE *f, uint64_t start, uint64_t end, struct proc_maps *maps);
void proc_free_maps(struct proc_maps *maps);

/**
 * struct proc_fdinfo - from /proc/PID/fdinfo/N
 * @flags: of open(2)
 * @user_bufs: fixed buffers of an io_uring, else 0
 * @says_bufs: that line was there
 */
struct proc_fdinfo {
	unsigned int flags;
	uint64_t user_bufs;
	bool says_bufs;
};

int proc_read_fdinfo(FILE *f, struct proc_fdinfo *info);
/*
 * From /proc/PID/task/TID/status: the pid of the process that traces that thread; 0: no process
 * does, or one outside our pid namespace.
 */
int proc_read_tracer(FILE *f, pid_t *tracer);
/*
 * From the same file: the thread's number in the innermost pid namespace that it is in. -ESRCH: it
 * has ended; -ENODATA: this kernel has no pid namespaces.
 */
int proc_read_inner_tid(FILE *f, pid_t *tid);

#endif
