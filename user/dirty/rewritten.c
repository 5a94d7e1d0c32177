// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "dirty/maps.h"
#include "dirty/rewritten.h"

/* So many pages of a piece of 2 MiB have to be written: a few are written anywhere. */
#define PIECE_WORDS	8u
#define PIECE_WRITTEN	8u

int rewritten_init(struct rewritten *w, const struct vm *vm, struct err *e)
{
	int r = dirty_maps_new(w->held, vm, e);

	w->vm = vm;
	if (!r)
		r = dirty_maps_new(w->postponed, vm, e);
	return r ? r : dirty_maps_new(w->ahead, vm, e);
}

void rewritten_free(struct rewritten *w)
{
	dirty_maps_free(w->held);
	dirty_maps_free(w->postponed);
	dirty_maps_free(w->ahead);
}

/* Up to the last page that was cleared. */
static uint64_t rewritten_words(const struct rewritten *w, unsigned int block)
{
	return (w->cleared[block] + 63) / 64;
}

/* What a harvest has found, of one word: held, whether it was postponed or still in the map. */
static void rewritten_hold(struct rewritten *w, unsigned int b, uint64_t n, uint64_t *map)
{
	const uint64_t unsent = w->ahead[b][n] | w->postponed[b][n];

	w->left_out += (uint64_t)__builtin_popcountll(unsent & map[n]);
	w->held[b][n] |= map[n];
	w->postponed[b][n] &= ~w->held[b][n];
	map[n] = w->ahead[b][n] & ~w->held[b][n];
}

/* What is left of the piece that begins at word @n. The first @words were cleared. */
static void rewritten_postpone(struct rewritten *w, unsigned int b, uint64_t n, uint64_t words,
			       uint64_t *map)
{
	const uint64_t end = n + PIECE_WORDS < words ? n + PIECE_WORDS : words;
	unsigned int written = 0;

	for (uint64_t i = n; i < end; i++)
		written += (unsigned int)__builtin_popcountll(w->held[b][i]);
	for (; written >= PIECE_WRITTEN && n < end; n++) {
		w->postpones |= map[n] != 0;
		w->postponed[b][n] |= map[n];
		map[n] = 0;
	}
}

int rewritten_find(struct rewritten *w, struct dirty_source *s, struct err *e)
{
	int r;

	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < rewritten_words(w, b); n++) {
			w->ahead[b][n] = s->map[b][n];
			s->map[b][n] = 0;
		}
	r = s->ops->harvest(s, e);
	/* Also of one that has failed: what it has found so far may be found by no other. */
	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < rewritten_words(w, b); n++)
			rewritten_hold(w, b, n, s->map[b]);
	for (unsigned int b = 0; b < w->vm->nblocks; b++) {
		const uint64_t words = rewritten_words(w, b);

		for (uint64_t n = 0; n < words; n += PIECE_WORDS)
			rewritten_postpone(w, b, n, words, s->map[b]);
	}
	return r;
}

bool rewritten_resume(struct rewritten *w, struct dirty_source *s)
{
	if (!w->postpones)
		return false;
	w->postpones = false;
	for (unsigned int b = 0; b < w->vm->nblocks; b++)
		for (uint64_t n = 0; n < rewritten_words(w, b); n++) {
			w->held[b][n] |= s->map[b][n];
			s->map[b][n] = 0;
		}
	return dirty_maps_move(w->vm, w->postponed, s->map);
}

void rewritten_release(struct rewritten *w, struct dirty_source *s)
{
	dirty_maps_move(w->vm, w->held, s->map);
	dirty_maps_move(w->vm, w->postponed, s->map);
	memset(w->cleared, 0, sizeof(w->cleared));
	w->postpones = false;
	w->left_out = 0;
}
