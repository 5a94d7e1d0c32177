// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "dirty/maps.h"
#include "dirty/rewritten.h"

int rewritten_init(struct rewritten *w, const struct vm *vm, struct err *e)
{
	int r = dirty_maps_new(w->held, vm, e);

	w->vm = vm;
	return r ? r : dirty_maps_new(w->ahead, vm, e);
}

void rewritten_free(struct rewritten *w)
{
	dirty_maps_free(w->held);
	dirty_maps_free(w->ahead);
}

int rewritten_find(struct rewritten *w, struct dirty_source *s, struct err *e)
{
	int r;

	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < (w->cleared[b] + 63) / 64; n++) {
			w->ahead[b][n] = s->map[b][n];
			s->map[b][n] = 0;
		}
	r = s->ops->harvest(s, e);
	/* Also of one that has failed: what it has found so far may be found by no other. */
	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < (w->cleared[b] + 63) / 64; n++) {
			const uint64_t out = w->ahead[b][n] & s->map[b][n];

			w->left_out += (uint64_t)__builtin_popcountll(out);
			w->held[b][n] |= s->map[b][n];
			s->map[b][n] = w->ahead[b][n] & ~w->held[b][n];
		}
	return r;
}

void rewritten_release(struct rewritten *w, struct dirty_source *s)
{
	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < (w->vm->blocks[b].pages + 63) / 64; n++) {
			if (!w->held[b][n])
				continue;
			s->map[b][n] |= w->held[b][n];
			w->held[b][n] = 0;
		}
	memset(w->cleared, 0, sizeof(w->cleared));
	w->left_out = 0;
}
