/* SPDX-License-Identifier: GPL-2.0-only */
/* When to switch over: a pure decision on what the rounds so far have shown. */
#ifndef GODWIT_CONVERGE_H
#define GODWIT_CONVERGE_H

#include <stdint.h>

enum verdict { CONVERGE_AGAIN, CONVERGE_SWITCH, CONVERGE_GIVE_UP };

/**
 * struct blackout - what is known of the part of the downtime that does not depend on how much is pending
 * @qmp_ns: what a QMP command takes that does nothing: stopping, saving, loading and resuming a guest are a chain of steps
 * in main loops like the one that answered
 * @rtt_ns: of the link
 * @harvest_ns: what the harvest before took
 * @rate: bytes per second of the link; 0: not known yet
 * @ram_pages: of the guest: QEMU walks all of it once with the guest stopped; 0: it does not
 */
struct blackout {
	uint64_t qmp_ns;
	uint64_t rtt_ns;
	uint64_t harvest_ns;
	uint64_t rate;
	uint64_t ram_pages;
};

/* Nanoseconds. */
uint64_t converge_fixed(const struct blackout *b);
/* How long the guest still runs when the switchover has begun: QEMU sets its migration up and sends its private RAM. */
uint64_t converge_lead(const struct blackout *b);

/**
 * struct converge - what is known
 * @limit_ns: the downtime that the user allows
 * @ramp_ns: what it may be raised to when rounds do not help; no more than @limit_ns: it stays
 * @fixed_ns: the part of it that does not depend on RAM: stop, device state, resume, round trips
 * @lead_ns: the guest runs on for so long
 * @max_rounds: give up after so many
 * @round: rounds sent so far
 * @round_ns: what the last one took; 0: not known
 * @rate: bytes per second that the link took, measured over the rounds; 0: not known yet
 * @pending: pages written and not sent yet
 * @before: the same after the round before; UINT64_MAX after the first
 * @most: the most that a round has left: what the guest writes to, as far as it shows
 * @best: the least that a round has left, up to those that did not help; UINT64_MAX after none
 * @stalled: rounds, one after the other, that left nearly as much as @best
 * @raised: steps of the ramp so far
 * @polished: rounds that were sent although the limit was met already
 * @allowed_ns: out: the limit as raised so far
 * @predicted_ns: out: downtime if the switchover began now
 */
struct converge {
	uint64_t limit_ns;
	uint64_t ramp_ns;
	uint64_t fixed_ns;
	uint64_t lead_ns;
	unsigned int max_rounds;
	unsigned int round;
	uint64_t round_ns;
	uint64_t rate;
	uint64_t pending;
	uint64_t before;
	uint64_t most;
	uint64_t best;
	unsigned int stalled;
	unsigned int raised;
	unsigned int polished;
	uint64_t allowed_ns;
	uint64_t predicted_ns;
};

/* Once after each round. */
enum verdict converge(struct converge *c);

#endif
