/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How fast RAM goes to the destination, as rounds have shown it. Pure.
 *
 * A rate alone says nothing: of packed pages a link carries several times as many, and a CPU that
 * packs as long as it takes makes few bytes a second. So a rate, in bytes on the link, is kept with
 * what a page took there in the same round, and neither is ever used with the other of another
 * round: the quotient, pages per second, is what was measured, whatever was slowest.
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
 * @held_back: by --bandwidth, all of the round or a part
 */
struct speed_round {
	uint64_t bytes;
	uint64_t ns;
	double page;
	bool held_back;
};

/**
 * struct speeds - begins with zeros
 * @last: of the last round that tells: a short one measures round trips
 * @freely: of the last one of these that was not held back
 * @changed: pages are packed in another way since the last round: nothing is known yet
 * @short_tells: since then there was no long round, and a short one is better than nothing
 */
struct speeds {
	struct speed last, freely;
	bool changed, short_tells;
};

void speeds_add(struct speeds *s, const struct speed_round *r);
/* From now on pages are packed in another way. */
void speeds_change(struct speeds *s);
/* What to expect of a round that --bandwidth does not hold back. */
struct speed speeds_freely(const struct speeds *s);

#endif
