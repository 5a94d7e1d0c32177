// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "page/page.h"
#include "postcopy/guest_maps.h"
#include "proc/proc_io.h"

/* The block whose file this mapping shows; NULL: none. */
static const struct ram_block *guest_maps_block(const struct vm *vm, const struct proc_map *m)
{
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];

		/* SysV shared memory has numbers of its own, on the device that memfds are on. */
		if (!b->hva && b->ino && b->dev == m->dev && b->ino == m->ino &&
		    strncmp(m->path, "/SYSV", strlen("/SYSV")))
			return b;
	}
	return NULL;
}

/* The file may be longer than the block: what a mapping shows behind that is not guest RAM. */
static bool guest_maps_clip(const struct proc_map *m, const struct ram_block *b,
			    unsigned int block, struct guest_map *out)
{
	uint64_t bytes = b->pages * PAGE_BYTES, len = m->end - m->start;

	if (m->offset >= bytes)
		return false;
	if (len > bytes - m->offset)
		len = bytes - m->offset;
	*out = (struct guest_map) {
		.start = m->start, .end = m->start + len, .block = block,
		.first = m->offset / PAGE_BYTES,
	};
	return true;
}

static int guest_maps_add(struct guest_maps *out, const struct guest_map *m)
{
	struct guest_map *last = out->n ? &out->map[out->n - 1] : NULL, *map;

	if (last && last->end == m->start && last->block == m->block &&
	    last->first + (last->end - last->start) / PAGE_BYTES == m->first) {
		last->end = m->end;
		return 0;
	}
	map = realloc(out->map, (out->n + 1) * sizeof(*map));
	if (!map)
		return -ENOMEM;
	out->map = map;
	map[out->n++] = *m;
	return 0;
}

/* So far from page from on without a gap, in any mapping? */
static uint64_t guest_maps_reach(const struct guest_maps *m, unsigned int block, uint64_t from)
{
	for (bool on = true; on;) {
		on = false;
		for (size_t i = 0; i < m->n; i++) {
			const struct guest_map *map = &m->map[i];
			uint64_t end = map->first + (map->end - map->start) / PAGE_BYTES;

			if (map->block != block || map->first > from || end <= from)
				continue;
			from = end;
			on = true;
		}
	}
	return from;
}

static int guest_maps_check_whole(const struct guest_maps *m, const struct vm *vm, struct err *e)
{
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];
		uint64_t to = b->hva ? b->pages : guest_maps_reach(m, i, 0);

		if (to < b->pages)
			return err_set(e, GW_RAM_PRIVATE, EINVAL,
				       "the destination QEMU maps RAM \"%s\" only in part (not page %llu): migrate without post-copy",
				       b->name, (unsigned long long)to);
	}
	return 0;
}

int guest_maps_of(const struct proc_maps *all, const struct vm *vm, bool whole,
		  struct guest_maps *out, struct err *e)
{
	*out = (struct guest_maps) { 0 };
	for (size_t i = 0; i < all->n; i++) {
		const struct proc_map *m = &all->map[i];
		const struct ram_block *b = guest_maps_block(vm, m);
		struct guest_map map;

		if (!b)
			continue;
		if (!m->shared)
			return err_set(e, GW_RAM_PRIVATE, EINVAL,
				       "a process maps the file of the destination's RAM \"%s\" privately, too: migrate without post-copy",
				       b->name);
		if (guest_maps_clip(m, b, (unsigned int)(b - vm->blocks), &map) &&
		    guest_maps_add(out, &map))
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return whole ? guest_maps_check_whole(out, vm, e) : 0;
}

int guest_maps_find(const char *proc, const struct vm *vm, bool whole, struct guest_maps *out,
		    struct err *e)
{
	struct proc_maps all;
	int r = proc_load_range(proc, 0, UINT64_MAX, &all, e);

	*out = (struct guest_maps) { 0 };
	if (!r)
		r = guest_maps_of(&all, vm, whole, out, e);
	proc_free_maps(&all);
	return r;
}

void guest_maps_free(struct guest_maps *m)
{
	free(m->map);
	*m = (struct guest_maps) { 0 };
}

bool guest_maps_same(const struct guest_maps *a, const struct guest_maps *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++) {
		const struct guest_map *x = &a->map[i], *y = &b->map[i];

		if (x->start != y->start || x->end != y->end || x->block != y->block ||
		    x->first != y->first)
			return false;
	}
	return true;
}

const struct guest_map *guest_maps_at(const struct guest_maps *m, uint64_t address, uint64_t *page)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct guest_map *map = &m->map[i];

		if (address < map->start || address >= map->end)
			continue;
		*page = map->first + (address - map->start) / PAGE_BYTES;
		return map;
	}
	return NULL;
}
