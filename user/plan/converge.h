/* SPDX-License-Identifier: GPL-2.0-only */
/* Decides when to switch over, from what the rounds so far have shown. Pure. */
#ifndef GODWIT_CONVERGE_H
#define GODWIT_CONVERGE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/loss.h"
#include "plan/speed.h"

/* CONVERGE_OWE: switch over with what is dirty still to come (post-copy) */
enum verdict { CONVERGE_AGAIN, CONVERGE_SWITCH, CONVERGE_OWE, CONVERGE_GIVE_UP };

/**
 * struct blackout - what is known of the part of the downtime that does not depend on dirty pages
 * @qmp_ns: the QMP latency: stopping, saving, loading and resuming a guest are a chain of steps in
 *	main loops like the one that answers QMP
 * @rtt_ns: of the link
 * @harvest_ns: what the last harvest took
 * @rate: bytes per second of the link (struct speeds); 0: not known yet
 * @queued: bytes on their way that the receiver has not got: all that follows comes behind them
 * @ram_pages: of the guest, if QEMU walks all RAM once with the guest stopped; 0: it does not
 */
struct blackout {
	uint64_t qmp_ns;
	uint64_t rtt_ns;
	uint64_t harvest_ns;
	uint64_t rate;
	uint64_t queued;
	uint64_t ram_pages;
};

/* The part of the downtime that does not depend on dirty pages, ns. */
uint64_t converge_fixed(const struct blackout *b);
/* How long the guest still runs in the switchover, while QEMU prepares its migration, ns. */
uint64_t converge_lead(const struct blackout *b);

/**
 * struct converge - the input of the decision, its memory, and what it predicts
 * @limit_ns: the downtime that the user allows
 * @ramp_ns: what the limit may be raised to when rounds do not help; at most @limit_ns: it stays
 * @fixed_ns: converge_fixed(): stop, device state, resume, round trips
 * @read_ns: at least this for RAM: to read all that is dirty, with what is zeros most likely, and
 *	not in @pending. 0: none is
 * @lead_ns: converge_lead(): how long the guest still runs in the switchover
 * @loss: what the link loses
 * @max_rounds: give up after so many rounds
 * @may_owe: what rounds do not help with may follow the guest
 * @may_slow: the guest can still be slowed (further), so rounds may help
 * @round: rounds sent so far
 * @round_ns: what the last round took; 0: not known
 * @speed: of the last round, as the rounds have shown it
 * @pending: dirty pages after the last round
 * @before: the same after the round before; UINT64_MAX after the first
 * @most: the most dirty pages that a round has left: as far as known, all that the guest writes to
 * @best: the fewest dirty pages at the last progress; UINT64_MAX: no round yet
 * @stalled: rounds since the last progress
 * @raised: steps of the ramp so far
 * @polished: rounds that were sent although the limit was met already
 * @allowed_ns: out: the limit as raised so far
 * @loss_ns: out: of @predicted_ns, what the loss of segments is expected to add
 * @predicted_ns: out: downtime if the switchover began now
 */
struct converge {
	uint64_t limit_ns;
	uint64_t ramp_ns;
	uint64_t fixed_ns;
	uint64_t read_ns;
	uint64_t lead_ns;
	struct loss loss;
	unsigned int max_rounds;
	bool may_owe;
	bool may_slow;
	unsigned int round;
	uint64_t round_ns;
	struct speed speed;
	uint64_t pending;
	uint64_t before;
	uint64_t most;
	uint64_t best;
	unsigned int stalled;
	unsigned int raised;
	unsigned int polished;
	uint64_t allowed_ns;
	uint64_t loss_ns;
	uint64_t predicted_ns;
};

/* The caller calls this once after each round. */
enum verdict converge(struct converge *c);
/* The switchover is to begin, and RAM follows the guest: predicts that. */
void converge_owing(struct converge *c);

#endif
