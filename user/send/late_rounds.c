// SPDX-License-Identifier: GPL-2.0-only
/*
 * Late rounds: in migrate mode QEMU sends its private RAM between `migrate` and the guest's stop,
 * which takes from milliseconds to more than a second, and the guest goes on writing. So rounds go
 * on beside it, and the last round has only what was written in the last moments.
 *
 * QEMU stops the guest when it likes, so a late round may be cut at any moment, and nothing depends
 * on it:
 *
 *  - It waits for nothing but a harvest, which a stop may have to wait for too: where one takes
 *    more than a tenth of the downtime limit, or fails, there are no more late rounds. The main
 *    thread passes on what QEMU writes, and looks in between whether the streams have ended the
 *    round. A round whose ROUND would have to wait for an ACK does not begin. On a long link none
 *    does: its bytes would still be on their way when the last round is to follow on the same
 *    streams.
 *  - When the guest stops, nothing is under way that the guest is likely to have written again: hot
 *    pages are left to the last round. Huge pages that another process writes are all hot; where
 *    they go as what has changed, they are sent.
 *  - The last round waits for the pieces that the streams have taken, which are of one frame, and
 *    for no rate limit: with --bandwidth there are no late rounds. One that the operator sets now
 *    cuts the round under way.
 *  - What is cut, or never sent, stays dirty, and the last harvest adds to that. So no late round
 *    is as good as any, and none has the checks of pre-copy: a device that appears, a mapping that
 *    changes, or a measurement of QEMU's that takes bits of the log is found with the guest at
 *    rest, by checks that look back to the last round of pre-copy.
 *  - They decide nothing: whether the downtime fits was decided with all that was dirty then and
 *    what the guest writes until its stop, and late rounds make that less. So neither --max-rounds
 *    nor a limit counts them.
 *  - What the kernel still has of them at the stop goes before the last round, and the prediction
 *    does not have it. Without them the last round would have those pages. It has the same page
 *    again if the guest wrote it again, which hot pages are not to be, and no more of these than
 *    one round: another does not begin before the receiver has acknowledged those before, or the
 *    link has carried what is queued, QEMU's stream included, but for a tenth of the downtime
 *    limit.
 *  - No page is referred to (--reuse): what the receiver refuses would have to come back before the
 *    last round.
 *  - The receiver takes rounds after SWITCHOVER as before, and acknowledges them, but cares for no
 *    ACK that fails, as DEVICE_END may be behind that round already (WIRE_LATE). It takes none if
 *    it has emptied RAM for post-copy, which needs none, as what is dirty follows the guest.
 *  - A link that is lost now ends the migration, as QEMU's stream cannot be sent again.
 *
 * The dirty log is cleared under a lease, which QEMU's answer that it has no migration renews
 * (dirty/lease.h). Now it has ours: foreign_ours_goes_on().
 */
#include "base/clock.h"
#include "send/sender_internal.h"

/* Each harvest has the guest's next writes fault: so often, and for a fifth of the time at most. */
#define LATE_EVERY_NS	50000000ull
#define LATE_RESTS	4u
#define LATE_SHARE	10u	/* of the downtime limit, for a harvest, or for what is queued */
#define LATE_NEVER	UINT64_MAX

static uint64_t late_rounds_share_ns(const struct sender *s)
{
	return s->limits.downtime_limit_ms * (1000000ull / LATE_SHARE);
}

/* The rounds before, or as good as that, as far as the link's speed is known. */
static bool late_rounds_have_arrived(const struct sender *s)
{
	const double rate = (double)s->report->speed.rate;
	const double share_s = (double)late_rounds_share_ns(s) / 1e9;

	return rate <= 0 || atomic_load(&s->stripes.acked) == s->announced ||
	       (double)send_streams_queued(s->streams) <= rate * share_s;
}

/* Whatever may change meanwhile. */
static bool late_rounds_are_over(const struct sender *s)
{
	return s->hurries || s->limits.bandwidth_mib || s->stop_realtime_ns;
}

static bool late_rounds_may(const struct sender *s)
{
	return s->features & WIRE_LATE && !s->o->pause && !s->owing.chosen && !s->spread &&
	       !late_rounds_are_over(s) && sender_may_announce(s) && late_rounds_have_arrived(s);
}

/* What is dirty; hot pages are held back then. Return: 1: there are others, for a round. */
static int late_rounds_harvest(struct sender *s, bool first, struct err *e)
{
	struct report *rep = s->report;
	uint64_t began_ns = now_ns(), took_ns, all = 0, pages = 0;
	struct hot_pages *hot = sender_hot_pages(s, ROUND_LATE);
	int r = first ? 0 : s->source->ops->harvest(s->source, e);

	if (!r)
		r = source_pending(&s->vm, s->source, &all, e);
	if (!r && hot)
		hot_pages_hold(hot, s->source);
	if (!r)
		r = source_pending(&s->vm, s->source, &pages, e);
	if (r && hot)
		hot_pages_release(hot, s->source);
	if (r)
		return r;
	rep->pending_pages = all;
	/* Of the round before. */
	if (!first)
		report_round_left(rep);
	if (!pages && hot)
		hot_pages_release(hot, s->source);
	took_ns = now_ns() - began_ns;
	s->late_ns = now_ns() + LATE_RESTS * took_ns;
	if (s->late_ns < began_ns + LATE_EVERY_NS)
		s->late_ns = began_ns + LATE_EVERY_NS;
	if (took_ns > late_rounds_share_ns(s))
		s->late_ns = LATE_NEVER;
	return pages > 0;
}

static int late_rounds_end_one(struct sender *s, struct err *e)
{
	int r = sender_round_end(s, e);

	if (r)
		return r;
	s->report->pending_pages -= s->taken < s->report->pending_pages ? s->taken
								      : s->report->pending_pages;
	report_round_left(s->report);
	return 0;
}

/* --bandwidth may have come meanwhile, and does not slow down what the guest is to wait for. */
static void late_rounds_cut(struct sender *s)
{
	pace_set(&s->pace, 0);
	round_cut(s->round);
}

int late_rounds_step(struct sender *s, uint64_t since_ns, struct err *e)
{
	struct err ignored = { 0 };
	bool first = !s->late_ns;
	int r = 0;

	if (s->lease)
		foreign_ours_goes_on(&s->foreign, since_ns);
	if (s->round && late_rounds_are_over(s))
		late_rounds_cut(s);
	if (s->round && !send_streams_round_is_over(s->streams))
		return 0;
	if (s->round)
		r = late_rounds_end_one(s, e);
	if (r || now_ns() < s->late_ns || !late_rounds_may(s))
		return r;
	/* The first one has what the last harvest of pre-copy has found. */
	r = late_rounds_harvest(s, first, &ignored);
	if (r > 0) {
		sender_round_begin(s, ROUND_LATE);
		s->report->rows[s->report->nr_rows - 1].late = true;
		/* Where the link is not what QEMU waits for, nothing else shows it. */
		sender_progress(s);
	} else if (r < 0) {
		/* What it has found is marked. With the guest at rest there is another. */
		s->late_ns = LATE_NEVER;
	}
	return 0;
}

int late_rounds_end(struct sender *s, struct err *e)
{
	/* The next migration that QEMU completes is ours. */
	s->foreign.asked_ns = 0;
	if (!s->round)
		return 0;
	late_rounds_cut(s);
	return late_rounds_end_one(s, e);
}
