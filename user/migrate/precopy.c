// SPDX-License-Identifier: GPL-2.0-only
/* Pre-copy: rounds while the guest runs. */
#include <errno.h>

#include "io/sock.h"
#include "migrate/sender_internal.h"
#include "migrate/turns.h"
#include "page/page.h"

/**
 * struct measured - what the prediction is made of
 * @free_rate: of the last round that --bandwidth did not hold back, bytes per second; 0: there was none
 */
struct measured {
	struct turns turns;
	uint64_t free_rate;
	uint64_t harvest_ns;
};

static int one_round(struct sender *s, struct measured *m, uint64_t *ns, struct err *e)
{
	struct report *rep = s->report;
	bool held_back = s->limits.bandwidth_mib;
	uint64_t bytes = sender_bytes(s), begin = now_ns();
	int r = sender_round(s, ROUND_PRECOPY, e);

	*ns = now_ns() - begin;
	bytes = sender_bytes(s) - bytes;
	/* A short round measures round trips, not the link. */
	if (r || !*ns || (bytes <= (4u << 20) && rep->rate))
		return r;
	rep->rate = (uint64_t)((double)bytes * 1e9 / (double)*ns);
	if (!held_back && !s->limits.bandwidth_mib)
		m->free_rate = rep->rate;
	return 0;
}

static int harvest(struct sender *s, struct measured *m, uint64_t *pending, struct err *e)
{
	uint64_t begin = now_ns();
	int r = s->source->ops->harvest(s->source, e);

	m->harvest_ns = now_ns() - begin;
	if (!r)
		r = dirty_rate_check(s->qmp, &s->dirty_rate, false, e);
	/*
	 * What is plugged shows by a mapping more often than not: better to end now than at the stop,
	 * where all of it is looked at again.
	 */
	if (!r && s->source->changed)
		r = sender_check_writers(s, e);
	if (!r && s->source->changed)
		r = source_check_mappers(s->source, "/proc", e);
	if (!r)
		r = round_pending(&s->vm, s->source, pending, e);
	return r ? r : turns_measure(&m->turns, s->qmp, e);
}

static enum verdict decide(struct sender *s, const struct measured *m, struct converge *c)
{
	/* The last round is not held back: where it is known what the link takes then, that counts. */
	uint64_t rate = m->free_rate > s->report->rate ? m->free_rate : s->report->rate;
	struct blackout b = {
		.qmp_ns = turns_median(&m->turns), .rtt_ns = s->rtt_ns,
		.harvest_ns = m->harvest_ns, .rate = rate, .ram_pages = s->way == &way_save ? 0 : s->report->total_pages,
	};

	c->fixed_ns = converge_fixed(&b);
	c->lead_ns = converge_lead(&b);
	c->rate = rate;
	c->round = s->report->round;
	/* They may have been changed meanwhile. */
	c->limit_ns = s->limits.downtime_limit_ms * 1000000ull;
	c->ramp_ns = s->limits.downtime_ramp_ms * 1000000ull;
	c->max_rounds = s->limits.max_rounds;
	return converge(c);
}

/* Will it still fit when the guest has stopped? */
static int fits_or_again(struct sender *s, enum verdict *verdict, struct err *e)
{
	bool changed;
	int r = sender_fits_still(s, &changed, e);

	if (!r && changed)
		*verdict = CONVERGE_AGAIN;
	return r;
}

static int not_converged(const struct converge *c, struct err *e)
{
	return err_set(e, GW_NOT_CONVERGED, ETIME,
		       "after %u rounds %llu MiB are still to be sent, which would stop the guest for about %llu ms (limit %llu ms; %u rounds in a row did not help): raise --downtime-limit, --downtime-ramp or --max-rounds, use a faster link, or calm the guest",
		       c->round, (unsigned long long)(c->pending * PAGE_BYTES >> 20),
		       (unsigned long long)(c->predicted_ns / 1000000), (unsigned long long)(c->allowed_ns / 1000000), c->stalled);
}

int precopy(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	struct converge c = { .pending = UINT64_MAX, .best = UINT64_MAX };
	enum verdict verdict = CONVERGE_AGAIN;
	struct measured m = { .free_rate = 0 };
	int r;

	rep->phase = "pre-copy";
	r = dirty_rate_begin(s->qmp, &s->dirty_rate, e);
	if (!r)
		r = s->source->ops->start(s->source, e);
	if (!r)
		r = source_check_mappers(s->source, "/proc", e);
	while (!r && verdict == CONVERGE_AGAIN && !s->out_of_time) {
		r = one_round(s, &m, &c.round_ns, e);
		c.before = c.pending;
		if (!r)
			r = harvest(s, &m, &c.pending, e);
		if (r)
			break;
		verdict = decide(s, &m, &c);
		/* While both ends are looked at again the guest writes on: that is another round's. */
		if (verdict == CONVERGE_SWITCH)
			r = fits_or_again(s, &verdict, e);
		rep->pending_pages = c.pending;
		rep->dirty_rate = c.round_ns ? (uint64_t)((double)c.pending * 1e9 / (double)c.round_ns) : 0;
		rep->predicted_ns = c.predicted_ns;
		report_round_left(rep);
		sender_progress(s);
	}
	if (!r && verdict == CONVERGE_GIVE_UP && !s->out_of_time)
		return not_converged(&c, e);
	return r;
}
