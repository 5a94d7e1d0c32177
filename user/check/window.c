// SPDX-License-Identifier: GPL-2.0-only
#include "check/check_internal.h"
#include "plan/link.h"

void check_window(const struct window *w, struct check *c)
{
	static const char name[] = "link window";
	char text[400];

	if (!link_is_long(w->rtt_ns) || window_rate(w) == UINT64_MAX)
		return;
	if (window_lacks(w, text, sizeof(text)))
		check_add(c, name, CHECK_WARNING, "%s", text);
	else
		check_add(c, name, CHECK_OK,
			  "the hosts' buffers let %u connections carry up to %.1f MiB/s over this round trip",
			  w->streams, (double)window_rate(w) / (1 << 20));
}

void check_loss(const struct loss *l, unsigned int streams, struct check *c)
{
	static const char name[] = "link loss";
	const uint64_t rate = loss_rate(l), one = l->streams ? rate / l->streams : 0;
	const double lost = 100 * l->share, mib = (double)rate / (1 << 20);
	uint64_t need = one ? WINDOW_GIGABIT / one + 1 : streams;

	if (!link_is_long(l->rtt_ns) || !l->segment)
		return;
	if (need > streams)
		need = streams;
	if (rate == UINT64_MAX)
		check_add(c, name, CHECK_OK, "nothing was lost");
	else if (rate >= WINDOW_GIGABIT)
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
