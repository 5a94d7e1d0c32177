// SPDX-License-Identifier: GPL-2.0-only
/*
 * The sample is made of chunks of 64 pages, a word of the bitmap each, since a call of the module arms a chunk as
 * fast as a page. The address space is cut into as many strata as there are chunks, and each has one chunk, chosen at
 * random: an even spread, and no two alike.
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
 * @ever: pages that were written at any time
 * @hits: written pages, summed over the intervals
 * @armed: nothing was written since it was cleared
 */
struct chunk {
	unsigned int block;
	uint64_t word;
	uint64_t ever;
	uint64_t hits;
	bool armed;
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
	}
	return 0;
}

/* Forgets what is known of the sample: only what has been written needs it. */
static int arm(struct dirty_source *src, struct sample *s, struct err *e)
{
	int r = 0;

	for (uint64_t i = 0; i < s->n && !r; i++) {
		struct chunk *c = &s->chunks[i];

		if (c->armed)
			continue;
		r = src->ops->clear(src, c->block, c->word * CHUNK, CHUNK, e);
		src->map[c->block][c->word] = 0;
		c->armed = true;
	}
	return r;
}

static int collect(struct dirty_source *src, struct sample *s, struct err *e)
{
	int r = src->ops->harvest(src, e);

	for (uint64_t i = 0; i < s->n && !r; i++) {
		struct chunk *c = &s->chunks[i];
		uint64_t written = src->map[c->block][c->word];

		c->ever |= written;
		c->hits += (uint64_t)__builtin_popcountll(written);
		c->armed = !written;
	}
	return r;
}

static int rest(uint64_t until_ns, struct err *e)
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
	uint64_t end = now_ns() + o->seconds * 1000000000ull, begin;
	struct sample s = { 0 };
	int r = choose(vm, o, &s, e);

	*out = (struct rate) { 0 };
	for (unsigned int i = 0; i < vm->nblocks; i++)
		out->total_pages += vm->blocks[i].pages;
	if (!r)
		r = src->ops->start(src, e);
	do {
		if (!r)
			r = arm(src, &s, e);
		begin = now_ns();
		if (!r)
			r = rest(begin + o->interval_ms * 1000000ull, e);
		if (!r)
			r = collect(src, &s, e);
		out->elapsed_ns += now_ns() - begin;
		out->intervals++;
	} while (!r && now_ns() < end);
	if (!r)
		conclude(&s, out);
	free(s.chunks);
	return r;
}
