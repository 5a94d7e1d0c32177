/* SPDX-License-Identifier: GPL-2.0-only */
/* How fast a guest writes, and to how much memory: an estimate from a sample (sample.h), without a migration. */
#ifndef GODWIT_RATE_H
#define GODWIT_RATE_H

#include <stdint.h>

#include "err.h"
#include "source/source.h"

/**
 * struct rate_options
 * @seconds: how long to measure
 * @interval_ms: a page counts once an interval; the harvest is at its end
 * @sample_pages: at most so many 4 KiB pages are watched
 * @seed: of the choice
 */
struct rate_options {
	unsigned int seconds;
	unsigned int interval_ms;
	uint64_t sample_pages;
	uint64_t seed;
};

/**
 * struct rate - what was found
 * @total_pages: of the guest's RAM
 * @sample_pages: of them, watched
 * @elapsed_ns: while writes were seen, summed over the intervals
 * @dirty_pages_per_s: pages written an interval, per second, scaled up from the sample
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
int rate_measure(const struct vm *vm, struct dirty_source *s, const struct rate_options *o, struct rate *out,
		 struct err *e);

#endif
