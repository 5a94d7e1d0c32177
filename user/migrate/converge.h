/* SPDX-License-Identifier: GPL-2.0-only */
/* When to switch over: a pure decision on what the rounds so far have shown. */
#ifndef GODWIT_CONVERGE_H
#define GODWIT_CONVERGE_H

#include <stdint.h>

/* Stop, device state and resume of a QEMU guest, without its RAM; measured 6 + 4 ms, rounded up. */
#define CONVERGE_FIXED_NS 20000000ull

enum verdict { CONVERGE_AGAIN, CONVERGE_SWITCH, CONVERGE_GIVE_UP };

/**
 * struct converge - what is known
 * @limit_ns: the downtime that the user allows
 * @fixed_ns: the part of it that does not depend on RAM: stop, device state, resume, round trips
 * @max_rounds: give up after so many
 * @round: rounds sent so far
 * @rate: bytes per second that the link took, measured over the rounds; 0: not known yet
 * @pending: pages written and not sent yet
 * @before: the same after the round before; UINT64_MAX after the first
 * @polished: rounds that were sent although the limit was met already
 * @predicted_ns: out: downtime if the switchover began now
 */
struct converge {
	uint64_t limit_ns;
	uint64_t fixed_ns;
	unsigned int max_rounds;
	unsigned int round;
	uint64_t rate;
	uint64_t pending;
	uint64_t before;
	unsigned int polished;
	uint64_t predicted_ns;
};

enum verdict converge(struct converge *c);

#endif
