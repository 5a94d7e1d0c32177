// SPDX-License-Identifier: GPL-2.0-only
/*
 * A round takes as long as its bytes take over the link. A page is dirty at its end if the guest
 * wrote it after its bit was cleared. The sender clears the bits of CLEAR_PAGES pages at a time,
 * just before it reads them: the later in the round, the fewer of them the guest rewrites. Then
 * converge() decides, as it does in a migration.
 *
 * Pages are packed as those of a sample were, in the way that takes least time for one: on the
 * link, or by the CPUs that pack it. (A stream that is free to choose mixes two ways, which is a
 * little better.) What the guest writes is taken to pack as well as what is there.
 *
 * Pages that the receiver has in a file go as references, in the first round: what the guest writes
 * is taken to be new, though the sender looks that up as well.
 *
 * Left out: pages that the guest allocates meanwhile, CPUs that are slower than the link without
 * packing, at either end, and that the sender reads hot pages last.
 */
#include "estimate/estimate.h"
#include "page/page.h"
#include "plan/converge.h"
#include "round/round.h"
#include "wire/reuse.h"

/* How long the streams take to look a page up, each with a CPU. */
static double estimate_hash_ns(const struct estimate_in *in)
{
	return in->content.hash_ns / (in->streams ? in->streams : 1);
}

/* How long a page takes, with its share of a frame. */
static double estimate_page_ns(const struct estimate_in *in, const struct content_packed *p)
{
	/* A stream is a thread. */
	unsigned int threads = in->streams < in->pack_threads ? in->streams : in->pack_threads;
	double link = (p->page_bytes + WIRE_EXTENT) * 1e9 / (double)in->rate;
	double cpus = p->page_ns / (threads ? threads : 1) + estimate_hash_ns(in);

	return link > cpus ? link : cpus;
}

/* How long the pages take that the receiver has, and into *out how many bytes. */
static double estimate_reuse(const struct estimate_in *in, struct estimate *out)
{
	double pages = (double)in->content.reused_pages;
	double link = in->content.reference_bytes * 1e9 / (double)in->rate;
	double cpus = estimate_hash_ns(in);

	out->reused_bytes = (uint64_t)(pages * in->content.reference_bytes);
	return pages * (link > cpus ? link : cpus);
}

/* Into *out, how pages are packed. Return: how long one takes. */
static double estimate_choose(const struct estimate_in *in, struct estimate *out)
{
	const struct content_packed raw = { .page_bytes = PAGE_BYTES };
	const struct content_packed *best = in->content.n ? &in->content.packed[0] : &raw;

	for (unsigned int i = 1; i < in->content.n; i++)
		if (estimate_page_ns(in, &in->content.packed[i]) < estimate_page_ns(in, best))
			best = &in->content.packed[i];
	*out = (struct estimate) {
		.choice = best->choice, .page_bytes = best->page_bytes + WIRE_EXTENT,
	};
	return estimate_page_ns(in, best);
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

/*
 * After the first round. In the downtime goes no RAM. What the guest touches comes ahead of the
 * rest, so all of it takes as long as if it were pushed.
 */
static void estimate_postcopy(const struct converge *c, double page_ns, uint64_t rtt_ns,
			      struct estimate *out)
{
	struct converge owing = *c;

	converge_owing(&owing);
	out->postcopy.owed_pages = c->pending;
	out->postcopy.downtime_ns = owing.predicted_ns;
	out->postcopy.after_ns = (uint64_t)((double)c->pending * page_ns);
	out->postcopy.total_ns = out->total_ns + rtt_ns + owing.predicted_ns +
				 out->postcopy.after_ns;
}

void estimate(const struct estimate_in *in, struct estimate *out)
{
	const double page_ns = estimate_choose(in, out);
	/* As the sender would measure it. */
	const struct speed speed = {
		.rate = (uint64_t)(out->page_bytes * 1e9 / page_ns), .page = out->page_bytes,
	};
	struct blackout b = {
		.qmp_ns = in->qmp_ns, .rtt_ns = in->rtt_ns, .rate = speed.rate,
		.ram_pages = in->save_mode ? 0 : in->curve->total_pages,
	};
	struct converge c = {
		.limit_ns = in->limit_ns, .fixed_ns = converge_fixed(&b),
		.lead_ns = converge_lead(&b), .max_rounds = in->max_rounds, .speed = speed,
		.pending = UINT64_MAX, .best = UINT64_MAX,
		.loss = {
			.share = in->loss.share, .segment = in->loss.segment,
			.streams = in->streams, .rtt_ns = in->rtt_ns,
		},
	};
	uint64_t pages = in->content.allocated_pages;
	double data = (double)(pages - in->content.zero_pages - in->content.same_pages -
			       in->content.reused_pages);
	double reuse_ns = estimate_reuse(in, out);
	enum verdict verdict = CONVERGE_AGAIN;

	out->bytes = out->reused_bytes;
	out->total_ns = (uint64_t)((double)in->reuse_entries * WIRE_ENTRY * 1e9 / (double)in->rate);
	while (verdict == CONVERGE_AGAIN) {
		/* No round waits for its ACK. */
		uint64_t ns = (uint64_t)(data * page_ns + reuse_ns);

		reuse_ns = 0;
		out->bytes += (uint64_t)(data * out->page_bytes);
		out->total_ns += ns;
		c.round++;
		c.before = c.pending;
		c.round_ns = ns;
		c.pending = estimate_pending(in->curve, pages, ns);
		if (c.round == 1)
			estimate_postcopy(&c, page_ns, in->rtt_ns, out);
		verdict = converge(&c);
		pages = c.pending;
		data = (double)pages;
	}
	out->total_ns += in->rtt_ns;	/* SWITCHOVER */
	out->converges = verdict == CONVERGE_SWITCH;
	out->rounds = c.round;
	out->pending_pages = c.pending;
	out->downtime_ns = c.predicted_ns;
	out->loss_ns = c.loss_ns;
	if (!out->converges)
		return;
	out->rounds++;
	out->bytes += (uint64_t)(data * out->page_bytes);
	out->total_ns += c.predicted_ns;
}
