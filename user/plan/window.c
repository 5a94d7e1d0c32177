// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>

#include "plan/link.h"
#include "plan/window.h"

/* The kernel counts what a buffer takes, not what it holds: twice as much, or nearly. */
static uint64_t window_rate_of(const struct window *w, uint64_t buffer)
{
	return buffer ? link_rate_max(buffer / 2, w->streams, w->rtt_ns) : UINT64_MAX;
}

uint64_t window_rate(const struct window *w)
{
	uint64_t send = window_rate_of(w, w->send), receive = window_rate_of(w, w->receive);

	return send < receive ? send : receive;
}

bool window_lacks(const struct window *w, char *text, size_t len)
{
	const uint64_t rate = window_rate(w);
	bool send = !w->send || window_rate_of(w, w->send) < w->goal;
	bool receive = !w->receive || window_rate_of(w, w->receive) < w->goal;

	if (!link_is_long(w->rtt_ns) || rate >= w->goal)
		return false;
	snprintf(text, len, "the hosts' buffers let %u connections carry no more than %.1f MiB/s over a round trip of %.0f ms: for %.0f Mbit/s set the third value of %s%s%s to %llu or more",
		 w->streams, (double)rate / (1 << 20), (double)w->rtt_ns / 1e6,
		 (double)w->goal * 8 / 1e6, send ? "net.ipv4.tcp_wmem on the source's host" : "",
		 send && receive ? ", and of " : "",
		 receive ? "net.ipv4.tcp_rmem on the destination's host" : "",
		 (unsigned long long)(2 * link_buffer(w->goal, w->streams, w->rtt_ns)));
	return true;
}
