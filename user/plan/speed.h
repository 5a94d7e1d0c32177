/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How fast RAM goes to the destination, as rounds have shown it. Pure.
 *
 * A rate alone says nothing: of packed pages a link carries several times as many, and a CPU that
 * packs as long as it takes makes few bytes a second. So a rate, in bytes on the link, is kept with
 * what a page took there in the same round, and neither is ever used with the other of another
 * round: the quotient, pages per second, is what was measured, whatever was slowest.
 *
 * Where pages that are sent again go in part, or not at all (--delta), a round of many pages may be
 * one of few bytes. Its rate is one of round trips, but what its pages take is the best guess for
 * those of the next: it goes with the rate of the last round that tells. But a link that takes so
 * many of them waits for a CPU that reads and compares them. So it is never more pages per second
 * than any round had.
 */
#ifndef GODWIT_SPEED_H
#define GODWIT_SPEED_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct speed
 * @rate: bytes per second on the link; 0: not known
 * @page: how many of these a page with data takes, on average, which may be less than one; 0: as
 *	many as it has
 */
struct speed {
	uint64_t rate;
	double page;
};

/* Pages with data per second. */
double speed_pages(const struct speed *s);
/*
 * How long so many take. A year stands for any longer time: it fits no limit, and overflows
 * nothing.
 */
uint64_t speed_ns(const struct speed *s, double pages);

/**
 * struct speed_round - what a round has shown
 * @bytes: that have arrived in @ns
 * @page: see struct speed
 * @pages: with --delta, how many with data there were, whole or in part or unchanged; else 0
 * @read: pages that were read for it, whatever was sent of them; 0: nobody knows
 * @held_back: by --bandwidth, all of the round or a part
 * @referred: most pages went as references to what the receiver has: the link waited for CPUs that
 *	hash, and files that are read. The rate is far too low, and any round that follows tells
 *	more: so the first such round tells nothing, if it is short, and not knowing is better
 */
struct speed_round {
	uint64_t bytes;
	uint64_t ns;
	double page;
	uint64_t pages;
	uint64_t read;
	bool held_back;
	bool referred;
};

/**
 * struct speeds - begins with zeros
 * @last: of the last round that tells: a short one measures round trips
 * @freely: of the last one of these that was not held back
 * @changed: pages are packed in another way since the last round: nothing is known yet
 * @short_tells: since then there was no long round, and a short one is better than nothing
 * @skipped: a round of references has told nothing
 * @link: bytes per second that the link carries, for what is no page: of the last long round, or of
 *	the fastest since; a round of few bytes, in which it waits for CPUs, tells nothing of it; 0:
 *	not known
 * @unhindered: the same of the last long round that nothing but the link, or this host, held up:
 *	neither --bandwidth nor references; 0: there was none
 * @most: pages per second of the fastest round of enough @pages to tell; 0: there was none
 * @read_ns: what a page took in the round that read enough of them fastest, with all that was sent
 *	meanwhile; 0: there was none
 */
struct speeds {
	struct speed last, freely;
	uint64_t link, unhindered;
	double most, read_ns;
	bool changed, short_tells, skipped;
};

void speeds_add(struct speeds *s, const struct speed_round *r);
/* From now on pages are packed in another way. */
void speeds_change(struct speeds *s);
/* What to expect of a round that --bandwidth does not hold back. */
struct speed speeds_freely(const struct speeds *s);

#endif
