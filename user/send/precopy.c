// SPDX-License-Identifier: GPL-2.0-only
/* Pre-copy: rounds while the guest runs. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "page/page.h"
#include "qmp/qmp_latency.h"
#include "send/sender_internal.h"

/**
 * struct precopy_measured - what the prediction is made of
 * @compress: how pages are packed, as codec_wish_word(), where @speeds were measured
 * @queued: bytes that were under way at the end of the last round
 * @tcp: what had been counted then, of the same connections
 */
struct precopy_measured {
	struct qmp_latency latency;
	struct speeds speeds;
	uint32_t compress;
	uint64_t harvest_ns;
	uint64_t queued;
	struct sock_sent tcp;
	struct losses losses;
};

/* Of the round that has ended. */
static struct round_count precopy_sent(const struct report *rep)
{
	const struct report_row *row = &rep->rows[rep->nr_rows - 1];

	return (struct round_count) {
		.data_pages = row->data_pages, .unchanged_pages = row->unchanged_pages,
		.zero_pages = row->zero_pages, .same_pages = row->same_pages,
		.page_bytes = row->page_bytes, .reused_pages = row->reused_pages,
	};
}

/*
 * The operator may change how pages are packed at any time (godwit set). A round that saw both ways
 * tells of neither. What comes after the last look is for the operator to bear.
 */
static bool precopy_packs_otherwise(const struct sender *s, struct precopy_measured *m)
{
	const uint32_t compress = atomic_load(&s->compress);

	if (compress != m->compress)
		speeds_change(&m->speeds);
	m->compress = compress;
	return m->speeds.changed;
}

/* What TCP says of the round that has ended. */
static void precopy_count_tcp(struct sender *s, struct precopy_measured *m)
{
	const struct sock_sent now = send_streams_tcp(s->streams), was = m->tcp;
	struct report_link *link = &s->report->link;
	const unsigned int n = s->report->streams ? s->report->streams : 1;

	m->tcp = now;
	losses_add(&m->losses, now.segments - was.segments, (int64_t)(now.again - was.again));
	link->segments = m->losses.sent;
	link->again = m->losses.again;
	link->busy_ns += (now.busy_ns - was.busy_ns) / n;
	link->window_ns += (now.window_ns - was.window_ns) / n;
	link->buffer_ns += (now.buffer_ns - was.buffer_ns) / n;
}

static int precopy_round(struct sender *s, struct precopy_measured *m, uint64_t *ns, struct err *e)
{
	struct report *rep = s->report;
	bool slowed_down = s->limits.bandwidth_mib;
	const unsigned int reconnects = rep->reconnects;
	uint64_t bytes = sender_bytes(s) - m->queued, begin = now_ns(), arrived, rate_ns;
	struct round_count sent;
	bool again;
	int r = sender_renew_lease(s, e);

	precopy_packs_otherwise(s, m);
	if (!r)
		r = sender_round(s, e);
	*ns = now_ns() - begin;
	rate_ns = *ns;
	/* The time without a link says nothing of the link. */
	again = rep->reconnects != reconnects;
	if (again) {
		rate_ns = now_ns() - s->again_ns;
		bytes = s->again_bytes;
		m->tcp = (struct sock_sent) { 0 };
	}
	/* What has arrived, not what the kernel has taken: that may be 4 MiB a stream more. */
	m->queued = send_streams_queued(s->streams);
	arrived = sender_bytes(s) - m->queued;
	/* A UNIX socket counts what it takes of memory, which may be more than was sent. */
	bytes = arrived > bytes ? arrived - bytes : 0;
	if (r)
		return r;
	precopy_count_tcp(s, m);
	sent = precopy_sent(rep);
	speeds_add(&m->speeds, &(struct speed_round) {
		.bytes = bytes, .ns = rate_ns, .page = round_count_page(&sent),
		/* The count is of all of the round. */
		.pages = s->delta && !again ? sent.data_pages + sent.unchanged_pages : 0,
		.read = again ? 0 : sent.data_pages + sent.zero_pages + sent.same_pages +
				    sent.unchanged_pages + sent.reused_pages,
		.held_back = slowed_down || s->limits.bandwidth_mib,
		.referred = sent.reused_pages > sent.data_pages,
	});
	rep->speed = m->speeds.last;
	s->link_rate = m->speeds.unhindered;
	return 0;
}

