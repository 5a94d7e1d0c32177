// SPDX-License-Identifier: GPL-2.0-only
/*
 * Guesses the RAM of a VMM without asking it: the files of tmpfs and hugetlbfs that it maps shared,
 * if they are not small, and private memory that is not small beside the largest block. Good enough
 * to measure with, since what no memslot shows costs little; not to migrate with.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "page/page.h"
#include "proc/proc_io.h"
#include "vmm/ram.h"

#define SMALL_BYTES	(1u << 20)
#define SMALL_PART	4

/* 1: *b is filled in; 0: the mapping is of no RAM file; or -errno. */
static int ram_files_take(const struct proc_map *m, const char *proc, struct ram_block *b,
			  struct err *e)
{
	const char *slash = strrchr(m->path, '/');
	struct err own = { 0 };
	struct stat st;
	int r;

	snprintf(b->name, sizeof(b->name), "%.*s", WIRE_NAME_MAX, slash ? slash + 1 : m->path);
	r = ram_open_mapped(m, proc, false, b, &st, &own);
	/* The VMM has unmapped it meanwhile, or it is of a device. */
	if (r == -ESRCH || r == -EAGAIN || r == -ENXIO)
		return 0;
	if (r < 0)
		return err_set(e, own.exit, -r, "%s", own.text);
	if (!r || st.st_size < SMALL_BYTES) {
		ram_block_close(b);
		return 0;
	}
	b->pages = (uint64_t)st.st_size / PAGE_BYTES;
	b->address = WIRE_NO_ADDRESS;
	return 1;
}

static int ram_files_find(const struct proc_maps *maps, const char *proc, struct vm *vm,
			  struct err *e)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < maps->n && vm->nblocks < WIRE_BLOCKS_MAX; i++) {
		const struct proc_map *m = &maps->map[i];
		unsigned int n = vm->nblocks, j = 0;

		while (j < n && (vm->blocks[j].dev != m->dev || vm->blocks[j].ino != m->ino))
			j++;
		if (j < n || !m->shared || *m->path != '/')
			continue;
		r = ram_files_take(m, proc, &vm->blocks[n], e);
		vm->nblocks += r == 1;
	}
	return r < 0 ? r : 0;
}

/* Private memory that the VMM can write: of no file, or of one. Not its heap, and not a stack. */
static bool ram_files_is_private(const struct proc_map *m)
{
	return m->writable && !m->shared &&
	       (strchr("/", *m->path) || !strncmp(m->path, "[anon:", strlen("[anon:")));
}

/*
 * How large it is, if it is private; else 0. Mappings that lie side by side are not taken together:
 * a thread's stack may end where RAM begins.
 */
static uint64_t ram_files_private_bytes(const struct proc_map *m)
{
	return ram_files_is_private(m) ? m->end - m->start : 0;
}

/* Of the largest block, in a file or not. */
static uint64_t ram_files_largest(const struct proc_maps *maps, const struct vm *vm)
{
	uint64_t largest = 0, bytes;

	for (unsigned int n = 0; n < vm->nblocks; n++)
		if (vm->blocks[n].pages * PAGE_BYTES > largest)
			largest = vm->blocks[n].pages * PAGE_BYTES;
	for (size_t i = 0; i < maps->n; i++) {
		bytes = ram_files_private_bytes(&maps->map[i]);
		largest = bytes > largest ? bytes : largest;
	}
	return largest;
}

static int ram_files_find_private(const struct proc_maps *maps, const char *proc,
				  uint64_t at_least, struct vm *vm, struct err *e)
{
	for (size_t i = 0; i < maps->n && vm->nblocks < WIRE_BLOCKS_MAX; i++) {
		const struct proc_map *m = &maps->map[i];
		struct backend b = {
			.kind = BACKEND_PRIVATE, .hva = m->start,
			.bytes = ram_files_private_bytes(m),
		};
		struct err why = { 0 };
		int r;

		if (b.bytes < at_least)
			continue;
		snprintf(b.id, sizeof(b.id), "0x%" PRIx64, b.hva);
		r = ram_open_private(&b, proc, vm, &vm->blocks[vm->nblocks], &why);
		if (!r) {
			vm->nblocks++;
		} else if (why.exit != GW_RAM_PRIVATE) { /* that kind of memory is no guest's */
			*e = why;
			return r;
		}
	}
	return 0;
}

int ram_find_mapped(const char *proc, struct vm *vm, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	int r = proc_load_range(proc, 0, UINT64_MAX, &maps, e);
	uint64_t at_least;

	if (!r)
		r = ram_files_find(&maps, proc, vm, e);
	if (r)
		return r;
	at_least = ram_files_largest(&maps, vm) / SMALL_PART;
	r = ram_files_find_private(&maps, proc,
				   at_least > SMALL_BYTES ? at_least : SMALL_BYTES, vm, e);
	if (!r && !vm->nblocks)
		return err_set(e, GW_RAM_PRIVATE, ENOENT,
			       "%s maps no memory that could be a guest's: is it a VMM?", proc);
	return r;
}
