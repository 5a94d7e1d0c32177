// SPDX-License-Identifier: GPL-2.0-only
/*
 * Room for the guest's RAM: the file systems that its files are on, the pools of huge pages, and
 * the memory of this host.
 *
 * The receiver empties the files first, so what they hold counts as room, too. On hugetlbfs it
 * reserves all of a block at once. QEMU has done that already, unless it runs with reserve=off, and
 * pages that are reserved for a file and not allocated stay reserved when the receiver empties the
 * file.
 */
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "fit/host_internal.h"
#include "fit/mounts.h"
#include "page/page.h"

/*
 * Finds where the file system is mounted, as that process sees it. min_size: the mount has a part
 * of the pool of huge pages to itself. A bind mount of one of its directories is named only if
 * there is no better mount.
 */
static bool view_mount(const struct host_look *l, const char *process, dev_t dev, json_t *fs,
		       bool *min_size)
{
	char path[PATH_MAX], *line = NULL;
	bool found = false, whole = false;
	struct mount m;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s/mountinfo", l->proc, process);
	f = fopen(path, "re");
	while (f && !whole && mounts_next(f, &line, &cap, &m)) {
		if (m.dev != dev)
			continue;
		whole = !strcmp(m.root, "/");
		if (!found || whole)
			json_object_set_new(fs, "mount", json_string(m.point));
		found = true;
		*min_size = mounts_option(m.options, "min_size");
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/*
 * The pages of the pool that are neither used nor reserved, and those that overcommitting can add.
 */
static void view_pool(const struct host_look *l, uint64_t page)
{
	uint64_t pages, reserved, most = 0, surplus = 0;
	char dir[PATH_MAX], key[32];

	snprintf(key, sizeof(key), "%llu", (unsigned long long)page);
	snprintf(dir, sizeof(dir), "%s/kernel/mm/hugepages/hugepages-%llukB", l->sys,
		 (unsigned long long)page / 1024);
	if (!host_read_number(dir, "free_hugepages", &pages) ||
	    !host_read_number(dir, "resv_hugepages", &reserved))
		return;
	host_read_number(dir, "nr_overcommit_hugepages", &most);
	host_read_number(dir, "surplus_hugepages", &surplus);
	pages = pages > reserved ? pages - reserved : 0;
	if (most > surplus && most - surplus < UINT64_MAX - pages)
		pages += most - surplus;
	if (pages < UINT64_MAX / page)
		host_set_number(host_object(l->host, "pool"), key, pages * page);
}

static void view_fs(const struct host_look *l, const char *id, dev_t dev, const struct statfs *st)
{
	json_t *fs = host_object(host_object(l->host, "fs"), id);
	bool hugetlb = st->f_type == HUGETLBFS_MAGIC, min_size = false;
	uint64_t page = (uint64_t)st->f_bsize;
	char vmm[16];

	if (host_text(fs, "type"))
		return;
	json_object_set_new(fs, "type", json_string(hugetlb ? "hugetlbfs" : "tmpfs"));
	host_set_number(fs, "page", page);
	/* Without a limit there are 0 blocks, with min_size alone the largest number of them. */
	if (st->f_blocks && st->f_blocks <= (uint64_t)INT64_MAX / page) {
		host_set_number(fs, "size", st->f_blocks * page);
		host_set_number(fs, "free", st->f_bfree <= st->f_blocks ? st->f_bfree * page : 0);
	}
	snprintf(vmm, sizeof(vmm), "%d", (int)l->vm->pid);
	if (!view_mount(l, "self", dev, fs, &min_size))
		view_mount(l, vmm, dev, fs, &min_size);
	if (hugetlb && !min_size)
		view_pool(l, page);
}

/* QEMU reserves huge pages unless it is told not to. */
static int view_reserved(const struct host_look *l, const struct ram_block *b, json_t *o,
			 struct err *e)
{
	char path[sizeof("/objects/") + sizeof(b->name)];
	json_auto_t *reserve = NULL;
	uint64_t allocated;
	int r;

	snprintf(path, sizeof(path), "/objects/%s", b->name);
	r = host_ask_qom(l, path, "reserve", &reserve, e);
	if (!r && !json_is_false(reserve) && host_number(o, "allocated", &allocated))
		host_set_number(o, "reserved", b->pages * PAGE_BYTES - allocated);
	return r;
}

static void view_memory(const struct host_look *l)
{
	json_t *memory = host_object(l->host, "memory");
	char path[PATH_MAX];
	uint64_t kib;

	snprintf(path, sizeof(path), "%s/meminfo", l->proc);
	if (host_read_field(path, "MemAvailable:", &kib) && kib < UINT64_MAX / 1024)
		host_set_number(memory, "available", kib * 1024);
	if (host_read_field(path, "SwapFree:", &kib) && kib < UINT64_MAX / 1024)
		host_set_number(memory, "swap", kib * 1024);
}

int host_view_room(const struct host_look *l, struct err *e)
{
	int r = 0;

	view_memory(l);
	for (unsigned int i = 0; i < l->vm->nblocks && !r; i++) {
		const struct ram_block *b = &l->vm->blocks[i];
		json_t *o = host_object(host_object(l->host, "ram"), b->name);
		struct statfs fs;
		struct stat st;
		char id[32];

		if (b->hva && !b->hugetlb) {
			json_object_set_new(o, "fs", json_string("memory"));
			json_object_set_new(host_object(host_object(l->host, "fs"), "memory"), "type", json_string("memory"));
			continue;
		}
		if (fstat(b->fd, &st) < 0 || fstatfs(b->fd, &fs) < 0 || fs.f_bsize <= 0)
			continue;
		snprintf(id, sizeof(id), "%u:%u", major(st.st_dev), minor(st.st_dev));
		json_object_set_new(o, "fs", json_string(id));
		view_fs(l, id, st.st_dev, &fs);
		if (fs.f_type == HUGETLBFS_MAGIC)
			r = view_reserved(l, b, o, e);
	}
	return r;
}
