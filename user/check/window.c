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
