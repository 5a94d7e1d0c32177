// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "proc/proc.h"

static int proc_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : INT_MAX;
}

/* Takes digits only: no sign, no blanks, no overflow, all of which strtoull() would take. */
static bool proc_number(const char **p, int base, uint64_t max, uint64_t *v)
{
	const char *s = *p;

	for (*v = 0; proc_digit(*s) < base; s++)
		if (__builtin_mul_overflow(*v, (uint64_t)base, v) ||
		    __builtin_add_overflow(*v, (uint64_t)proc_digit(*s), v))
			return false;
	if (s == *p || *v > max)
		return false;
	*p = s;
	return true;
}

/* Takes one character of set. */
static bool proc_char(const char **p, const char *set)
{
	if (!**p || !strchr(set, **p))
		return false;
	(*p)++;
	return true;
}

/* 7f2569fff000-7f256bfff000 rw-s 00000000 00:1b 10      /dev/shm/x.ram */
int proc_parse_map(char *line, struct proc_map *m)
{
	const char *p = line;
	uint64_t major, minor, ino;

	if (!proc_number(&p, 16, UINT64_MAX, &m->start) || !proc_char(&p, "-") ||
	    !proc_number(&p, 16, UINT64_MAX, &m->end) || !proc_char(&p, " ") ||
	    !proc_char(&p, "r-") || !proc_char(&p, "w-") || !proc_char(&p, "x-") ||
	    !proc_char(&p, "sp"))
		return -EPROTO;
	m->writable = p[-3] == 'w';
	m->shared = p[-1] == 's';
	if (!proc_char(&p, " ") || !proc_number(&p, 16, INT64_MAX, &m->offset) ||
	    !proc_char(&p, " ") || !proc_number(&p, 16, UINT32_MAX, &major) ||
	    !proc_char(&p, ":") || !proc_number(&p, 16, UINT32_MAX, &minor) ||
	    !proc_char(&p, " ") || !proc_number(&p, 10, UINT64_MAX, &ino) ||
	    (*p && *p != ' ') || m->start >= m->end)
		return -EPROTO;
	m->dev = makedev((unsigned int)major, (unsigned int)minor);
	m->ino = ino;
	m->path = line + (p - line) + strspn(p, " ");
	return 0;
}

static int proc_append_map(struct proc_maps *maps, const struct proc_map *m)
{
	struct proc_map *map;

	if ((maps->n & (maps->n - 1)) == 0) {	/* 0 or a power of two: full */
		map = realloc(maps->map, (maps->n ? maps->n * 2 : 1) * sizeof(*map));
		if (!map)
			return -ENOMEM;
		maps->map = map;
	}
	map = &maps->map[maps->n];
	*map = *m;
	map->path = strdup(m->path);
	if (!map->path)
		return -ENOMEM;
	maps->n++;
	return 0;
}

/* end 0: the shared mappings of files; else all that lie in [start, end), if only in part. */
static int proc_read_some_maps(FILE *f, uint64_t start, uint64_t end, struct proc_maps *maps)
{
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;
	ssize_t len;

	*maps = (struct proc_maps) { 0 };
	while ((errno = 0, len = getline(&line, &cap, f)) > 0) {
		struct proc_map m;
		int r;

		if (line[len - 1] != '\n' || strlen(line) != (size_t)len)
			return -EPROTO;
		line[len - 1] = '\0';
		r = proc_parse_map(line, &m);
		if (!r && (end ? m.start < end && m.end > start : m.shared && m.path[0] == '/'))
			r = proc_append_map(maps, &m);
		if (r)
			return r;
	}
	return -errno;
}

int proc_read_maps(FILE *f, struct proc_maps *maps)
{
	return proc_read_some_maps(f, 0, 0, maps);
}

int proc_read_range(FILE *f, uint64_t start, uint64_t end, struct proc_maps *maps)
{
	return proc_read_some_maps(f, start, end, maps);
}

void proc_free_maps(struct proc_maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		free(maps->map[i].path);
	free(maps->map);
	*maps = (struct proc_maps) { 0 };
}

/* The line "name:\tNUMBER" with this name: 1 and the number, 0: another line, -EPROTO. */
static int proc_field(const char *line, const char *name, int base, uint64_t max, uint64_t *v)
{
	size_t len = strlen(name);
	const char *p = line + len;

	if (strncmp(line, name, len))
		return 0;
	p += strspn(p, " \t");
	return proc_number(&p, base, max, v) && (!*p || *p == '\n') ? 1 : -EPROTO;
}

int proc_read_fdinfo(FILE *f, struct proc_fdinfo *info)
{
	CLEANUP_FREE char *line = NULL;
	bool has_flags = false;
	size_t cap = 0;

	*info = (struct proc_fdinfo) { 0 };
	while (errno = 0, getline(&line, &cap, f) > 0) {
		uint64_t flags;
		int r = proc_field(line, "flags:", 8, UINT_MAX, &flags);

		if (r > 0) {
			info->flags = (unsigned int)flags;
			has_flags = true;
		} else if (!r) {
			r = proc_field(line, "UserBufs:", 10, UINT64_MAX, &info->user_bufs);
			info->says_bufs |= r > 0;
		}
		if (r < 0)
			return r;
	}
	if (errno)
		return -errno;
	return has_flags ? 0 : -EPROTO;
}

int proc_read_tracer(FILE *f, pid_t *tracer)
{
	CLEANUP_FREE char *line = NULL;
	uint64_t pid;
	size_t cap = 0;

	while (errno = 0, getline(&line, &cap, f) > 0) {
		int r = proc_field(line, "TracerPid:", 10, INT_MAX, &pid);

		if (r > 0)
			*tracer = (pid_t)pid;
		if (r)
			return r < 0 ? r : 0;
	}
	return errno ? -errno : -EPROTO;
}

int proc_read_inner_tid(FILE *f, pid_t *tid)
{
	static const char name[] = "NSpid:";
	CLEANUP_FREE char *line = NULL;
	size_t cap = 0;

	while (errno = 0, getline(&line, &cap, f) > 0) {
		const char *last = strrchr(line, '\t');
		uint64_t v;

		if (strncmp(line, name, sizeof(name) - 1))
			continue;
		if (!last++ || !proc_number(&last, 10, INT_MAX, &v) || *last != '\n')
			return -EPROTO;
		if (!v)
			return -ESRCH;
		*tid = (pid_t)v;
		return 0;
	}
	return errno ? -errno : -ENODATA;
}
