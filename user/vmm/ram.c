// SPDX-License-Identifier: GPL-2.0-only
/* The files behind the backends, through /proc/PID/map_files: mount namespaces and unlinked files do not matter. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "vmm/proc_io.h"
#include "vmm/ram.h"

static int check_file(const struct backend *b, const struct proc_map *m, struct ram_block *out, struct err *e)
{
	struct stat st;
	struct statfs fs;

	if (fstat(out->fd, &st) < 0 || fstatfs(out->fd, &fs) < 0)
		return err_set(e, GW_INTERNAL, errno, "RAM \"%s\": fstat: %s", b->id, strerror(errno));
	if (st.st_dev != m->dev || st.st_ino != m->ino)
		return err_set(e, GW_INTERNAL, EAGAIN, "RAM \"%s\": the VMM changed its mappings meanwhile: try again", b->id);
	out->dev = st.st_dev;
	out->ino = st.st_ino;
	out->hugetlb = fs.f_type == HUGETLBFS_MAGIC;
	if (!S_ISREG(st.st_mode) || (fs.f_type != TMPFS_MAGIC && !out->hugetlb))
		return ram_refuse(b->id, b->bytes, e, "is %.128s, which is not on tmpfs or hugetlbfs", m->path);
	if ((uint64_t)st.st_size < b->bytes)
		return ram_refuse(b->id, b->bytes, e, "has a file that is too short, %lld bytes", (long long)st.st_size);
	out->page_size = out->hugetlb ? (uint32_t)fs.f_bsize : WIRE_PAGE;
	out->pages = b->bytes / WIRE_PAGE;
	out->address = WIRE_NO_ADDRESS;
	return 0;
}

int ram_open(const struct backend *b, const struct proc_map *m, const char *proc, bool write, struct ram_block *out,
	     struct err *e)
{
	char path[256];
	int r;

	memcpy(out->name, b->id, sizeof(out->name));
	out->memfd = !b->mem_path;
	snprintf(path, sizeof(path), "%s/map_files/%" PRIx64 "-%" PRIx64, proc, m->start, m->end);
	out->fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (out->fd < 0)
		return proc_failed(path, errno, e);
	r = check_file(b, m, out, e);
	if (r)
		close(out->fd);
	return r;
}

static int find_one(const struct backend *b, const struct proc_maps *maps, const char *proc, bool write, struct vm *vm,
		    struct err *e)
{
	const struct proc_map *m;
	unsigned int n = vm->nblocks;
	int r = ram_find_mapping(b, maps, proc, &m, e);

	if (r)
		return r;
	for (unsigned int i = 0; i < n; i++)
		if (vm->blocks[i].dev == m->dev && vm->blocks[i].ino == m->ino)
			return ram_refuse(b->id, b->bytes, e, "has the same file as \"%.100s\", %.100s", vm->blocks[i].name, m->path);
	r = ram_open(b, m, proc, write, &vm->blocks[n], e);
	if (!r)
		vm->nblocks++;
	return r;
}

int ram_find(struct qmp *q, const char *proc, bool write, struct vm *vm, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	__attribute__((cleanup(backends_free))) struct backends all = { .n = 0 };
	int r = backends_query(q, &all, e);

	if (!r)
		r = proc_load_maps(proc, &maps, e);
	for (unsigned int i = 0; !r && i < all.n; i++)
		r = find_one(&all.b[i], &maps, proc, write, vm, e);
	return r;
}
