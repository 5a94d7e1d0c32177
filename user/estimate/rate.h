/* SPDX-License-Identifier: GPL-2.0-only */
/* Estimates a guest's dirty rate and working set from a sample (sample.h), without a migration. */
#ifndef GODWIT_RATE_H
#define GODWIT_RATE_H

#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

/**
 * struct rate_options
 * @seconds: how long to measure
 * @interval_ms: a page counts once an interval; the harvest is at its end
 * @sample_pages: how many 4 KiB pages to watch at most
 * @seed: of the random choice of pages
 */
struct rate_options {
	unsigned int seconds;
	unsigned int interval_ms;
	uint64_t sample_pages;
	uint64_t seed;
};

/**
 * struct rate - the result
 * @total_pages: of the guest's RAM
 * @sample_pages: of these, how many were watched
 * @elapsed_ns: the time in which writes were seen, summed over the intervals
 * @dirty_pages_per_s: distinct pages written in an interval, per second, scaled up from the sample
 * @error_pages_per_s: two standard deviations of that, from the spread over the sample's chunks
 * @working_set_pages: distinct pages written at any time, scaled up
 */
struct rate {
	uint64_t total_pages;
	uint64_t sample_pages;
	uint64_t intervals;
	uint64_t elapsed_ns;
	double dirty_pages_per_s;
	double error_pages_per_s;
	double working_set_pages;
};

/* Errors: those of the source; GW_CANCELLED (a signal). */
int rate_measure(const struct vm *vm, struct dirty_source *s, const struct rate_options *o,
		 struct rate *out, struct err *e);

#endif