int sender_harvest(struct sender *s, uint64_t *ns, struct err *e)
{
	uint64_t begin = now_ns();
	int r = s->source->ops->harvest(s->source, e);

	*ns = now_ns() - begin;
	if (!r)
		r = dirty_rate_check(s->qmp, &s->dirty_rate, false, e);
	/*
	 * A device that is plugged mostly adds a mapping. It is better to fail now than at the
	 * stop, where all of this is checked again.
	 */
	if (!r && s->source->changed)
		r = sender_check_mapped(s, e);
	if (!r && s->source->changed)
		r = sender_check_writers(s, e);
	if (!r && s->source->changed)
		r = source_check_mappers(s->source, "/proc", e);
	return r;
}

/*
 * Zeros are to be read, while others are sent, and are no bytes on the link. Until a round has told
 * how long it takes to read them they count as others.
 */
static void precopy_count_zeros(const struct sender *s, const struct precopy_measured *m,
				struct converge *c)
{
	const double read_ns = m->speeds.read_ns;
	uint64_t zeros = read_ns > 0 ? zeros_dirty(&s->zeros, s->source->map) : 0;

	if (zeros > c->pending)
		zeros = c->pending;
	c->read_ns = zeros ? (uint64_t)((double)c->pending * read_ns) : 0;
	c->pending -= zeros;
}

static int precopy_harvest(struct sender *s, struct precopy_measured *m, struct converge *c,
			   struct err *e)
{
	int r = sender_harvest(s, &m->harvest_ns, e);

	if (!r)
		r = source_pending(&s->vm, s->source, &c->pending, e);
	if (!r)
		precopy_count_zeros(s, m, c);
	return r ? r : qmp_latency_measure(&m->latency, s->qmp, e);
}

static enum verdict precopy_decide(struct sender *s, struct precopy_measured *m, struct converge *c)
{
	/* --bandwidth does not hold back the last round. */
	const struct speed speed = speeds_freely(&m->speeds);
	struct blackout b = {
		.qmp_ns = qmp_latency_median(&m->latency), .rtt_ns = s->rtt_ns,
		.harvest_ns = m->harvest_ns, .rate = m->speeds.link,
		.queued = send_streams_queued(s->streams),
		.ram_pages = s->devstate == &devstate_save ? 0 : s->report->total_pages,
	};
	enum verdict verdict;

	c->fixed_ns = converge_fixed(&b);
	c->lead_ns = converge_lead(&b);
	c->loss = (struct loss) {
		.share = losses_share(&m->losses), .segment = m->tcp.segment,
		.streams = s->report->streams, .rtt_ns = s->rtt_ns,
	};
	c->speed = speed;
	c->round = s->report->round;
	/* The operator may have changed these (godwit set). */
	c->limit_ns = s->limits.downtime_limit_ms * 1000000ull;
	c->ramp_ns = s->limits.downtime_ramp_ms * 1000000ull;
	c->max_rounds = s->limits.max_rounds;
	c->may_owe = s->owing.agreed && s->limits.postcopy >= POSTCOPY_AUTO;
	c->may_slow = s->limits.throttle == THROTTLE_AUTO && s->slowed < THROTTLE_MAX &&
		      !brake_why(&s->brake);
	verdict = converge(c);
	if (verdict == CONVERGE_AGAIN && c->may_slow && c->stalled)
		s->slowed = throttle_next(s->slowed, speed_ns(&speed, (double)c->pending),
					  c->round_ns);
	/* That was of the other way. */
	return precopy_packs_otherwise(s, m) ? CONVERGE_AGAIN : verdict;
}

/* The threads that --throttle slows: vCPUs may have been plugged. */
static int precopy_find_vcpus(struct sender *s, struct err *e)
{
	struct vcpus vcpus;
	int r = vcpus_find(s->qmp, s->vm.pid, &vcpus, e);

	if (!r)
		brake_vcpus(&s->brake, &vcpus);
	return r;
}

/*
 * Does the guest still fit at the destination? A change at either end asks for another round. One
 * round trip answers that, and SWITCHOVER.
 */
static int precopy_check_fit(struct sender *s, struct precopy_measured *m, enum verdict *verdict,
			     struct err *e)
{
	bool changed;
	int r = *verdict == CONVERGE_OWE ? owing_choose(s, e) : 0;

