/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a link loses, by what TCP had to send again, and what that may add to a downtime. Pure.
 *
 * TCP itself loses packets while it looks for the rate that a link takes, above all in the first
 * round; a last round, which is short, then loses less than rounds did. So the least counts: of all
 * rounds, and of all but the first. What is too little makes a prediction too short by a round trip
 * or two; what is too much would refuse a guest that can move.
 */
#ifndef GODWIT_LOSS_H
#define GODWIT_LOSS_H

#include <stdint.h>

/**
 * struct losses - begins with zeros
 * @sent, @again: segments of all rounds, and those of them that were sent again
 * @later_sent, @later_again: the same without the first round
 */
struct losses {
	uint64_t sent, again;
	uint64_t later_sent, later_again;
};

/* A round has ended. @again: less than 0 if what seemed to be lost before it was only late. */
void losses_add(struct losses *l, uint64_t sent, int64_t again);
/* Of the segments that are sent, how many are lost: 0 to 1/2. 0: none, or nothing is known. */
double losses_share(const struct losses *l);

/**
 * struct loss - of a link, and of the streams over it
 * @share: losses_share()
 * @segment: bytes that one carries; 0: not known
 * @streams: how many send
 * @rtt_ns: the round trip
 */
struct loss {
	double share;
	uint32_t segment;
	unsigned int streams;
	uint64_t rtt_ns;
};

/*
 * How much later all of so many bytes are there than if none were lost, on average. All that is
 * lost once is there a round trip later, what is lost twice two of them. Behind the last segment of
 * a stream, of which each has one, there is nothing to show that it is lost: TCP tries that again a
 * round trip later still. 0 without a loss.
 */
uint64_t loss_ns(const struct loss *l, double bytes);

/*
 * About how many bytes per second the streams carry at most, as TCP sends less after each loss, and
 * the longer the round trip is, the later it is back (Mathis et al. 1997; Linux's cubic is not
 * faster below some Mbit/s a stream, and BBR knows no such limit). UINT64_MAX: nothing is lost.
 */
uint64_t loss_rate(const struct loss *l);

#endif
