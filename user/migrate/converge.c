// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit is met when what is pending fits through the link in time. Then a few more rounds may still be
 * worth it: one that is short and leaves clearly less behind buys downtime for little total time.
 */
#include "migrate/converge.h"
#include "page/page.h"

#define POLISH_MAX	3
#define YEAR_S		31536000ull

enum verdict converge(struct converge *c)
{
	double seconds = (double)c->pending * PAGE_BYTES / (c->rate ? (double)c->rate : 1e-9);
	/* A year stands for all that is longer: it fits no limit, and overflows nothing. */
	uint64_t ram_ns = seconds < YEAR_S ? (uint64_t)(seconds * 1e9) : YEAR_S * 1000000000ull;

	c->predicted_ns = ram_ns + c->fixed_ns;

	if (c->predicted_ns > c->limit_ns)
		return c->round >= c->max_rounds ? CONVERGE_GIVE_UP : CONVERGE_AGAIN;
	if (c->round >= c->max_rounds || c->polished >= POLISH_MAX)
		return CONVERGE_SWITCH;
	/* Less than the fixed part, or not falling any more: the guest's working set is reached. */
	if (ram_ns < c->fixed_ns / 4 || c->pending > c->before / 10 * 7)
		return CONVERGE_SWITCH;
	c->polished++;
	return CONVERGE_AGAIN;
}