	if (!r)
		r = sender_ask_switchover(s, e);
	if (!r)
		r = sender_check_fit(s, &changed, e);
	/* OWED is long, and the receiver may not read while it sends long answers. */
	if (!r)
		r = sender_end_reuse(s, e);
	s->fits = !r && !changed;
	if (!r && s->owing.chosen && !changed)
		r = owing_early(s, e);
	if (r) {
		/* Rounds that were on their way may be lost. */
		*verdict = CONVERGE_AGAIN;
		m->queued = 0;
		m->tcp = (struct sock_sent) { 0 };
		return connect_again(s, r, e);
	}
	if (changed || precopy_packs_otherwise(s, m))
		*verdict = CONVERGE_AGAIN;
	return 0;
}

static int precopy_not_converged(const struct sender *s, const struct converge *c, struct err *e)
{
	char least[120] = "", lost[120] = "", why[400] = "";

	/* The round trip is the one part that no knob and no faster link makes less. */
	if (s->rtt_ns / 2 > c->allowed_ns / 4)
		snprintf(least, sizeof(least), ", of it %llu ms for half of the link's round trip, which cannot be less",
			 (unsigned long long)(s->rtt_ns / 2000000));
	if (c->loss_ns > c->allowed_ns / 4)
		snprintf(lost, sizeof(lost), ", of it %llu ms as the link loses %.2f %% of the segments",
			 (unsigned long long)(c->loss_ns / 1000000), 100 * c->loss.share);
	if (c->may_owe)
		snprintf(why, sizeof(why), "; no post-copy: without any RAM it would be about %llu ms",
			 (unsigned long long)(c->fixed_ns / 1000000));
	else if (s->limits.postcopy == POSTCOPY_AUTO)
		snprintf(why, sizeof(why), "; no post-copy: %.300s", s->owing.why_not.text);
	return err_set(e, GW_NOT_CONVERGED, ETIME,
		       "after %u rounds %llu MiB are still to be sent, which would stop the guest for about %llu ms%s%s (limit %llu ms; %u rounds in a row did not help): raise --downtime-limit, --downtime-ramp or --max-rounds, use a faster link, or reduce the guest's write load%s",
		       c->round, (unsigned long long)(c->pending * PAGE_BYTES >> 20),
		       (unsigned long long)(c->predicted_ns / 1000000), least, lost,
		       (unsigned long long)(c->allowed_ns / 1000000), c->stalled, why);
}

int precopy(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	struct converge c = { .pending = UINT64_MAX, .best = UINT64_MAX };
	enum verdict verdict = CONVERGE_AGAIN;
	struct precopy_measured m = { .compress = atomic_load(&s->compress) };
	int r;

	rep->phase = "pre-copy";
	r = dirty_rate_begin(s->qmp, &s->dirty_rate, e);
	/* What ends from here on has taken of the log that this switches on. */
	if (!r)
		r = sender_renew_lease(s, e);
	if (!r)
		r = s->source->ops->start(s->source, e);
	if (!r)
		r = source_check_mappers(s->source, "/proc", e);
	if (!r)
		r = precopy_find_vcpus(s, e);
	sender_slow(s);
	while (!r && verdict == CONVERGE_AGAIN && !s->hurries) {
		const unsigned int reconnects = rep->reconnects;

		r = precopy_round(s, &m, &c.round_ns, e);
		c.before = c.pending;
		if (!r)
			r = precopy_harvest(s, &m, &c, e);
		if (r)
			break;
		/* What the guest wrote while there was no link says nothing about progress. */
		if (rep->reconnects != reconnects)
			c.best = UINT64_MAX;
		verdict = precopy_decide(s, &m, &c);
		/* What is still dirty comes after the guest. */
		if (owing_wanted(s))
			verdict = CONVERGE_OWE;
		if (verdict == CONVERGE_OWE)
			converge_owing(&c);
		/*
		 * The guest writes on while both ends are compared again: that is for another
		 * round.
		 */
		if (verdict == CONVERGE_SWITCH || verdict == CONVERGE_OWE)
			r = precopy_check_fit(s, &m, &verdict, e);
		rep->pending_pages = c.pending;
		rep->dirty_rate = c.round_ns ?
				  (uint64_t)((double)c.pending * 1e9 / (double)c.round_ns) : 0;
		rep->predicted_ns = c.predicted_ns;
		rep->link.loss_ns = c.loss_ns;
		rep->limit_ns = c.allowed_ns;
		report_round_left(rep);
		sender_slow(s);
		if (!r && rep->throttle)
			r = precopy_find_vcpus(s, e);
		sender_progress(s);
	}
	if (!r && verdict == CONVERGE_GIVE_UP && !s->hurries)
		return precopy_not_converged(s, &c, e);
	return r;
}
