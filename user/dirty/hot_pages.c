// SPDX-License-Identifier: GPL-2.0-only
#include "dirty/hot_pages.h"
#include "dirty/maps.h"

static uint64_t hot_pages_words(const struct vm *vm, unsigned int block)
{
	return (vm->blocks[block].pages + 63) / 64;
}

int hot_pages_init(struct hot_pages *h, const struct vm *vm, struct err *e)
{
	int r = dirty_maps_new(h->before, vm, e);

	h->vm = vm;
	return r ? r : dirty_maps_new(h->held, vm, e);
}

void hot_pages_free(struct hot_pages *h)
{
	dirty_maps_free(h->before);
	dirty_maps_free(h->held);
}

void hot_pages_hold(struct hot_pages *h, struct dirty_source *s)
{
	for (unsigned int b = 0; b < h->vm->nblocks; b++) {
		uint64_t *map = s->map[b];

		for (uint64_t w = 0; w < hot_pages_words(h->vm, b); w++) {
			uint64_t written = map[w];

			h->held[b][w] = written & h->before[b][w];
			h->before[b][w] = written;
			if (h->held[b][w])
				map[w] = written & ~h->held[b][w];
		}
	}
}

bool hot_pages_release(struct hot_pages *h, struct dirty_source *s)
{
	return dirty_maps_move(h->vm, h->held, s->map);
}
