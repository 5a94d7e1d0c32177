// SPDX-License-Identifier: GPL-2.0-only
/*
 * If the link sends R and the guest writes D bytes a second, a round that takes T leaves D * T, and
 * the next one takes D / R * T: a geometric series, which ends when what is left fits the downtime
 * limit. A guest that rewrites the same pages leaves less than that, so the estimate errs on the
 * long side.
 */
#include <stddef.h>

#include "report/eta.h"

#define ROUNDS_MAX	10000	/* the largest --max-rounds */

/* How long so many pages take. */
static double eta_seconds(const struct report *r, uint64_t pages)
{
	return (double)pages / speed_pages(&r->speed);
}

/* The part of the prediction that is not RAM, in seconds. */
static double eta_fixed_s(const struct report *r)
{
	double ram = eta_seconds(r, r->pending_pages);
	double all = (double)r->predicted_ns / 1e9;

	return all > ram ? all - ram : 0;
}

/* What the link loses is hardly a reason for more rounds: see converge(). */
static uint64_t eta_limit_ns(const struct report *r)
{
	return r->limit_ns + r->link.loss_ns;
}

enum eta report_eta(const struct report *r, uint64_t *ns)
{
	const struct report_row *row = r->nr_rows ? &r->rows[r->nr_rows - 1] : NULL;
	double limit, fixed, dirty, seconds, round;
	bool ended;

	if (!row || !r->speed.rate)
		return ETA_UNKNOWN;
	seconds = eta_seconds(r, r->remaining_pages);
	*ns = (uint64_t)(seconds * 1e9);
	if (row->blackout)
		return ETA_KNOWN;
	if (!r->predicted_ns)
		return ETA_AT_LEAST;
	ended = row->end_ns > row->start_ns;
	if (ended && r->predicted_ns <= eta_limit_ns(r)) {
		*ns = r->predicted_ns;
		return ETA_KNOWN;
	}
	limit = (double)eta_limit_ns(r) / 1e9;
	fixed = eta_fixed_s(r);
	dirty = eta_seconds(r, r->dirty_rate);
	round = (ended ? 0 : (double)(r->total_ns - row->start_ns) / 1e9) + seconds;
	for (unsigned int i = 0; i < ROUNDS_MAX; i++) {
		round *= dirty;	/* the time for what the round leaves */
		seconds += round;
		if (round + fixed <= limit) {
			*ns = (uint64_t)((seconds + fixed) * 1e9);
			return ETA_KNOWN;
		}
	}
	return ETA_NEVER;
}
