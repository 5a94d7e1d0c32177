// SPDX-License-Identifier: GPL-2.0-only
/*
 * RAM files of a VMM that is not asked: what it maps shared from tmpfs or hugetlbfs, and is not small. Good enough to
 * measure with, since a file that no memslot shows costs little; not to migrate with.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "vmm/proc_io.h"
#include "vmm/ram.h"

#define SMALL_BYTES	(1u << 20)

/* 1: taken as the next block; 0: no RAM file. */
static int take(const struct proc_map *m, const char *proc, struct ram_block *b, struct err *e)
{
	const char *slash = strrchr(m->path, '/');
	char path[256];
	struct statfs fs;
	struct stat st;

	snprintf(path, sizeof(path), "%s/map_files/%" PRIx64 "-%" PRIx64, proc, m->start, m->end);
	b->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (b->fd < 0)
		return errno == ENOENT || errno == ENXIO ? 0 : proc_failed(path, errno, e);
	if (fstat(b->fd, &st) < 0 || fstatfs(b->fd, &fs) < 0 || !S_ISREG(st.st_mode) || st.st_size < SMALL_BYTES ||
	    st.st_dev != m->dev || st.st_ino != m->ino || (fs.f_type != TMPFS_MAGIC && fs.f_type != HUGETLBFS_MAGIC)) {
		close(b->fd);
		return 0;
	}
	b->dev = st.st_dev;
	b->ino = st.st_ino;
	b->hugetlb = fs.f_type == HUGETLBFS_MAGIC;
	b->page_size = b->hugetlb ? (uint32_t)fs.f_bsize : WIRE_PAGE;
	b->pages = (uint64_t)st.st_size / WIRE_PAGE;
	b->address = WIRE_NO_ADDRESS;
	snprintf(b->name, sizeof(b->name), "%.*s", WIRE_NAME_MAX, slash ? slash + 1 : m->path);
	return 1;
}

int ram_find_mapped(const char *proc, struct vm *vm, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	int r = proc_load_maps(proc, &maps, e);

	for (size_t i = 0; r >= 0 && i < maps.n && vm->nblocks < WIRE_BLOCKS_MAX; i++) {
		unsigned int n = vm->nblocks, j = 0;

		while (j < n && (vm->blocks[j].dev != maps.map[i].dev || vm->blocks[j].ino != maps.map[i].ino))
			j++;
		if (j < n)
			continue;
		r = take(&maps.map[i], proc, &vm->blocks[n], e);
		vm->nblocks += r == 1;
	}
	if (r < 0)
		return r;
	if (!vm->nblocks)
		return err_set(e, GW_RAM_PRIVATE, ENOENT,
			       "%s maps no shared file of tmpfs or hugetlbfs: start QEMU with -object memory-backend-file,share=on", proc);
	return 0;
}
