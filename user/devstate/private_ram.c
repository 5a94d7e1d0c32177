// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "devstate/private_ram.h"
#include "page/page.h"
#include "proc/memory.h"
#include "proc/proc_io.h"

static int private_ram_refuse(const char *name, const char *why, struct err *e)
{
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "QEMU's private RAM \"%s\" %s: unplug that device, or use memory-backend-file and --device-state migrate",
		       name, why);
}

/* The receiver may not overwrite RAM that another process shares. */
static bool private_ram_is_shared(const struct ramblock *b, const struct proc_maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		if (maps->map[i].shared && maps->map[i].start < b->hva + b->bytes &&
		    maps->map[i].end > b->hva)
			return true;
	return false;
}

static bool private_ram_in_blocks(const struct vm *vm, const struct ramblocks *all,
				  const struct ramblock *b)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (ramblocks_find_backend(all, vm->blocks[i].name,
					   vm->blocks[i].pages * PAGE_BYTES) == b)
			return true;
	return false;
}

static int private_ram_take(const struct ramblock *b, const struct proc_maps *maps,
			    struct private_ram *out, uint64_t *sum, struct err *e)
{
	struct private_block *p = &out->b[out->n];

	if (private_ram_is_shared(b, maps))
		return private_ram_refuse(b->name, "is shared with other processes", e);
	if (b->bytes % PAGE_BYTES)
		return private_ram_refuse(b->name, "does not consist of whole pages of 4 KiB", e);
	*sum += b->bytes;
	if (out->n == WIRE_BLOCKS_MAX || b->bytes > PRIVATE_RAM_MAX || *sum > PRIVATE_RAM_MAX)
		return private_ram_refuse(b->name, "is one too many, or too large", e);
	strcpy(p->name, b->name);
	p->pages = b->bytes / PAGE_BYTES;
	p->hva = b->hva;
	out->n++;
	return 0;
}

int private_ram_find(struct qmp *q, const struct vm *vm, struct private_ram *out, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	CLEANUP_FREE struct ramblocks *all = calloc(1, sizeof(*all));
	uint64_t sum = 0;
	char proc[32];
	int r;

	*out = (struct private_ram) { .pid = vm->pid, .pidfd = vm->pidfd };
	snprintf(proc, sizeof(proc), "/proc/%d", (int)vm->pid);
	if (!all)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = ramblocks_text(q, &out->list, e);
	if (!r)
		r = ramblocks_read(q, vm->pid, out->list, all, e);
	if (r)
		return r;
	strcpy(out->why, all->why);
	out->has_addresses = !*all->why;
	if (!out->has_addresses)
		return 0;
	r = proc_load_maps(proc, &maps, e);
	for (unsigned int i = 0; !r && i < all->n; i++)
		if (!private_ram_in_blocks(vm, all, &all->b[i]))
			r = private_ram_take(&all->b[i], &maps, out, &sum, e);
	if (!r && !out->n)
		r = err_set(e, GW_NOT_QEMU, EPROTO,
			    "QEMU names no private RAM, not even a ROM: is this QEMU's own QMP socket?");
	if (!r && all->located) {
		out->located = all;
		all = NULL;
	}
	return r;
}

int private_ram_same(struct qmp *q, const struct private_ram *ram, struct err *e)
{
	CLEANUP_FREE char *now = NULL;
	int r = ramblocks_text(q, &now, e);

	if (r)
		return r;
	if (!strcmp(now, ram->list))
		return ram->located ? ramblocks_check_located(ram->pid, ram->located, e) : 0;
	return err_set(e, GW_VM_STATE, EAGAIN,
		       "RAM of the source VM was plugged, unplugged or resized meanwhile: try again");
}

void private_ram_free(struct private_ram *ram)
{
	free(ram->list);
	free(ram->located);
	ram->list = NULL;
	ram->located = NULL;
	ram->n = 0;
}

/* n: what proc_memory_read() or proc_memory_write() has returned for so many pages. */
static int private_ram_moved(const struct private_ram *ram, const struct private_block *b,
			     ssize_t n, uint64_t pages, struct err *e)
{
	if (n == (ssize_t)(pages * PAGE_BYTES))
		return 0;
	if (n == -ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH, "process %d, the VMM, has exited", (int)ram->pid);
	return err_set(e, GW_INTERNAL, n < 0 ? (int)-n : EFAULT,
		       "cannot access QEMU's private RAM \"%s\" in process %d: %s", b->name,
		       (int)ram->pid, n < 0 ? strerror((int)-n) : "QEMU does not map all of it");
}

int private_ram_read(const struct private_ram *ram, unsigned int block, uint64_t first,
		     uint64_t pages, void *buf, struct err *e)
{
	const struct private_block *b = &ram->b[block];
	ssize_t n = proc_memory_read(ram->pid, b->hva + first * PAGE_BYTES, buf,
				     pages * PAGE_BYTES);

	/* As long as it has not ended the number is its own. */
	if (proc_ended(ram->pidfd))
		n = -ESRCH;
	return private_ram_moved(ram, b, n, pages, e);
}

int private_ram_write(const struct private_ram *ram, unsigned int block, uint64_t first,
		      uint64_t pages, const void *buf, struct err *e)
{
	const struct private_block *b = &ram->b[block];
	ssize_t n = proc_ended(ram->pidfd) ? -ESRCH :
		    proc_memory_write(ram->pid, b->hva + first * PAGE_BYTES, buf,
				      pages * PAGE_BYTES);

	return private_ram_moved(ram, b, n, pages, e);
}
