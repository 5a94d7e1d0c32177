// SPDX-License-Identifier: GPL-2.0-only
#include "plan/throttle.h"

#define WANTED	0.5	/* of what the link sends in that time */

/*
 * A guest writes as much as it runs. It may write a page many times in a round, which counts once:
 * then the rate is really higher, this is too little, and the next round will not help either. So
 * a round that did not help halves the time that the guest runs at the least.
 */
unsigned int throttle_next(unsigned int percent, uint64_t send_ns, uint64_t round_ns)
{
	const double runs = 1 - (double)percent / 100;
	const double share = round_ns ? (double)send_ns / (double)round_ns : 1;
	double next = share > 0 ? runs * WANTED / share : runs;
	unsigned int to;

	if (next > runs / 2)
		next = runs / 2;
	to = (unsigned int)(100 - 100 * next);
	return to > THROTTLE_MAX ? THROTTLE_MAX : to > percent ? to : percent;
}
