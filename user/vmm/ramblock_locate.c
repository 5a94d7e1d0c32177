// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where the RAM blocks are of a QEMU that lists them without addresses (before 8.0). Two ways, each
 * a check of the other:
 *
 * "info mtree -f" tells what the guest sees at which address, and "gpa2hva" where that is in QEMU.
 * The guest may move a device's memory between the commands. So a block counts as told only if its
 * first and its last byte are as far apart in QEMU as the block is long: only both of its ends are.
 *
 * The other way also finds what the guest does not see (ROM files, the memory of a display before
 * the guest has a driver): ramblock_scan.h. QEMU makes its RAM blocks in its main thread, so they
 * are in the heap proper, "[heap]". Other memory is not searched, as it may be the guest's own RAM,
 * which holds what the guest wants.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proc/memory.h"
#include "proc/proc_io.h"
#include "vmm/mtree.h"
#include "vmm/ramblock_scan.h"

#define HEAP_MAX	(256u << 20)	/* bytes; searched in the blackout, too: .2 ms/MiB */
#define PART		(256u << 10)

/* Where the guest sees the ends of a block. */
struct seen {
	uint64_t first;
	uint64_t last;
	bool has_first;
	bool has_last;
};

/* The only block whose region may have that name; NULL: none, or several. */
static const struct ramblock *locate_region(const struct ramblocks *all, const char *name)
{
	const struct ramblock *found = NULL;
	size_t len = strlen(name);

	for (unsigned int i = 0; i < all->n; i++) {
		const char *block = all->b[i].name;
		size_t n = strlen(block);
		/* A block's name may begin with its device: 0000:00:01.0/vga.vram */
		bool fits = n > len && block[n - len - 1] == '/' && !strcmp(block + n - len, name);

		if (!fits && strcmp(block, name))
			continue;
		if (found)
			return NULL;
		found = &all->b[i];
	}
	return found;
}

static void locate_in_guest(const struct ramblocks *all, const char *mtree, struct seen *seen)
{
	const char *at = mtree_memory(mtree);
	struct mtree_range range;

	while (at && mtree_next(&at, &range)) {
		const struct ramblock *b = locate_region(all, range.name);
		struct seen *s = b ? &seen[b - all->b] : NULL;

		if (s && !range.offset) {
			s->first = range.first;
			s->has_first = true;
		}
		if (s && range.offset + (range.last - range.first) == b->bytes - 1) {
			s->last = range.last;
			s->has_last = true;
		}
	}
}

/* *hva: 0: the guest does not see that block at this address, or no longer. */
static int locate_ask(struct qmp *q, const struct ramblocks *all, const struct ramblock *b,
		      uint64_t address, uint64_t *hva, struct err *e)
{
	char line[MTREE_LINE], name[WIRE_NAME_MAX + 1];
	CLEANUP_FREE char *text = NULL;
	int r;

	mtree_ask_hva(line, address);
	r = qmp_monitor(q, line, &text, e);
	if (r || !mtree_told_hva(text, address, name, hva) || locate_region(all, name) != b)
		*hva = 0;
	return r;
}

static int locate_ask_block(struct qmp *q, const struct ramblocks *all, struct ramblock *b,
			    const struct seen *seen, struct err *e)
{
	uint64_t first, last;
	int r;

	if (!seen->has_first || !seen->has_last)
		return 0;
	r = locate_ask(q, all, b, seen->first, &first, e);
	if (!r)
		r = locate_ask(q, all, b, seen->last, &last, e);
	if (!r && first && last > first && last - first == b->bytes - 1)
		b->hva = first;
	return r;
}

static int locate_by_monitor(struct qmp *q, struct ramblocks *all, struct err *e)
{
	CLEANUP_FREE struct seen *seen = calloc(RAMBLOCKS_MAX, sizeof(*seen));
	CLEANUP_FREE char *mtree = NULL;
	int r;

	if (!seen)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = qmp_monitor(q, "info mtree -f", &mtree, e);
	if (!r && mtree)
		locate_in_guest(all, mtree, seen);
	for (unsigned int i = 0; !r && i < all->n; i++)
		r = locate_ask_block(q, all, &all->b[i], &seen[i], e);
	return r;
}

static bool locate_is_heap(const struct proc_map *m)
{
	return m->writable && !m->shared && !strcmp(m->path, "[heap]");
}

/* Searches one mapping of the heap. Return: 0, or the error of a read. */
static int locate_search(pid_t pid, const struct proc_map *heap, const struct proc_maps *maps,
			 uint8_t *part, const struct ramblocks *all, struct scan_found *found)
{
	for (uint64_t at = heap->start; at < heap->end; at += PART - SCAN_OVERLAP) {
		size_t len = heap->end - at < PART ? (size_t)(heap->end - at) : PART;
		ssize_t n = proc_memory_read(pid, at, part, len);

		/* QEMU has given back the end of the heap meanwhile: no block is there. */
		if (n == -EFAULT)
			return 0;
		if (n < 0)
			return (int)-n;
		ramblock_scan(part, (size_t)n, maps, all, found);
	}
	return 0;
}

/* all->why: why nothing can be found. */
static int locate_in_heap(pid_t pid, struct ramblocks *all, struct scan_found *found,
			  struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	CLEANUP_FREE uint8_t *part = malloc(PART);
	uint64_t bytes = 0;
	char proc[32];
	int r;

	if (!part)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	r = proc_load_range(proc, 0, UINT64_MAX, &maps, e);
	if (r)
		return r;
	for (size_t i = 0; i < maps.n; i++)
		bytes += locate_is_heap(&maps.map[i]) ? maps.map[i].end - maps.map[i].start : 0;
	if (!bytes || bytes > HEAP_MAX)
		snprintf(all->why, sizeof(all->why),
			 "QEMU's process has a heap of %llu MiB, godwit searches one of up to %u MiB",
			 (unsigned long long)bytes >> 20, HEAP_MAX >> 20);
	for (size_t i = 0; !r && !*all->why && i < maps.n; i++)
		if (locate_is_heap(&maps.map[i]))
			r = locate_search(pid, &maps.map[i], &maps, part, all, found);
	if (r)
		snprintf(all->why, sizeof(all->why), "QEMU's heap cannot be read: %s", strerror(r));
	return 0;
}

int ramblocks_locate(struct qmp *q, pid_t pid, struct ramblocks *all, struct err *e)
{
	CLEANUP_FREE struct scan_found *found = calloc(RAMBLOCKS_MAX, sizeof(*found));
	int r;

	*all->why = '\0';
	if (!found)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = locate_by_monitor(q, all, e);
	if (!r)
		r = locate_in_heap(pid, all, found, e);
	if (!r && !*all->why && ramblock_scan_judge(all, found))
		return 0;
	for (unsigned int i = 0; i < all->n; i++)
		all->b[i].hva = 0;
	return r;
}

int ramblocks_check_located(pid_t pid, const struct ramblocks *was, struct err *e)
{
	CLEANUP_FREE struct scan_found *found = calloc(RAMBLOCKS_MAX, sizeof(*found));
	CLEANUP_FREE struct ramblocks *now = malloc(sizeof(*now));
	int r;

	if (!found || !now)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	*now = *was;
	r = locate_in_heap(pid, now, found, e);
	if (r || (!*now->why && ramblock_scan_judge(now, found)))
		return r;
	return err_set(e, GW_VM_STATE, EAGAIN,
		       "RAM of the source VM was plugged, unplugged or resized meanwhile (%s): try again",
		       now->why);
}
