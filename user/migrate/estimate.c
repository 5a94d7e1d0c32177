// SPDX-License-Identifier: GPL-2.0-only
/*
 * A round takes as long as its bytes take over the link. What is pending at its end was written after it was cleared, and
 * pages are cleared CLEAR_PAGES at a time, just before they are read: the later in the round, the less is written to them
 * again. Then converge() decides, as it does in a migration.
 *
 * Left out: what the guest newly allocates, CPUs that are slower than the link, and that hot pages are read last.
 */
#include "migrate/converge.h"
#include "migrate/estimate.h"
#include "migrate/round.h"
#include "page/page.h"
#include "wire/wire.h"

/* A page with its share of a frame. */
#define WIRE_PAGE_BYTES	(PAGE_BYTES + WIRE_EXTENT)

static uint64_t ns_for(uint64_t bytes, uint64_t rate)
{
	return (uint64_t)((double)bytes * 1e9 / (double)rate);
}

/* Of @pages that a round of @ns has sent, and the rest: what is dirty at its end? */
static uint64_t pending_after(const struct curve *c, uint64_t pages, uint64_t ns)
{
	double sum = 0;

	if (!pages)
		return (uint64_t)curve_pages(c, ns);
	for (uint64_t first = 0; first < pages; first += CLEAR_PAGES) {
		uint64_t n = pages - first < CLEAR_PAGES ? pages - first : CLEAR_PAGES;
		double at = (double)first / (double)pages;

		sum += curve_pages(c, (uint64_t)((double)ns * (1 - at))) * (double)n / (double)pages;
	}
	return (uint64_t)sum;
}

void estimate(const struct estimate_in *in, struct estimate *out)
{
	struct blackout b = {
		.qmp_ns = in->turn_ns, .rtt_ns = in->rtt_ns, .rate = in->rate,
		.ram_pages = in->device_saved ? 0 : in->curve->total_pages,
	};
	struct converge c = {
		.limit_ns = in->limit_ns, .fixed_ns = converge_fixed(&b), .lead_ns = converge_lead(&b),
		.max_rounds = in->max_rounds, .rate = in->rate,
		.pending = UINT64_MAX, .best = UINT64_MAX,
	};
	uint64_t pages = in->content.allocated_pages, bytes = (pages - in->content.zero_pages) * WIRE_PAGE_BYTES;
	enum verdict verdict = CONVERGE_AGAIN;

	*out = (struct estimate) { 0 };
	while (verdict == CONVERGE_AGAIN) {
		uint64_t ns = ns_for(bytes, in->rate) + in->rtt_ns;

		out->bytes += bytes;
		out->total_ns += ns;
		c.round++;
		c.before = c.pending;
		c.round_ns = ns;
		c.pending = pending_after(in->curve, pages, ns);
		verdict = converge(&c);
		pages = c.pending;
		bytes = pages * WIRE_PAGE_BYTES;
	}
	out->converges = verdict == CONVERGE_SWITCH;
	out->rounds = c.round;
	out->pending_pages = c.pending;
	out->downtime_ns = c.predicted_ns;
	if (!out->converges)
		return;
	out->rounds++;
	out->bytes += bytes;
	out->total_ns += c.predicted_ns;
}
