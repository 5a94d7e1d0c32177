// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which mapping of the VMM is a backend? godwit needs two ways to find out:
 * - by name, when the mapping's path is the mem-path, or the file that QEMU makes and unlinks in
 *   it: an unlinked file has no identity that mem-path could lead to;
 * - by device and inode, when the mem-path is relative, leads through symbolic links or out of a
 *   chroot.
 * A memfd has neither: it is where QEMU says, or, when QEMU does not say, the only one of that
 * size. A backend that fits two files is refused: the wrong guess would be the memory of something
 * else.
 */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "vmm/ram.h"

#define DELETED " (deleted)"
#define MKSTEMP 6	/* characters that replace XXXXXX */

/* If path begins with text, as the kernel would show text: the rest of path, else NULL. */
static const char *mapping_skip_shown(const char *path, const char *text)
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

static bool mapping_at_end(const char *path)
{
	return !*path || !strcmp(path, DELETED);
}

/*
 * Is file named "qemu_back_mem.NAME.XXXXXX"? Before machine type 4.0 NAME is "/objects/ID", and a
 * slash becomes '_'.
 */
static bool mapping_made_by_qemu(const char *file, const char *id)
{
	static const char *const prefixes[] = { "qemu_back_mem.", "qemu_back_mem._objects_" };

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		const char *p = mapping_skip_shown(file, prefixes[i]);
		size_t n = 0;

		p = p ? mapping_skip_shown(p, id) : NULL;
		if (!p || *p++ != '.')
			continue;
		while (n < MKSTEMP && isalnum((unsigned char)p[n]))
			n++;
		if (n == MKSTEMP && mapping_at_end(p + n))
			return true;
	}
	return false;
}

static bool mapping_has_name(const struct backend *b, const char *path)
{
	const char *rest = mapping_skip_shown(path, b->mem_path);

	if (!rest || !*b->mem_path)
		return false;
	if (mapping_at_end(rest))
		return true;
	if (b->mem_path[strlen(b->mem_path) - 1] != '/' && *rest++ != '/')
		return false;
	return mapping_made_by_qemu(rest, b->id);
}

/*
 * QEMU gives all its memfds one name, so only place or size tells them apart; other shared memory
 * has a name that says nothing, so only its place counts.
 */
static bool mapping_is_unnamed(const struct backend *b, const struct proc_map *m)
{
	if (b->kind == BACKEND_MEMFD && strcmp(m->path, "/memfd:memory-backend-memfd" DELETED))
		return false;
	if (!b->hva && b->kind != BACKEND_MEMFD)
		return false;
	if (!b->hva)
		return m->end - m->start == b->bytes;
	return m->start < b->hva + b->bytes && m->end > b->hva;
}

bool ram_path_matches(const struct backend *b, const struct proc_map *m, const struct stat *seen)
{
	const char *slash = strrchr(m->path, '/');

	if (b->kind != BACKEND_FILE)
		return mapping_is_unnamed(b, m);
	if (mapping_has_name(b, m->path))
		return true;
	if (!seen || seen->st_dev != m->dev)
		return false;
	if (S_ISDIR(seen->st_mode))
		return slash && mapping_made_by_qemu(slash + 1, b->id);
	return seen->st_ino == m->ino;
}

/* The file that mem-path leads to from the VMM's root or working directory. */
static bool mapping_stat_mem_path(const char *proc, const char *mem_path, struct stat *st)
{
	char path[8192];
	const char *base = *mem_path == '/' ? "root" : "cwd";
	int n = snprintf(path, sizeof(path), "%s/%s/%s", proc, base, mem_path);

	return n > 0 && (size_t)n < sizeof(path) && stat(path, st) == 0;
}

int ram_find_mapping(const struct backend *b, const struct proc_maps *maps, const char *proc,
		     const struct proc_map **out, struct err *e)
{
	const struct proc_map *any = NULL;
	uint64_t mapped = 0;
	struct stat st;
	const char *name = b->mem_path ? b->mem_path :
		b->kind == BACKEND_MEMFD ? "a memfd" : "shared memory";
	bool seen = b->mem_path && mapping_stat_mem_path(proc, b->mem_path, &st);

	*out = NULL;
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->map[i];

		if (!ram_path_matches(b, m, seen ? &st : NULL))
			continue;
		if (any && (any->dev != m->dev || any->ino != m->ino))
			return ram_refuse(b->id, b->bytes, e,
					  "fits two files that the VMM maps, %.100s and %.100s",
					  any->path, m->path);
		any = m;
		if (m->offset == 0)
			*out = m;
		/* The kernel shows one mapping as several where its attributes differ. */
		mapped += m->end - m->start;
	}
	if (!any)
		return ram_refuse(b->id, b->bytes, e,
				  "has no shared mapping of %.128s in process %s (--pid names another process; mem-path must be absolute)",
				  name, strrchr(proc, '/') + 1);
	if (!*out)
		return ram_refuse(b->id, b->bytes, e,
				  "does not begin at the start of its file (offset=)");
	if (mapped < b->bytes)
		return ram_refuse(b->id, b->bytes, e, "is larger than what the VMM maps of %.128s",
				  name);
	return 0;
}
