// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sample is made of chunks of 64 pages, a word of the bitmap each, since the module arms a chunk as fast as a page. The
 * address space is cut into as many strata as there are chunks, and each has one chunk, chosen at random: an even
 * spread, and no two alike.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/rate.h"
#include "page/page.h"

#define CHUNK	64u

/**
 * struct chunk - a word of the sample
 * @word: of the block's bitmap
 * @written: its pages that the last harvest found, and that have to be armed again; at first all
 * @ever: pages that were written at any time
 * @hits: written pages, summed over the intervals
 */
struct chunk {
	unsigned int block;
	uint64_t word;
	uint64_t written;
	uint64_t ever;
	uint64_t hits;
};

struct sample {
	struct chunk *chunks;
	uint64_t n;
};

/* splitmix64: small, and good enough to choose places with. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Only whole words: a block's last pages may be no full chunk. */
static uint64_t words_of(const struct vm *vm)
{
	uint64_t words = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		words += vm->blocks[i].pages / CHUNK;
	return words;
}

static void place_chunk(const struct vm *vm, uint64_t word, struct chunk *c)
{
	while (word >= vm->blocks[c->block].pages / CHUNK)
		word -= vm->blocks[c->block++].pages / CHUNK;
	c->word = word;
}

static int choose(const struct vm *vm, const struct rate_options *o, struct sample *s, struct err *e)
{
	uint64_t words = words_of(vm), state = o->seed;

	s->n = o->sample_pages / CHUNK < words ? o->sample_pages / CHUNK : words;
	if (!s->n)
		return err_set(e, GW_USAGE, EINVAL, "a sample has at least %u pages", CHUNK);
	s->chunks = calloc(s->n, sizeof(*s->chunks));
	if (!s->chunks)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (uint64_t i = 0; i < s->n; i++) {
		/* 128 bits: words of a large guest times chunks. */
		uint64_t lo = (uint64_t)((unsigned __int128)words * i / s->n);
		uint64_t hi = (uint64_t)((unsigned __int128)words * (i + 1) / s->n);

		place_chunk(vm, lo + next_random(&state) % (hi - lo), &s->chunks[i]);
		s->chunks[i].written = ~0ull;
	}
	return 0;
}

/* Only pages of the sample are cleared, and only those that were written. */
static int arm(const struct vm *vm, struct dirty_source *src, struct sample *s, struct err *e)
{
	int r = 0;

	for (unsigned int b = 0; b < vm->nblocks; b++)
		bitmap_clear(src->map[b], 0, vm->blocks[b].pages);
	for (uint64_t i = 0; i < s->n; i++)
		src->map[s->chunks[i].block][s->chunks[i].word] = s->chunks[i].written;
	for (unsigned int b = 0; b < vm->nblocks && !r; b++)
		r = src->ops->clear(src, b, 0, vm->blocks[b].pages, e);
	for (uint64_t i = 0; i < s->n; i++)
		src->map[s->chunks[i].block][s->chunks[i].word] = 0;
	return r;
}

static int collect(struct dirty_source *src, struct sample *s, struct err *e)
{
	int r = src->ops->harvest(src, e);

	for (uint64_t i = 0; i < s->n && !r; i++) {
		struct chunk *c = &s->chunks[i];

		c->written = src->map[c->block][c->word];
		c->ever |= c->written;
		c->hits += (uint64_t)__builtin_popcountll(c->written);
	}
	return r;
}

/* Arming takes a while, and what is written meanwhile is found: so the first harvest is the beginning, and no result. */
static int begin(const struct vm *vm, struct dirty_source *src, struct sample *s, struct err *e)
{
	int r = arm(vm, src, s, e);

	if (!r)
		r = collect(src, s, e);
	for (uint64_t i = 0; i < s->n; i++)
		s->chunks[i].ever = s->chunks[i].hits = 0;
	return r;
}

static int rest(uint64_t until_ns, struct err *e)
{
	uint64_t now;

	while ((now = now_ns()) < until_ns) {
		uint64_t left = until_ns - now < STOP_SLICE_NS ? until_ns - now : STOP_SLICE_NS;
		struct timespec ts = { (time_t)(left / 1000000000), (long)(left % 1000000000) };

		if (stop_requested())
			return err_set(e, GW_CANCELLED, EINTR, "cancelled by a signal");
		nanosleep(&ts, NULL);
	}
	return 0;
}

static void conclude(const struct sample *s, struct rate *out)
{
	double n = (double)s->n, scale, sum = 0, squares = 0, ever = 0, mean, variance;
	double seconds = (double)out->elapsed_ns / 1e9;

	out->sample_pages = s->n * CHUNK;
	scale = (double)out->total_pages / (double)out->sample_pages;
	for (uint64_t i = 0; i < s->n; i++) {
		double hits = (double)s->chunks[i].hits;

		sum += hits;
		squares += hits * hits;
		ever += __builtin_popcountll(s->chunks[i].ever);
	}
	mean = sum / n;
	/* Of the mean; a sample that is the whole has no error. */
	variance = n > 1 ? (squares / n - mean * mean) / (n - 1) * (1 - 1 / scale) : 0;
	out->dirty_pages_per_s = sum * scale / seconds;
	out->error_pages_per_s = 2 * sqrt(variance > 0 ? variance : 0) * n * scale / seconds;
	out->working_set_pages = ever * scale;
}

int rate_measure(const struct vm *vm, struct dirty_source *src, const struct rate_options *o, struct rate *out,
		 struct err *e)
{
	struct sample s = { 0 };
	uint64_t since, last;
	int r = choose(vm, o, &s, e);

	*out = (struct rate) { 0 };
	for (unsigned int i = 0; i < vm->nblocks; i++)
		out->total_pages += vm->blocks[i].pages;
	if (!r)
		r = src->ops->start(src, e);
	if (!r)
		r = begin(vm, src, &s, e);
	since = last = now_ns();
	while (!r && last < since + o->seconds * 1000000000ull) {
		r = arm(vm, src, &s, e);
		if (!r)
			r = rest(last + o->interval_ms * 1000000ull, e);
		if (!r)
			r = collect(src, &s, e);
		last = now_ns();
		out->intervals++;
	}
	out->elapsed_ns = last - since;
	if (!r)
		conclude(&s, out);
	free(s.chunks);
	return r;
}
