/* SPDX-License-Identifier: GPL-2.0-only */
/* Parses the text of /proc/PID/mountinfo. Pure: a FILE goes in, values come out. */
#ifndef GODWIT_FIT_MOUNTS_H
#define GODWIT_FIT_MOUNTS_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/**
 * struct mount - one line
 * @root: the directory of the file system that is mounted
 * @point: where; blanks are not escaped
 * @type: of the file system
 * @options: of the file system, not of the mount: "rw,size=1024k"
 */
struct mount {
	dev_t dev;
	const char *root;
	const char *point;
	const char *type;
	const char *options;
};

/* Parses a line, into which *m points then. -EPROTO: the kernel does not write such a line. */
int mounts_parse(char *line, struct mount *m);
/*
 * Reads the next line that can be parsed; false at the end. *line: for free(), *m points into it.
 */
bool mounts_next(FILE *f, char **line, size_t *cap, struct mount *m);
/* Is this word among the options? "memory" is not in "memory_recursiveprot". */
bool mounts_option(const char *options, const char *word);

#endif
