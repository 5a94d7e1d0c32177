// SPDX-License-Identifier: GPL-2.0-only
/*
 * A round takes as long as its bytes take over the link. A page is dirty at its end if the guest
 * wrote it after its bit was cleared. The sender clears the bits of CLEAR_PAGES pages at a time,
 * just before it reads them: the later in the round, the fewer of them the guest rewrites. Then
 * converge() decides, as it does in a migration.
 *
 * Left out: pages that the guest allocates meanwhile, CPUs that are slower than the link, and that
 * the sender reads hot pages last.
 */
#include "estimate/estimate.h"
#include "page/page.h"
#include "plan/converge.h"
#include "send/round.h"
#include "wire/wire.h"

/* A page with its share of a frame. */
#define WIRE_PAGE_BYTES	(PAGE_BYTES + WIRE_EXTENT)

static uint64_t estimate_ns(uint64_t bytes, uint64_t rate)
{
	return (uint64_t)((double)bytes * 1e9 / (double)rate);
}

/* How many pages are dirty at the end of a round that takes @ns and sends @pages. */
static uint64_t estimate_pending(const struct curve *c, uint64_t pages, uint64_t ns)
{
	double sum = 0;

	if (!pages)
		return (uint64_t)curve_pages(c, ns);
	for (uint64_t first = 0; first < pages; first += CLEAR_PAGES) {
		uint64_t n = pages - first < CLEAR_PAGES ? pages - first : CLEAR_PAGES;
		double at = (double)first / (double)pages;

		uint64_t rest_ns = (uint64_t)((double)ns * (1 - at));

		sum += curve_pages(c, rest_ns) * (double)n / (double)pages;
	}
	return (uint64_t)sum;
}

void estimate(const struct estimate_in *in, struct estimate *out)
{
	struct blackout b = {
		.qmp_ns = in->qmp_ns, .rtt_ns = in->rtt_ns, .rate = in->rate,
		.ram_pages = in->save_mode ? 0 : in->curve->total_pages,
	};
	struct converge c = {
		.limit_ns = in->limit_ns, .fixed_ns = converge_fixed(&b),
		.lead_ns = converge_lead(&b), .max_rounds = in->max_rounds, .speed.rate = in->rate,
		.pending = UINT64_MAX, .best = UINT64_MAX,
	};
	uint64_t pages = in->content.allocated_pages;
	uint64_t bytes = (pages - in->content.zero_pages) * WIRE_PAGE_BYTES;
	enum verdict verdict = CONVERGE_AGAIN;

	*out = (struct estimate) { 0 };
	while (verdict == CONVERGE_AGAIN) {
		uint64_t ns = estimate_ns(bytes, in->rate);	/* no round waits for its ACK */

		out->bytes += bytes;
		out->total_ns += ns;
		c.round++;
		c.before = c.pending;
		c.round_ns = ns;
		c.pending = estimate_pending(in->curve, pages, ns);
		verdict = converge(&c);
		pages = c.pending;
		bytes = pages * WIRE_PAGE_BYTES;
	}
	out->total_ns += in->rtt_ns;	/* SWITCHOVER */
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
