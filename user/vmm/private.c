// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "vmm/private.h"
#include "vmm/proc_io.h"
#include "vmm/ramblocks.h"

static int refuse(const char *name, const char *why, struct err *e)
{
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "QEMU's own RAM \"%s\" %s: unplug that device, or use memory-backend-file and --device-state migrate", name, why);
}

/* Shared with another process it is not ours to overwrite at the destination. */
static bool is_shared(const struct ramblock *b, const struct proc_maps *maps)
{
	for (size_t i = 0; i < maps->n; i++)
		if (maps->map[i].shared && maps->map[i].start < b->hva + b->bytes && maps->map[i].end > b->hva)
			return true;
	return false;
}

static bool is_guest_ram(const struct vm *vm, const char *name)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (ramblocks_is(name, vm->blocks[i].name))
			return true;
	return false;
}

static int take(const struct ramblock *b, const struct proc_maps *maps, struct private_ram *out, uint64_t *sum, struct err *e)
{
	struct private_block *p = &out->b[out->n];

	if (is_shared(b, maps))
		return refuse(b->name, "is shared with others", e);
	if (b->bytes % WIRE_PAGE)
		return refuse(b->name, "does not consist of whole pages of 4 KiB", e);
	*sum += b->bytes;
	if (out->n == WIRE_BLOCKS_MAX || b->bytes > PRIVATE_MAX || *sum > PRIVATE_MAX)
		return refuse(b->name, "is one too many, or too large", e);
	strcpy(p->name, b->name);
	p->pages = b->bytes / WIRE_PAGE;
	p->hva = b->hva;
	out->n++;
	return 0;
}

int private_find(struct qmp *q, const struct vm *vm, struct private_ram *out, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	struct ramblocks *all = malloc(sizeof(*all));
	uint64_t sum = 0;
	char proc[32];
	int r;

	*out = (struct private_ram) { .pid = vm->pid };
	snprintf(proc, sizeof(proc), "/proc/%d", (int)vm->pid);
	r = all ? ramblocks_text(q, &out->list, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (!r)
		r = ramblocks_read(out->list, all, &out->told, e);
	if (!r && out->told)
		r = proc_load_maps(proc, &maps, e);
	for (unsigned int i = 0; !r && out->told && i < all->n; i++)
		if (!is_guest_ram(vm, all->b[i].name))
			r = take(&all->b[i], &maps, out, &sum, e);
	free(all);
	if (!r && out->told && !out->n)
		r = err_set(e, GW_NOT_QEMU, EPROTO, "QEMU names no RAM of its own, not even a ROM: is this QEMU's own QMP socket?");
	return r;
}

int private_same(struct qmp *q, const struct private_ram *ram, struct err *e)
{
	char *now;
	int r = ramblocks_text(q, &now, e);

	if (!r && strcmp(now, ram->list))
		r = err_set(e, GW_VM_STATE, EAGAIN, "RAM of the source VM was plugged, unplugged or resized meanwhile: try again");
	free(now);
	return r;
}

void private_free(struct private_ram *ram)
{
	free(ram->list);
	ram->list = NULL;
	ram->n = 0;
}

typedef ssize_t move_fn(pid_t pid, const struct iovec *ours, unsigned long n_ours, const struct iovec *theirs,
			unsigned long n_theirs, unsigned long flags);

static int move(const struct private_ram *ram, unsigned int block, uint64_t first, uint64_t pages, void *buf, move_fn *fn,
		struct err *e)
{
	const struct private_block *b = &ram->b[block];
	struct iovec ours = { buf, pages * WIRE_PAGE };
	struct iovec theirs = { (void *)(uintptr_t)(b->hva + first * WIRE_PAGE), pages * WIRE_PAGE };
	ssize_t n = fn(ram->pid, &ours, 1, &theirs, 1, 0);

	if (n == (ssize_t)ours.iov_len)
		return 0;
	if (n < 0 && errno == ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH, "process %d, the VMM, has exited", (int)ram->pid);
	return err_set(e, GW_INTERNAL, n < 0 ? errno : EFAULT,
		       "QEMU's own RAM \"%s\" cannot be reached in process %d: %s", b->name, (int)ram->pid,
		       n < 0 ? strerror(errno) : "some of it is not there (any more)");
}

int private_read(const struct private_ram *ram, unsigned int block, uint64_t first, uint64_t pages, void *buf, struct err *e)
{
	return move(ram, block, first, pages, buf, process_vm_readv, e);
}

int private_write(const struct private_ram *ram, unsigned int block, uint64_t first, uint64_t pages, const void *buf,
		  struct err *e)
{
	return move(ram, block, first, pages, (void *)buf, process_vm_writev, e);
}
