/* SPDX-License-Identifier: GPL-2.0-only */
/* Text of /proc/PID, parsed. Pure: a FILE in, values out; what does not look as the kernel writes it is -EPROTO. */
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
 * @shared: MAP_SHARED
 * @path: as the kernel shows it: a newline is "\012", an unlinked file ends in " (deleted)"; may be empty
 */
struct proc_map {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	dev_t dev;
	ino_t ino;
	bool shared;
	char *path;
};

struct proc_maps {
	struct proc_map *map;
	size_t n;
};

/* One line without newline; m->path points into it. */
int proc_parse_map(char *line, struct proc_map *m);
/* The shared mappings of files; proc_free_maps() also after an error. */
int proc_read_maps(FILE *f, struct proc_maps *maps);
void proc_free_maps(struct proc_maps *maps);

/**
 * struct proc_fdinfo - of /proc/PID/fdinfo/N
 * @flags: of open(2)
 * @user_bufs: fixed buffers of an io_uring, else 0
 */
struct proc_fdinfo {
	unsigned int flags;
	uint64_t user_bufs;
};

int proc_read_fdinfo(FILE *f, struct proc_fdinfo *info);
/* Of /proc/PID/task/TID/status: who traces that thread; 0: nobody, or one that our pid namespace does not see. */
int proc_read_tracer(FILE *f, pid_t *tracer);

#endif
