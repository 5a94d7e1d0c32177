// SPDX-License-Identifier: GPL-2.0-only
/*
 * The memory cgroups of this process, the receiver. It is the first to touch the pages of a file,
 * so they are charged to it, and to every cgroup above. Private memory is charged to those of QEMU.
 *
 * A cgroup has more room than its limit minus its usage, which includes page cache: the kernel
 * drops that first. Inside a container, limits of the cgroups outside are not visible.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/host_internal.h"
#include "fit/mounts.h"

#define LEVELS_MAX	32u
/* Version 1 has no word for "no limit", but a number near the largest. */
#define NO_LIMIT	((uint64_t)1 << 62)

/**
 * struct hierarchy - what the files of one version are called
 * @both: @swap_limit applies to memory and swap together, not to swap alone
 */
struct hierarchy {
	const char *type;
	const char *limit, *usage, *high;
	const char *inactive_file, *active_file;
	const char *swap_limit, *swap_usage;
	bool both;
};

static const struct hierarchy version1 = {
	.type = "cgroup",
	.limit = "memory.limit_in_bytes",
	.usage = "memory.usage_in_bytes",
	.high = "memory.high",		/* does not exist there */
	.inactive_file = "total_inactive_file",
	.active_file = "total_active_file",
	.swap_limit = "memory.memsw.limit_in_bytes",
	.swap_usage = "memory.memsw.usage_in_bytes",
	.both = true,
};

static const struct hierarchy version2 = {
	.type = "cgroup2",
	.limit = "memory.max",
	.usage = "memory.current",
	.high = "memory.high",
	.inactive_file = "inactive_file",
	.active_file = "active_file",
	.swap_limit = "memory.swap.max",
	.swap_usage = "memory.swap.current",
};

static uint64_t left(uint64_t limit, uint64_t usage)
{
	return limit > usage ? limit - usage : 0;
}

static uint64_t page_cache(const struct hierarchy *h, const char *dir)
{
	char path[PATH_MAX + sizeof("/memory.stat")];
	uint64_t inactive = 0, active = 0;

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	host_read_field(path, h->inactive_file, &inactive);
	host_read_field(path, h->active_file, &active);
	return left(UINT64_MAX, inactive) > active ? inactive + active : UINT64_MAX;
}

/* room: until the cgroup's limit; cache: the part of its usage that the kernel can drop. */
static void view_swap(const struct hierarchy *h, const char *dir, uint64_t room, uint64_t cache,
		      json_t *o)
{
	uint64_t limit, usage, all;

	if (!host_read_number(dir, h->swap_limit, &limit) ||
	    !host_read_number(dir, h->swap_usage, &usage) || limit >= NO_LIMIT)
		return;
	all = h->both ? left(limit, left(usage, cache)) : room + left(limit, usage);
	host_set_number(o, "swap", left(all, room));
	if (all < room)
		host_set_number(o, "room", all);
}

static void view_one(const struct hierarchy *h, const char *dir, json_t *all)
{
	uint64_t limit = UINT64_MAX, high = UINT64_MAX, usage, used, cache;
	json_t *o;

	host_read_number(dir, h->limit, &limit);
	host_read_number(dir, h->high, &high);
	if ((limit >= NO_LIMIT && high >= NO_LIMIT) || !host_read_number(dir, h->usage, &usage))
		return;
	cache = page_cache(h, dir);
	used = left(usage, cache);
	o = json_pack("{s:s}", "path", dir);
	if (limit < NO_LIMIT) {
		host_set_number(o, "limit", limit);
		host_set_number(o, "room", left(limit, used));
		view_swap(h, dir, left(limit, used), cache, o);
	}
	if (high < NO_LIMIT) {
		host_set_number(o, "high", high);
		host_set_number(o, "high-room", left(high, used));
	}
	json_array_append_new(all, o);
}

/* Parses a line of /proc/PID/cgroup: "4:cpu,memory:/a/b", or "0::/a/b"; NULL: not of memory. */
static const struct hierarchy *parse_cgroup(char *line, char **cgroup)
{
	char *controllers = strchr(line, ':');

	*cgroup = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!*cgroup)
		return NULL;
	*(*cgroup)++ = '\0';
	(*cgroup)[strcspn(*cgroup, "\n")] = '\0';
	if (!controllers[1])
		return &version2;
	return mounts_option(controllers + 1, "memory") ? &version1 : NULL;
}

/* That of the process, of the version that has the memory controller. */
static const struct hierarchy *find_cgroup(const struct host_look *l, const char *process,
					   char *cgroup, size_t size)
{
	const struct hierarchy *found = NULL, *h;
	char path[PATH_MAX], *line = NULL, *at;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/cgroup", l->proc, process);
	f = fopen(path, "re");
	while (f && found != &version1 && getline(&line, &cap, f) > 0) {
		h = parse_cgroup(line, &at);
		if (h)
			snprintf(cgroup, size, "%s", at);
		found = h ? h : found;
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/*
 * Is the hierarchy mounted here, with our cgroup below? *cgroup is then relative to the mount. In a
 * container that sees its path at the host, the root of the mount is the container's own cgroup.
 */
static bool is_mount(const struct hierarchy *h, const struct mount *m, const char **cgroup)
{
	size_t len = strcmp(m->root, "/") ? strlen(m->root) : 0;

	if (strcmp(m->type, h->type) || (h->both && !mounts_option(m->options, "memory")))
		return false;
	if (strncmp(*cgroup, m->root, len) || !strchr("/", (*cgroup)[len]))
		return false;
	*cgroup += len;
	return true;
}

static bool find_mount(const struct host_look *l, const struct hierarchy *h, const char **cgroup,
		       char *point, size_t size)
{
	char path[PATH_MAX], *line = NULL;
	bool found = false;
	struct mount m;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/self/mountinfo", l->proc);
	f = fopen(path, "re");
	while (f && !found && mounts_next(f, &line, &cap, &m)) {
		found = is_mount(h, &m, cgroup);
		if (found)
			snprintf(point, size, "%s", m.point);
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

static void view_cgroups(const struct host_look *l, const char *process, const char *key)
{
	char cgroup[PATH_MAX], point[PATH_MAX], dir[PATH_MAX];
	const struct hierarchy *h = find_cgroup(l, process, cgroup, sizeof(cgroup));
	const char *below = cgroup;
	json_t *all = json_array();

	json_object_set_new(l->host, key, all);
	/* "/../a": it is outside of our cgroup namespace. */
	if (!h || !strncmp(cgroup, "/..", 3) || !find_mount(l, h, &below, point, sizeof(point)))
		return;
	if (snprintf(dir, sizeof(dir), "%s%s", point, below) >= (int)sizeof(dir))
		return;
	for (unsigned int i = 0; i < LEVELS_MAX; i++) {
		size_t len = strlen(dir);

		while (len > strlen(point) && dir[len - 1] == '/')
			dir[--len] = '\0';
		view_one(h, dir, all);
		if (len <= strlen(point))
			break;
		*strrchr(dir, '/') = '\0';
	}
}

static bool has_private(const struct vm *vm)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (vm->blocks[i].hva)
			return true;
	return false;
}

void host_view_cgroups(const struct host_look *l)
{
	char vmm[16];

	snprintf(vmm, sizeof(vmm), "%d", (int)l->vm->pid);
	view_cgroups(l, "self", "cgroups");
	if (has_private(l->vm))
		view_cgroups(l, vmm, "qemu-cgroups");
}
