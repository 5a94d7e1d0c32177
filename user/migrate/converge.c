// SPDX-License-Identifier: GPL-2.0-only
/*
 * The limit is met when what is pending fits through the link in time, and what else there is to the blackout beside it.
 * Then a few more rounds may still be worth it: one that is short and leaves clearly less behind buys downtime for little
 * total time.
 *
 * Only whole rounds are compared with each other: within one, what is left falls and jumps with the harvest, whether the
 * migration gets anywhere or not.
 */
#include "migrate/converge.h"
#include "page/page.h"

#define SEC_NS		1000000000ull
#define POLISH_MAX	3
#define RAMP_STEPS	10
#define YEAR_S		31536000ull

/* A QEMU with few devices, on a host with nothing else to do, measured: 6 + 4 ms. */
#define DEVICE_NS	10000000ull
/*
 * Main loop turns one after the other, from STOP to RESUME at the other end: on hosts that are slow or busy they are
 * nearly all of it.
 */
#define TURNS		18
#define LEAD_TURNS	20	/* from `migrate` to STOP */
/* Round trips: the end of the last round with its ACK, the device state, RESUMED. */
#define TRIPS		2
#define DEVICE_BYTES	(256u << 10)	/* of device state, for a guest of a few vCPUs */
#define NS_PER_GIB	75000ull

static uint64_t transfer_ns(double bytes, uint64_t rate)
{
	double seconds = bytes / (rate ? (double)rate : 1e-9);

	/* A year stands for all that is longer: it fits no limit, and overflows nothing. */
	return seconds < YEAR_S ? (uint64_t)(seconds * 1e9) : YEAR_S * SEC_NS;
}

uint64_t converge_fixed(const struct blackout *b)
{
	uint64_t device_ns = b->rate ? transfer_ns(DEVICE_BYTES, b->rate) : 0;

	return DEVICE_NS + TURNS * b->qmp_ns + TRIPS * b->rtt_ns + b->harvest_ns + device_ns +
	       b->ram_pages * NS_PER_GIB / ((1u << 30) / PAGE_BYTES);
}

uint64_t converge_lead(const struct blackout *b)
{
	return LEAD_TURNS * b->qmp_ns;
}

/* Written as fast as in the last round, but to no more pages than the guest writes to. */
static double pages_at_stop(const struct converge *c)
{
	double more = c->round_ns ? (double)c->pending * (double)c->lead_ns / (double)c->round_ns : 0;
	double room = c->most > c->pending ? (double)(c->most - c->pending) : 0;

	return (double)c->pending + (more < room ? more : room);
}

/* A tenth less is progress; all that is less counts from the last progress, so that slow progress is some, too. */
static void compare(struct converge *c)
{
	if (c->pending < c->best / 10 * 9) {
		c->best = c->pending;
		c->stalled = 0;
	} else {
		c->stalled++;
	}
}

static void allow(struct converge *c)
{
	uint64_t room = c->ramp_ns > c->limit_ns ? c->ramp_ns - c->limit_ns : 0;

	c->allowed_ns = c->limit_ns + room / RAMP_STEPS * c->raised;
	/* Nothing is lost by the last steps at once, when it would be given up otherwise. */
	if (c->raised == RAMP_STEPS || c->round >= c->max_rounds)
		c->allowed_ns = c->limit_ns + room;
}

enum verdict converge(struct converge *c)
{
	uint64_t ram_ns;

	if (c->pending > c->most)
		c->most = c->pending;
	ram_ns = transfer_ns(pages_at_stop(c) * PAGE_BYTES, c->rate);
	c->predicted_ns = ram_ns + c->fixed_ns;
	compare(c);
	allow(c);
	if (c->predicted_ns > c->allowed_ns && c->stalled && c->raised < RAMP_STEPS) {
		c->raised++;
		allow(c);
	}
	if (c->predicted_ns > c->allowed_ns)
		return c->round >= c->max_rounds ? CONVERGE_GIVE_UP : CONVERGE_AGAIN;
	if (c->round >= c->max_rounds || c->polished >= POLISH_MAX)
		return CONVERGE_SWITCH;
	/* Less than the fixed part, or not falling any more: the guest's working set is reached. */
	if (ram_ns < c->fixed_ns / 4 || c->pending > c->before / 10 * 7)
		return CONVERGE_SWITCH;
	c->polished++;
	return CONVERGE_AGAIN;
}
