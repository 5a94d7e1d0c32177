// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "vmm/proc.h"

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : INT_MAX;
}

/* Digits, and nothing that strtoull() would take as well: no sign, no blanks, no overflow. */
static bool number(const char **p, int base, uint64_t max, uint64_t *v)
{
	const char *s = *p;

	for (*v = 0; digit(*s) < base; s++)
		if (__builtin_mul_overflow(*v, (uint64_t)base, v) || __builtin_add_overflow(*v, (uint64_t)digit(*s), v))
			return false;
	if (s == *p || *v > max)
		return false;
	*p = s;
	return true;
}

static bool character(const char **p, const char *set)
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

	if (!number(&p, 16, UINT64_MAX, &m->start) || !character(&p, "-") || !number(&p, 16, UINT64_MAX, &m->end) ||
	    !character(&p, " ") || !character(&p, "r-") || !character(&p, "w-") || !character(&p, "x-") ||
	    !character(&p, "sp"))
		return -EPROTO;
	m->shared = p[-1] == 's';
	if (!character(&p, " ") || !number(&p, 16, INT64_MAX, &m->offset) || !character(&p, " ") ||
	    !number(&p, 16, UINT32_MAX, &major) || !character(&p, ":") || !number(&p, 16, UINT32_MAX, &minor) ||
	    !character(&p, " ") || !number(&p, 10, UINT64_MAX, &ino) || (*p && *p != ' ') || m->start >= m->end)
		return -EPROTO;
	m->dev = makedev((unsigned int)major, (unsigned int)minor);
	m->ino = ino;
	m->path = line + (p - line) + strspn(p, " ");
	return 0;
}

static int append(struct proc_maps *maps, const struct proc_map *m)
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

static void free_line(char **line)
{
	free(*line);
}

int proc_read_maps(FILE *f, struct proc_maps *maps)
{
	__attribute__((cleanup(free_line))) char *line = NULL;
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
		if (!r && m.shared && m.path[0] == '/')
			r = append(maps, &m);
		if (r)
			return r;
	}
	return -errno;
}

void proc_free_maps(struct proc_maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		free(maps->map[i].path);
	free(maps->map);
	*maps = (struct proc_maps) { 0 };
}

/* "name:\tNUMBER" with this name: 1 and the number, 0: another line, -EPROTO. */
static int field(const char *line, const char *name, int base, uint64_t max, uint64_t *v)
{
	size_t len = strlen(name);
	const char *p = line + len;

	if (strncmp(line, name, len))
		return 0;
	p += strspn(p, " \t");
	return number(&p, base, max, v) && (!*p || *p == '\n') ? 1 : -EPROTO;
}

int proc_read_fdinfo(FILE *f, struct proc_fdinfo *info)
{
	__attribute__((cleanup(free_line))) char *line = NULL;
	bool has_flags = false;
	size_t cap = 0;

	*info = (struct proc_fdinfo) { 0 };
	while (errno = 0, getline(&line, &cap, f) > 0) {
		uint64_t flags;
		int r = field(line, "flags:", 8, UINT_MAX, &flags);

		if (r > 0) {
			info->flags = (unsigned int)flags;
			has_flags = true;
		} else if (!r) {
			r = field(line, "UserBufs:", 10, UINT64_MAX, &info->user_bufs);
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
	__attribute__((cleanup(free_line))) char *line = NULL;
	uint64_t pid;
	size_t cap = 0;

	while (errno = 0, getline(&line, &cap, f) > 0) {
		int r = field(line, "TracerPid:", 10, INT_MAX, &pid);

		if (r > 0)
			*tracer = (pid_t)pid;
		if (r)
			return r < 0 ? r : 0;
	}
	return errno ? -errno : -EPROTO;
}
