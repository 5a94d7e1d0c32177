// SPDX-License-Identifier: GPL-2.0-only
/*
 * No dirty source: godwit stops the VM before it reads the first page, and sends every page once.
 */
#include <errno.h>
#include <stdlib.h>

#include "dirty/maps.h"
#include "dirty/source.h"
#include "page/page.h"

static int none_start(struct dirty_source *s, struct err *e)
{
	(void)e;
	for (unsigned int i = 0; i < s->vm->nblocks; i++)
		bitmap_set(s->map[i], 0, s->vm->blocks[i].pages);
	return 0;
}

static int none_harvest(struct dirty_source *s, struct err *e)
{
	(void)s, (void)e;
	return 0;
}

static int none_clear(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count,
		      struct err *e)
{
	(void)s, (void)block, (void)first, (void)count, (void)e;
	return 0;
}

/*
 * On hugetlbfs all pages count as data: only the kernel knows the holes. The sender must read these
 * pages by pread(), which allocates nothing in a hole, where a mapping would.
 */
static int none_next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end,
			  bool exact, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	const struct ram_block *b = &s->vm->blocks[block];

	return ram_ops(b)->next_data(b, first, end, exact, run_first, run_count, e);
}

static void none_close(struct dirty_source *s, bool hurry)
{
	(void)hurry;
	dirty_maps_free(s->map);
	free(s);
}

static const struct dirty_ops none_ops = {
	.name = "none",
	.start = none_start,
	.harvest = none_harvest,
	.clear = none_clear,
	.next_data = none_next_data,
	.close = none_close,
};

int source_none(const struct vm *vm, struct dirty_source **out, struct err *e)
{
	struct dirty_source *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	s->ops = &none_ops;
	s->vm = vm;
	r = dirty_maps_new(s->map, vm, e);
	if (r) {
		none_close(s, false);
		return r;
	}
	*out = s;
	return 0;
}
