// SPDX-License-Identifier: GPL-2.0-only
#include <math.h>

#include "plan/loss.h"

#define SHARE_MOST	0.5
#define TRIPS_MOST	16u	/* behind that it is no link */
#define SELDOM		0.001

static uint64_t losses_sum(uint64_t sum, int64_t more)
{
	return more >= 0 || sum > (uint64_t)-more ? sum + (uint64_t)more : 0;
}

void losses_add(struct losses *l, uint64_t sent, int64_t again)
{
	if (l->sent) {
		l->later_sent += sent;
		l->later_again = losses_sum(l->later_again, again);
	}
	l->sent += sent;
	l->again = losses_sum(l->again, again);
}

static double losses_of(uint64_t sent, uint64_t again)
{
	double share = sent ? (double)again / (double)sent : 0;

	return share < SHARE_MOST ? share : SHARE_MOST;
}

double losses_share(const struct losses *l)
{
	double all = losses_of(l->sent, l->again);
	double later = losses_of(l->later_sent, l->later_again);

	return l->later_sent && later < all ? later : all;
}

/*
 * That what is last takes so many round trips longer, or more: that of so many segments one is lost
 * as often, or one that is the last of a stream once less.
 */
static double loss_of_any(const struct loss *l, double segments, unsigned int trips)
{
	double last = trips > 1 ? trips - 1 : 1;

	return -expm1(segments * log1p(-pow(l->share, trips)) +
		      l->streams * log1p(-pow(l->share, last)));
}

uint64_t loss_ns(const struct loss *l, double bytes)
{
	double chance = 1, trips = 0;

	if (!(l->share > 0) || !l->segment)
		return 0;
	for (unsigned int n = 1; n <= TRIPS_MOST && chance > SELDOM; n++) {
		chance = loss_of_any(l, bytes / l->segment, n);
		trips += chance;
	}
	return (uint64_t)(trips * (double)l->rtt_ns);
}

uint64_t loss_rate(const struct loss *l)
{
	double trip_s = (double)l->rtt_ns / 1e9, rate;

	if (!(l->share > 0) || !l->segment || !l->rtt_ns)
		return UINT64_MAX;
	rate = l->streams * (double)l->segment * sqrt(1.5 / l->share) / trip_s;
	return rate < (double)INT64_MAX ? (uint64_t)rate : UINT64_MAX;
}
