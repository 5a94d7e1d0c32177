/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How many distinct pages a guest writes in a time. That is not rate times time, as a rewritten
 * page counts once. So curve_measure() measures several times, each about twice the one before, on
 * one sample that is armed once for all of them.
 */
#ifndef GODWIT_CURVE_H
#define GODWIT_CURVE_H

#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

#define CURVE_POINTS	5

/**
 * struct curve - distinct pages written, over time
 * @points: the first has the shortest time; neither times nor pages fall
 * @total_pages: of the guest's RAM: no extrapolation exceeds it
 * @sample_pages: how many were watched
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
int curve_measure(const struct vm *vm, struct dirty_source *s, unsigned int seconds,
		  uint64_t sample_pages, uint64_t seed, struct curve *out, struct err *e);
/*
 * Pages written in a time: on a line between two points, and after the last point on the line
 * through the last two. Pure.
 */
double curve_pages(const struct curve *c, uint64_t ns);

#endif
