// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit is met when the link can send the dirty pages in time, and the rest of the blackout
 * fits beside them. Then a few more rounds may still be worth their time: a short round that leaves
 * clearly fewer dirty pages cuts the downtime at little cost in total time.
 *
 * converge() compares only whole rounds with each other: within a round the number of pages left
 * falls, and jumps with the harvest, whether the migration gets anywhere or not.
 */
#include "page/page.h"
#include "plan/converge.h"

#define POLISH_MAX	3
#define RAMP_STEPS	10
#define OWE_STALLED	2u	/* rounds without progress: one may be chance */

/* Measured with a QEMU of few devices on an idle host: 6 + 4 ms. */
#define DEVICE_NS	10000000ull
/*
 * Steps in QEMU's main loop, one after the other, from STOP at the source to RESUME at the
 * destination, each with one QMP latency: on slow or busy hosts they are nearly all of the
 * blackout.
 */
#define QMP_STEPS	18
#define LEAD_STEPS	20	/* from `migrate` to STOP */
#define DEVICE_BYTES	(256u << 10)	/* of device state, for a guest of a few vCPUs */
#define NS_PER_GIB	75000ull

/* Of bytes that are not packed; 0 where nothing is known of the link. */
static uint64_t converge_transfer_ns(uint64_t bytes, uint64_t rate)
{
	return rate ? speed_ns(&(struct speed) { .rate = rate, .page = 1 }, (double)bytes) : 0;
}

uint64_t converge_fixed(const struct blackout *b)
{
	/* Nothing is waited for: half a round trip is the way of the last byte. */
	return DEVICE_NS + QMP_STEPS * b->qmp_ns + b->rtt_ns / 2 + b->harvest_ns +
	       converge_transfer_ns(DEVICE_BYTES, b->rate) +
	       b->ram_pages * NS_PER_GIB / ((1u << 30) / PAGE_BYTES);
}

uint64_t converge_lead(const struct blackout *b)
{
	/*
	 * The receiver answers SWITCHOVER while the guest runs, when all that came before is in
	 * place.
	 */
	return LEAD_STEPS * b->qmp_ns + b->rtt_ns +
	       converge_transfer_ns(b->queued, b->rate);
}

/* The guest goes on writing as fast as in the last round, but to no more than @most pages. */
static double converge_pages_at_stop(const struct converge *c)
{
	double written = (double)c->pending * (double)c->lead_ns;
	double more = c->round_ns ? written / (double)c->round_ns : 0;
	double room = c->most > c->pending ? (double)(c->most - c->pending) : 0;

	return (double)c->pending + (more < room ? more : room);
}

static void converge_predict(struct converge *c, uint64_t ram_ns, double pages)
{
	double page = c->speed.page > 0 ? c->speed.page : PAGE_BYTES;

	c->loss_ns = loss_ns(&c->loss, pages * page + DEVICE_BYTES);
	c->predicted_ns = ram_ns + c->fixed_ns + c->loss_ns;
}

/*
 * Does the downtime fit, as far as it is for this limit to say? What the device state loses is a
 * chance that no round makes less, nor does post-copy: to wait for more of them, or to refuse the
 * guest, would be of no use.
 */
static bool converge_fits(const struct converge *c)
{
	return c->predicted_ns - loss_ns(&c->loss, DEVICE_BYTES) <= c->allowed_ns;
}

void converge_owing(struct converge *c)
{
	converge_predict(c, 0, 0);
}

/*
 * Progress is a tenth fewer dirty pages than at the last progress, so that rounds with slow
 * progress add up to some.
 */
static void converge_compare(struct converge *c)
{
	if (c->pending < c->best / 10 * 9) {
		c->best = c->pending;
		c->stalled = 0;
	} else {
		c->stalled++;
	}
}

static void converge_allow(struct converge *c)
{
	uint64_t room = c->ramp_ns > c->limit_ns ? c->ramp_ns - c->limit_ns : 0;

	c->allowed_ns = c->limit_ns + room / RAMP_STEPS * c->raised;
	/* In the last round all steps are taken at once: without them the migration would fail. */
	if (c->raised == RAMP_STEPS || c->round >= c->max_rounds)
		c->allowed_ns = c->limit_ns + room;
}

/*
 * The limit is not met. Rounds that make no progress only cost the guest's network and time, once
 * the limit cannot be raised any more.
 */
static enum verdict converge_not(const struct converge *c)
{
	const bool raised = c->raised == RAMP_STEPS || c->ramp_ns <= c->limit_ns;

	/* The rest of the blackout stays, and may be too long for the limit by itself. */
	if (c->may_owe && c->fixed_ns <= c->allowed_ns &&
	    (c->round >= c->max_rounds || (c->stalled >= OWE_STALLED && raised && !c->may_slow)))
		return CONVERGE_OWE;
	return c->round >= c->max_rounds ? CONVERGE_GIVE_UP : CONVERGE_AGAIN;
}

enum verdict converge(struct converge *c)
{
	uint64_t ram_ns;
	double pages;

	if (c->pending > c->most)
		c->most = c->pending;
	pages = converge_pages_at_stop(c);
	ram_ns = speed_ns(&c->speed, pages);
	if (ram_ns < c->read_ns)
		ram_ns = c->read_ns;
	converge_predict(c, ram_ns, pages);
	converge_compare(c);
	converge_allow(c);
	if (!converge_fits(c) && c->stalled && c->raised < RAMP_STEPS && !c->may_slow) {
		c->raised++;
		converge_allow(c);
	}
	if (!converge_fits(c))
		return converge_not(c);
	if (c->round >= c->max_rounds || c->polished >= POLISH_MAX)
		return CONVERGE_SWITCH;
	/* RAM takes far less than the fixed part, or the guest's working set is reached. */
	if (ram_ns < c->fixed_ns / 4 || c->pending > c->before / 10 * 7)
		return CONVERGE_SWITCH;
	c->polished++;
	return CONVERGE_AGAIN;
}
