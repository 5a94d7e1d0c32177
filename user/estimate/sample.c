// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/stop.h"
#include "dirty/lease.h"
#include "estimate/sample.h"
#include "page/page.h"

/* splitmix64: small, and good enough to choose pages. */
static uint64_t sample_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Counts whole words only: a block's last pages may be no full chunk. */
static uint64_t sample_words(const struct vm *vm)
{
	uint64_t words = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		words += vm->blocks[i].pages / SAMPLE_CHUNK;
	return words;
}

static void sample_place_chunk(const struct vm *vm, uint64_t word, struct chunk *c)
{
	while (word >= vm->blocks[c->block].pages / SAMPLE_CHUNK)
		word -= vm->blocks[c->block++].pages / SAMPLE_CHUNK;
	c->word = word;
}

int sample_choose(const struct vm *vm, uint64_t pages, uint64_t seed, struct sample *s,
		  struct err *e)
{
	uint64_t words = sample_words(vm), state = seed;

	*s = (struct sample) { .n = pages / SAMPLE_CHUNK < words ? pages / SAMPLE_CHUNK : words };
	for (unsigned int i = 0; i < vm->nblocks; i++)
		s->total_pages += vm->blocks[i].pages;
	if (!s->n)
		return err_set(e, GW_USAGE, EINVAL, "a sample has at least %u pages", SAMPLE_CHUNK);
	s->chunks = calloc(s->n, sizeof(*s->chunks));
	if (!s->chunks)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < s->n; i++) {
		/* In 128 bits: the words of a large guest times the chunks may exceed 64. */
		uint64_t lo = (uint64_t)((unsigned __int128)words * i / s->n);
		uint64_t hi = (uint64_t)((unsigned __int128)words * (i + 1) / s->n);

		sample_place_chunk(vm, lo + sample_random(&state) % (hi - lo), &s->chunks[i]);
	}
	return 0;
}

void sample_free(struct sample *s)
{
	free(s->chunks);
}

double sample_scale(const struct sample *s)
{
	return (double)s->total_pages / (double)(s->n * SAMPLE_CHUNK);
}

/* QEMU is asked just before: what it migrates itself is not to lose a write (dirty/lease.h). */
static int sample_clear(struct dirty_source *src, unsigned int block, struct err *e)
{
	int r = 0;

	if (!src->lease)
		return src->ops->clear(src, block, 0, src->vm->blocks[block].pages, e);
	do {
		r = stop_requested() ? stop_err(e) : src->renew(src->renew_arg, e);
		if (r)
			return r;
	} while (!lease_begin(src->lease));
	r = src->ops->clear(src, block, 0, src->vm->blocks[block].pages, e);
	lease_end(src->lease);
	return r;
}

/* Arms only pages that the last harvest has found: one call for each block that has any. */
int sample_arm(struct sample *s, struct dirty_source *src, uint64_t *since_ns, struct err *e)
{
	bool any[WIRE_BLOCKS_MAX] = { false };
	int r = 0;

	*since_ns = s->harvest_ns;
	for (unsigned int b = 0; b < src->vm->nblocks; b++)
		bitmap_clear(src->map[b], 0, src->vm->blocks[b].pages);
	for (uint64_t i = 0; i < s->n; i++) {
		src->map[s->chunks[i].block][s->chunks[i].word] = s->chunks[i].written;
		any[s->chunks[i].block] |= s->chunks[i].written;
	}
	for (unsigned int b = 0; b < src->vm->nblocks && !r; b++)
		if (any[b])
			r = sample_clear(src, b, e);
	for (uint64_t i = 0; i < s->n; i++)
		src->map[s->chunks[i].block][s->chunks[i].word] = 0;
	return r;
}

int sample_begin(struct sample *s, struct dirty_source *src, struct err *e)
{
	uint64_t ignored;
	int r = src->ops->start(src, e);

	for (uint64_t i = 0; i < s->n; i++)
		s->chunks[i].written = ~0ull;
	if (!r)
		r = sample_arm(s, src, &ignored, e);
	if (!r)
		r = sample_collect(s, src, &ignored, e);
	for (uint64_t i = 0; i < s->n; i++)
		s->chunks[i].ever = 0;
	return r;
}

int sample_collect(struct sample *s, struct dirty_source *src, uint64_t *pages, struct err *e)
{
	int r = src->ops->harvest(src, e);

	*pages = 0;
	s->harvest_ns = now_ns();
	for (uint64_t i = 0; i < s->n && !r; i++) {
		struct chunk *c = &s->chunks[i];

		c->written = src->map[c->block][c->word];
		c->ever |= c->written;
		*pages += (uint64_t)__builtin_popcountll(c->written);
	}
	return r;
}

int sample_rest(uint64_t until_ns, struct err *e)
{
	uint64_t now;

	while ((now = now_ns()) < until_ns) {
		uint64_t left = until_ns - now < STOP_SLICE_NS ? until_ns - now : STOP_SLICE_NS;
		struct timespec ts = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

		if (stop_requested())
			return stop_err(e);
		nanosleep(&ts, NULL);
	}
	return 0;
}
