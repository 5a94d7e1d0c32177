// SPDX-License-Identifier: GPL-2.0-only
#include "plan/link.h"

#define SEC_NS		1000000000ull
#define RTT_NS		5000000ull	/* a stream for each */
#define PATIENCE	20u		/* round trips */
#define STREAM_TIMES	4u		/* as long as that */
#define RTT_MOST_NS	3000000000ull	/* of a stranger it may be anything */
#define QUEUE_NS	4000000ull	/* a thread that sends may be late by so much */
#define SHORT_BUFFER	(32u << 10)	/* some packets, also on a slow link */

unsigned int link_streams(unsigned int cpus, uint64_t rtt_ns, unsigned int most)
{
	uint64_t n = rtt_ns / RTT_NS;

	if (n < cpus)
		n = cpus;
	return n < most ? (unsigned int)n : most;
}

bool link_is_long(uint64_t rtt_ns)
{
	return rtt_ns >= RTT_NS;
}

uint64_t link_rate_max(uint64_t buffer, unsigned int streams, uint64_t rtt_ns)
{
	const double rate = (double)buffer * streams * SEC_NS / (double)(rtt_ns ? rtt_ns : 1);

	/* The buffer may be what a peer says. */
	return rate < (double)INT64_MAX ? (uint64_t)rate : INT64_MAX;
}

uint64_t link_buffer(uint64_t rate, unsigned int streams, uint64_t rtt_ns)
{
	return (uint64_t)((double)rate * (double)rtt_ns / SEC_NS / streams) + 1;
}

uint64_t link_short_buffer(uint64_t rate, unsigned int streams, uint64_t rtt_ns)
{
	const uint64_t bytes = link_buffer(rate, streams, rtt_ns + QUEUE_NS);

	if (!rate || link_is_long(rtt_ns))
		return 0;
	return bytes > SHORT_BUFFER ? bytes : SHORT_BUFFER;
}

unsigned int link_patience_ms(unsigned int timeout_ms, uint64_t rtt_ns)
{
	if (rtt_ns > RTT_MOST_NS)
		rtt_ns = RTT_MOST_NS;
	return timeout_ms ? timeout_ms + (unsigned int)(PATIENCE * rtt_ns / 1000000) : 0;
}

unsigned int link_stream_patience_ms(unsigned int patience_ms)
{
	return STREAM_TIMES * patience_ms;
}

uint64_t link_waiting(uint64_t in_flight, uint32_t rtt, uint32_t least_rtt)
{
	return rtt > least_rtt ? in_flight * (rtt - least_rtt) / rtt : 0;
}
