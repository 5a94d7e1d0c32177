// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "estimate/rate.h"
#include "estimate/sample.h"

/* chunk_hits: written pages of each chunk, summed over the intervals */
static void rate_conclude(const struct sample *s, const uint64_t *chunk_hits, struct rate *out)
{
	double n = (double)s->n, scale = sample_scale(s), sum = 0, squares = 0, ever = 0;
	double mean, variance;
	double seconds = (double)out->elapsed_ns / 1e9;

	out->total_pages = s->total_pages;
	out->sample_pages = s->n * SAMPLE_CHUNK;
	for (uint64_t i = 0; i < s->n; i++) {
		double hits = (double)chunk_hits[i];

		sum += hits;
		squares += hits * hits;
		ever += __builtin_popcountll(s->chunks[i].ever);
	}
	mean = sum / n;
	/* Of the mean; a sample of all pages has no error. */
	variance = n > 1 ? (squares / n - mean * mean) / (n - 1) * (1 - 1 / scale) : 0;
	out->dirty_pages_per_s = sum * scale / seconds;
	out->error_pages_per_s = 2 * sqrt(variance > 0 ? variance : 0) * n * scale / seconds;
	out->working_set_pages = ever * scale;
}

/* Measures one interval. */
static int rate_step(struct sample *s, struct dirty_source *src, const struct rate_options *o,
		     uint64_t *chunk_hits, struct rate *out, struct err *e)
{
	uint64_t since, pages;
	int r = sample_arm(s, src, &since, e);

	if (!r)
		r = sample_rest(since + o->interval_ms * 1000000ull, e);
	if (!r)
		r = sample_collect(s, src, &pages, e);
	for (uint64_t i = 0; !r && i < s->n; i++)
		chunk_hits[i] += (uint64_t)__builtin_popcountll(s->chunks[i].written);
	out->elapsed_ns += s->harvest_ns - since;
	out->intervals++;
	return r;
}

int rate_measure(const struct vm *vm, struct dirty_source *src, const struct rate_options *o,
		 struct rate *out, struct err *e)
{
	uint64_t *chunk_hits = NULL;
	struct sample s;
	int r = sample_choose(vm, o->sample_pages, o->seed, &s, e);

	*out = (struct rate) { 0 };
	if (!r) {
		chunk_hits = calloc(s.n, sizeof(*chunk_hits));
		r = chunk_hits ? sample_begin(&s, src, e)
			       : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	while (!r && out->elapsed_ns < o->seconds * 1000000000ull)
		r = rate_step(&s, src, o, chunk_hits, out, e);
	if (!r)
		rate_conclude(&s, chunk_hits, out);
	free(chunk_hits);
	sample_free(&s);
	return r;
}
