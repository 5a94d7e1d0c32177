// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "io/sock.h"
#include "migrate/rate.h"
#include "migrate/sample.h"

/* hits: written pages of each chunk, summed over the intervals. */
static void conclude(const struct sample *s, const uint64_t *hits_of, struct rate *out)
{
	double n = (double)s->n, scale = sample_scale(s), sum = 0, squares = 0, ever = 0, mean, variance;
	double seconds = (double)out->elapsed_ns / 1e9;

	out->total_pages = s->total_pages;
	out->sample_pages = s->n * SAMPLE_CHUNK;
	for (uint64_t i = 0; i < s->n; i++) {
		double hits = (double)hits_of[i];

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

/* One interval. */
static int measure(struct sample *s, struct dirty_source *src, const struct rate_options *o, uint64_t *hits_of,
		   struct rate *out, struct err *e)
{
	uint64_t since, pages;
	int r = sample_arm(s, src, &since, e);

	if (!r)
		r = sample_rest(since + o->interval_ms * 1000000ull, e);
	if (!r)
		r = sample_collect(s, src, &pages, e);
	for (uint64_t i = 0; !r && i < s->n; i++)
		hits_of[i] += (uint64_t)__builtin_popcountll(s->chunks[i].written);
	out->elapsed_ns += s->harvest_ns - since;
	out->intervals++;
	return r;
}

int rate_measure(const struct vm *vm, struct dirty_source *src, const struct rate_options *o, struct rate *out,
		 struct err *e)
{
	uint64_t *hits_of = NULL;
	struct sample s;
	int r = sample_choose(vm, o->sample_pages, o->seed, &s, e);

	*out = (struct rate) { 0 };
	if (!r) {
		hits_of = calloc(s.n, sizeof(*hits_of));
		r = hits_of ? sample_begin(&s, src, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	while (!r && out->elapsed_ns < o->seconds * 1000000000ull)
		r = measure(&s, src, o, hits_of, out, e);
	if (!r)
		conclude(&s, hits_of, out);
	free(hits_of);
	sample_free(&s);
	return r;
}
