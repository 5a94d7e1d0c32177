// SPDX-License-Identifier: GPL-2.0-only
/*
 * Opens the files behind the backends through /proc/PID/map_files, so mount namespaces and unlinked
 * files do not matter.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernel/release.h"
#include "page/page.h"
#include "proc/proc_io.h"
#include "vmm/ram.h"

/*
 * See file_wait_collapsed(). Any tmpfs or memfd: MADV_COLLAPSE needs no mount option.
 * (mm/khugepaged.c, collapse_file(), "maintain page cache uptodate flag".)
 */
static bool ram_holes_may_be_data(const struct statfs *fs)
{
	struct utsname kernel;

	uname(&kernel);
	return fs->f_type == TMPFS_MAGIC && release_before(kernel.release, 6, 4);
}

static int ram_identify(const struct proc_map *m, struct ram_block *b, struct stat *st,
			struct err *e)
{
	struct statfs fs;

	if (fstat(b->fd, st) < 0 || fstatfs(b->fd, &fs) < 0)
		return err_set(e, GW_INTERNAL, errno, "RAM \"%s\": fstat: %s", b->name, strerror(errno));
	if (st->st_dev != m->dev || st->st_ino != m->ino)
		return err_set(e, GW_INTERNAL, EAGAIN,
			       "RAM \"%s\": the VMM changed its mappings meanwhile: try again", b->name);
	b->dev = st->st_dev;
	b->ino = st->st_ino;
	b->hugetlb = fs.f_type == HUGETLBFS_MAGIC;
	b->page_size = b->hugetlb ? (uint32_t)fs.f_bsize : PAGE_BYTES;
	b->waits = ram_holes_may_be_data(&fs);
	return S_ISREG(st->st_mode) && (fs.f_type == TMPFS_MAGIC || b->hugetlb);
}

int ram_open_mapped(const struct proc_map *m, const char *proc, bool write, struct ram_block *b,
		    struct stat *st, struct err *e)
{
	char path[256];
	int r;

	snprintf(path, sizeof(path), "%s/map_files/%" PRIx64 "-%" PRIx64, proc, m->start, m->end);
	b->fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC);
	if (b->fd < 0)
		return proc_failed(path, errno, e);
	r = ram_identify(m, b, st, e);
	if (r < 0) {
		close(b->fd);
		b->fd = -1;
	}
	return r;
}

int ram_open(const struct backend *b, const struct proc_map *m, const char *proc, bool write,
	     struct ram_block *out, struct err *e)
{
	struct stat st;
	int r;

	*out = (struct ram_block) {
		.pages = b->bytes / PAGE_BYTES, .address = WIRE_NO_ADDRESS,
		.memfd = b->kind != BACKEND_FILE,
	};
	memcpy(out->name, b->id, sizeof(out->name));
	r = ram_open_mapped(m, proc, write, out, &st, e);
	if (!r)
		r = ram_refuse(b->id, b->bytes, e, "is %.128s, %s", m->path,
			       S_ISREG(st.st_mode) ? "which is not on tmpfs or hugetlbfs" :
						     "memory of a device");
	else if (r > 0 && (uint64_t)st.st_size < b->bytes)
		r = ram_refuse(b->id, b->bytes, e, "has a file that is too short, %lld bytes",
			       (long long)st.st_size);
	if (r > 0)
		return 0;
	ram_block_close(out);
	return r;
}

int ram_open_known(const struct proc_maps *maps, const char *proc, struct ram_block *b,
		   struct err *e)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->map[i];
		struct stat st;
		int r;

		/* As guest_maps.c does. */
		if (!m->shared || m->dev != b->dev || m->ino != b->ino ||
		    !strncmp(m->path, "/SYSV", strlen("/SYSV")))
			continue;
		r = ram_open_mapped(m, proc, true, b, &st, e);
		if (r < 0)
			return r;
		if (r && (uint64_t)st.st_size / PAGE_BYTES >= b->pages)
			return 0;
		ram_block_close(b);
		break;
	}
	return err_set(e, GW_RAM_DIFFERS, ENOENT,
		       "process %s does not map the file of RAM \"%s\" any more",
		       strrchr(proc, '/') + 1, b->name);
}

/*
 * Two blocks of one file: both would be written through one of them, or, where one is a private
 * mapping, the other's writes would show through its untouched pages, unseen. Two private ones are
 * fine.
 */
static int ram_check_alone(const struct vm *vm, const struct backend *b, const char *path,
			   const struct ram_block *new, struct err *e)
{
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *other = &vm->blocks[i];

		if (new->ino && other->dev == new->dev && other->ino == new->ino &&
		    !(other->hva && new->hva))
			return ram_refuse(b->id, b->bytes, e,
					  "has the same file as \"%.100s\", %.100s", other->name,
					  path);
	}
	return 0;
}

static int ram_find_one(const struct backend *b, const struct proc_maps *maps, const char *proc,
			bool write, struct vm *vm, struct err *e)
{
	struct ram_block *new = &vm->blocks[vm->nblocks];
	const struct proc_map *m;
	int r;

	if (b->kind == BACKEND_PRIVATE) {
		r = ram_open_private(b, proc, vm, new, e);
	} else {
		r = ram_find_mapping(b, maps, proc, &m, e);
		if (!r)
			r = ram_open(b, m, proc, write, new, e);
	}
	if (r)
		return r;
	r = ram_check_alone(vm, b, b->kind == BACKEND_PRIVATE ? "mapped privately" : m->path, new, e);
	if (r)
		ram_block_close(new);
	else
		vm->nblocks++;
	return r;
}

int ram_find(struct qmp *q, const char *proc, bool write, struct vm *vm, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	__attribute__((cleanup(backends_free))) struct backends all = { .n = 0 };
	int r = backends_query(q, vm->pid, &all, e);

	if (!r)
		r = proc_load_maps(proc, &maps, e);
	for (unsigned int i = 0; !r && i < all.n; i++)
		r = ram_find_one(&all.b[i], &maps, proc, write, vm, e);
	return r;
}

static bool ram_is_mapped(const struct ram_block *b, const struct proc_maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		if (maps->map[i].dev == b->dev && maps->map[i].ino == b->ino)
			return true;
	return false;
}

int ram_check_mapped(const struct vm *vm, const char *proc, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	int r = 0;

	for (unsigned int i = 0; !r && i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];

		/* Private RAM is read where it is. */
		if (b->hva)
			continue;
		if (!maps.n)
			r = proc_load_maps(proc, &maps, e);
		if (!r && !ram_is_mapped(b, &maps))
			r = err_set(e, GW_VM_STATE, EAGAIN,
				    "the source VM does not map the file of RAM \"%s\" any more: it was unplugged, and other RAM plugged under its name: try again",
				    b->name);
	}
	return r;
}
