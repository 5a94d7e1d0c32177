// SPDX-License-Identifier: GPL-2.0-only
/* Pre-copy: rounds while the guest runs. */
#include <errno.h>

#include "io/sock.h"
#include "migrate/sender_internal.h"
#include "page/page.h"

static int one_round(struct sender *s, uint64_t *ns, struct err *e)
{
	struct report *rep = s->report;
	uint64_t bytes;
	int r;

	s->round_bytes = sender_bytes(s);
	s->round_ns = now_ns();
	r = sender_round(s, ROUND_PRECOPY, e);
	*ns = now_ns() - s->round_ns;
	bytes = sender_bytes(s) - s->round_bytes;
	/* A short round measures round trips, not the link. */
	if (!r && *ns && (bytes > (4u << 20) || !rep->rate))
		rep->rate = (uint64_t)((double)bytes * 1e9 / (double)*ns);
	return r;
}

int precopy(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	struct converge c = {
		.limit_ns = s->o->downtime_limit_ms * 1000000ull,
		.fixed_ns = CONVERGE_FIXED_NS + 2 * s->rtt_ns,
		.max_rounds = s->o->max_rounds,
		.pending = UINT64_MAX,
	};
	enum verdict verdict = CONVERGE_AGAIN;
	uint64_t ns = 0;
	int r;

	rep->phase = "pre-copy";
	r = s->source->ops->start(s->source, e);
	while (!r && verdict == CONVERGE_AGAIN) {
		r = one_round(s, &ns, e);
		if (!r)
			r = s->source->ops->harvest(s->source, e);
		c.before = c.pending;
		if (!r)
			r = round_pending(&s->vm, s->source, &c.pending, e);
		if (r)
			break;
		c.round = rep->round;
		c.rate = rep->rate;
		verdict = converge(&c);
		rep->pending_pages = c.pending;
		rep->dirty_rate = ns ? (uint64_t)((double)c.pending * 1e9 / (double)ns) : 0;
		rep->predicted_ns = c.predicted_ns;
		report_round_left(rep);
		sender_progress(s);
	}
	if (!r && verdict == CONVERGE_GIVE_UP)
		return err_set(e, GW_NOT_CONVERGED, ETIME,
			       "after %u rounds %llu MiB are still to be sent, which would stop the guest for about %llu ms (limit %u ms): raise --downtime-limit or --max-rounds, use a faster link, or calm the guest",
			       rep->round, (unsigned long long)(c.pending * PAGE_BYTES >> 20),
			       (unsigned long long)(c.predicted_ns / 1000000), s->o->downtime_limit_ms);
	return r;
}
