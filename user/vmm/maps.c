// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which mapping of the VMM is a backend? Two ways to know, and both are needed:
 * - by name, when the mapping's path is the mem-path, or the file that QEMU makes and unlinks in it: a file
 *   that is gone has no identity that could be looked up;
 * - by device and inode, when the mem-path is relative, leads through symbolic links or out of a chroot.
 * A memfd has neither: it is where QEMU says, or, when QEMU does not say, the only one of that size.
 * A backend that fits two files is refused: the wrong guess would be somebody else's memory.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "vmm/ram.h"

#define DELETED " (deleted)"
#define MKSTEMP 6	/* characters that replace XXXXXX */

/* path begins with text as the kernel would show it; returns what follows, else NULL. */
static const char *skip_shown(const char *path, const char *text)
{
	for (; *text; text++) {
		const char one[] = { *text, '\0' };
		const char *shown = *text == '\n' ? "\\012" : one;

		if (strncmp(path, shown, strlen(shown)))
			return NULL;
		path += strlen(shown);
	}
	return path;
}

static bool at_end(const char *path)
{
	return !*path || !strcmp(path, DELETED);
}

/* "qemu_back_mem.NAME.XXXXXX". Before machine type 4.0 the region's name is "/objects/ID", and a slash becomes '_'. */
static bool is_made_by_qemu(const char *file, const char *id)
{
	static const char *const prefixes[] = { "qemu_back_mem.", "qemu_back_mem._objects_" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		const char *p = skip_shown(file, prefixes[i]);
		size_t n = 0;

		p = p ? skip_shown(p, id) : NULL;
		if (!p || *p++ != '.')
			continue;
		while (n < MKSTEMP && isalnum((unsigned char)p[n]))
			n++;
		if (n == MKSTEMP && at_end(p + n))
			return true;
	}
	return false;
}

static bool matches_by_name(const struct backend *b, const char *path)
{
	const char *rest = skip_shown(path, b->mem_path);

	if (!rest || !*b->mem_path)
		return false;
	if (at_end(rest))
		return true;
	if (b->mem_path[strlen(b->mem_path) - 1] != '/' && *rest++ != '/')
		return false;
	return is_made_by_qemu(rest, b->id);
}

/* The name that QEMU gives them all. */
static bool is_the_memfd(const struct backend *b, const struct proc_map *m)
{
	if (strcmp(m->path, "/memfd:memory-backend-memfd" DELETED))
		return false;
	return b->hva ? m->start < b->hva + b->bytes && m->end > b->hva : m->end - m->start == b->bytes;
}

bool ram_path_matches(const struct backend *b, const struct proc_map *m, const struct stat *seen)
{
	const char *slash = strrchr(m->path, '/');

	if (!b->mem_path)
		return is_the_memfd(b, m);
	if (matches_by_name(b, m->path))
		return true;
	if (!seen || seen->st_dev != m->dev)
		return false;
	if (S_ISDIR(seen->st_mode))
		return slash && is_made_by_qemu(slash + 1, b->id);
	return seen->st_ino == m->ino;
}

/* What mem-path leads to, seen with the VMM's root and working directory. */
static bool look_up(const char *proc, const char *mem_path, struct stat *st)
{
	char path[8192];
	int n = snprintf(path, sizeof(path), "%s/%s/%s", proc, *mem_path == '/' ? "root" : "cwd", mem_path);

	return n > 0 && (size_t)n < sizeof(path) && stat(path, st) == 0;
}

int ram_find_mapping(const struct backend *b, const struct proc_maps *maps, const char *proc,
		     const struct proc_map **out, struct err *e)
{
	const struct proc_map *any = NULL;
	uint64_t mapped = 0;
	struct stat st;
	const char *name = b->mem_path ? b->mem_path : "a memfd";
	bool seen = b->mem_path && look_up(proc, b->mem_path, &st);

	*out = NULL;
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->map[i];

		if (!ram_path_matches(b, m, seen ? &st : NULL))
			continue;
		if (any && (any->dev != m->dev || any->ino != m->ino))
			return ram_refuse(b->id, b->bytes, e, "fits two files that the VMM maps, %.100s and %.100s", any->path, m->path);
		any = m;
		if (m->offset == 0)
			*out = m;
		/* One mapping shows as several where its attributes differ. */
		mapped += m->end - m->start;
	}
	if (!any)
		return ram_refuse(b->id, b->bytes, e,
				  "has no shared mapping of %.128s in process %s (--pid names another one; mem-path must be absolute)", name,
				  strrchr(proc, '/') + 1);
	if (!*out)
		return ram_refuse(b->id, b->bytes, e, "does not begin at the start of its file (offset=)");
	if (mapped < b->bytes)
		return ram_refuse(b->id, b->bytes, e, "is larger than what the VMM maps of %.128s", name);
	return 0;
}
