/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many pages does a guest write in a time? Not rate times time: what is written again counts once. So it is measured over
 * several times, each about twice the one before, on one sample that is armed once for all of them.
 */
#ifndef GODWIT_CURVE_H
#define GODWIT_CURVE_H

#include <stdint.h>

#include "err.h"
#include "source/source.h"

#define CURVE_POINTS	5

/**
 * struct curve - distinct pages written, over time
 * @points: of which the first is the shortest time; neither times nor pages fall
 * @total_pages: of the guest's RAM: what no extrapolation exceeds
 * @sample_pages: that were watched
 */
struct curve {
	unsigned int n;
	struct {
		uint64_t ns;
		double pages;
	} points[CURVE_POINTS];
	uint64_t total_pages;
	uint64_t sample_pages;
};

/* Measures for @seconds. Errors: those of the source; GW_CANCELLED (a signal). */
int curve_measure(const struct vm *vm, struct dirty_source *s, unsigned int seconds, uint64_t sample_pages, uint64_t seed,
		  struct curve *out, struct err *e);
/* Pages written in so long a time: between two points a line, behind the last one the line of the last two. Pure. */
double curve_pages(const struct curve *c, uint64_t ns);

#endif
