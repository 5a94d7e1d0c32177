// SPDX-License-Identifier: GPL-2.0-only
#include "check/check_internal.h"
#include "plan/link.h"

#define GIGABIT		125000000ull	/* bytes/s: below it the buffers may be the limit */

void check_window(uint64_t buffer, unsigned int cpus, unsigned int streams, uint64_t rtt_ns,
		  struct check *c)
{
	unsigned int n = link_streams(cpus, rtt_ns, streams);
	/* The kernel counts what a buffer takes, not what it holds: twice as much, or nearly. */
	uint64_t rate = link_rate_max(buffer / 2, n, rtt_ns);
	double mib = (double)rate / (1 << 20);

	if (!link_is_long(rtt_ns))
		return;
	if (rate >= GIGABIT)
		check_add(c, "link window", CHECK_OK,
			  "%u connections with buffers of %llu KiB carry up to %.1f MiB/s over this round trip",
			  n, (unsigned long long)(buffer >> 10), mib);
	else
		check_add(c, "link window", CHECK_WARNING,
			  "%u connections with buffers of %llu KiB carry no more than %.1f MiB/s over this round trip: for 1 Gbit/s set the third value of net.ipv4.tcp_wmem on this host, and of net.ipv4.tcp_rmem on the destination's, to %llu or more",
			  n, (unsigned long long)(buffer >> 10), mib,
			  (unsigned long long)(2 * link_buffer(GIGABIT, n, rtt_ns)));
}

void check_loss(const struct loss *l, unsigned int streams, struct check *c)
{
	static const char name[] = "link loss";
	const uint64_t rate = loss_rate(l), one = l->streams ? rate / l->streams : 0;
	const double lost = 100 * l->share, mib = (double)rate / (1 << 20);
	uint64_t need = one ? GIGABIT / one + 1 : streams;

	if (!link_is_long(l->rtt_ns) || !l->segment)
		return;
	if (need > streams)
		need = streams;
	if (rate == UINT64_MAX)
		check_add(c, name, CHECK_OK, "nothing was lost");
	else if (rate >= GIGABIT)
		check_add(c, name, CHECK_OK,
			  "%.3f %% of the segments were lost: %u connections carry about %.1f MiB/s nevertheless",
			  lost, l->streams, mib);
	else if (need > l->streams)
		check_add(c, name, CHECK_WARNING,
			  "%.3f %% of the segments were lost, with which %u connections carry about %.1f MiB/s over this round trip: give the sender --streams %u",
			  lost, l->streams, mib, (unsigned int)need);
	else
		check_add(c, name, CHECK_WARNING,
			  "%.3f %% of the segments were lost, with which %u connections, the most that there may be, carry about %.1f MiB/s over this round trip: look for where the link loses packets",
			  lost, l->streams, mib);
}
