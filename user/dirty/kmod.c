// SPDX-License-Identifier: GPL-2.0-only
/* Dirty pages from godwit.ko. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dirty/source.h"
#include "kernel/device.h"

struct kmod_source {
	struct dirty_source base;
	int dev;
	uint64_t map_bytes[WIRE_BLOCKS_MAX];
};

static struct kmod_source *kmod_of(struct dirty_source *s)
{
	return (struct kmod_source *)s;
}

static int kmod_start(struct dirty_source *s, struct err *e)
{
	return device_start(kmod_of(s)->dev, e);
}

static int kmod_harvest(struct dirty_source *s, struct err *e)
{
	struct godwit_harvest h;
	int r = device_harvest(kmod_of(s)->dev, &h, e);

	/*
	 * A harvest that failed does not report what it found. A mapping that changed may have been
	 * punched before the module watched it.
	 */
	s->changed |= r || h.pages[GODWIT_ROW_CHANGE];
	s->unmapped |= r || h.pages[GODWIT_ROW_UNMAP] || h.pages[GODWIT_ROW_CHANGE];
	return r;
}

static int kmod_clear(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count,
		      struct err *e)
{
	return device_clear(kmod_of(s)->dev, block, first, count, e);
}

static int kmod_next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end,
			  bool exact, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	const struct ram_block *b = &s->vm->blocks[block];

	if (b->hugetlb || b->hva)
		return device_next_data(kmod_of(s)->dev, block, first, end, run_first, run_count,
					e);
	return ram_ops(b)->next_data(b, first, end, exact, run_first, run_count, e);
}

static int kmod_mappers(struct dirty_source *s, uint32_t *pids, unsigned int room, struct err *e)
{
	return device_mappers(kmod_of(s)->dev, pids, room, e);
}

static int kmod_next_pinned(struct dirty_source *s, unsigned int block, uint64_t first,
			    uint64_t end, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	return device_next_pinned(kmod_of(s)->dev, block, first, end, run_first, run_count, e);
}

/*
 * GODWIT_ATTACH waits for a session of the VM that retires, and ends the pauses of that retirement.
 */
void source_kmod_hurry(int vm_fd)
{
	struct err ignored = { 0 };
	int dev = vm_fd < 0 ? -1 : device_open(&ignored);

	if (dev < 0)
		return;
	device_attach(dev, vm_fd, &ignored);
	close(dev);
}

static void kmod_close(struct dirty_source *s, bool hurry)
{
	struct kmod_source *k = kmod_of(s);
	int vm_fd = hurry ? s->vm->vm_fd : -1;

	/* The mappings keep the session's file open, so they go first. */
	for (unsigned int i = 0; i < s->vm->nblocks; i++)
		if (s->map[i])
			munmap(s->map[i], k->map_bytes[i]);
	close(k->dev);
	free(k);
	source_kmod_hurry(vm_fd);
}

static const struct dirty_ops kmod_ops = {
	.name = "godwit.ko",
	.start = kmod_start,
	.harvest = kmod_harvest,
	.clear = kmod_clear,
	.next_data = kmod_next_data,
	.mappers = kmod_mappers,
	.next_pinned = kmod_next_pinned,
	.close = kmod_close,
};

static int kmod_add_ram(struct kmod_source *k, unsigned int i, struct err *e)
{
	const struct ram_block *b = &k->base.vm->blocks[i];

	if (b->hva)
		return device_add_private(k->dev, b->hva, b->pages, &k->base.map[i],
					  &k->map_bytes[i], e);
	return device_add_ram(k->dev, b->fd, b->pages, &k->base.map[i], &k->map_bytes[i], e);
}

int source_kmod(const struct vm *vm, int dev, struct dirty_source **out, struct err *e)
{
	struct kmod_source *k = calloc(1, sizeof(*k));
	int r;

	if (!k) {
		if (dev >= 0)
			close(dev);
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	k->base.ops = &kmod_ops;
	k->base.vm = vm;
	k->dev = dev < 0 ? device_open(e) : dev;
	if (k->dev < 0) {
		r = k->dev;
		free(k);
		return r;
	}
	r = device_attach(k->dev, vm->vm_fd, e);
	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		r = kmod_add_ram(k, i, e);
	if (r) {
		kmod_close(&k->base, false);
		return r;
	}
	*out = &k->base;
	return 0;
}
