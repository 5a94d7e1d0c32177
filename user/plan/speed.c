// SPDX-License-Identifier: GPL-2.0-only
#include "page/page.h"
#include "plan/speed.h"

#define TELLING_BYTES	(4u << 20)
#define YEAR_S		31536000ull

double speed_pages(const struct speed *s)
{
	return (double)s->rate / (s->page > 0 ? s->page : PAGE_BYTES);
}

uint64_t speed_ns(const struct speed *s, double pages)
{
	double seconds = pages / (s->rate ? speed_pages(s) : 1e-9);

	return seconds < YEAR_S ? (uint64_t)(seconds * 1e9) : YEAR_S * 1000000000ull;
}

void speeds_add(struct speeds *s, const struct speed_round *r)
{
	const bool is_long = r->bytes > TELLING_BYTES;

	/* Until a round has told: pages that do not get smaller. */
	if (s->changed)
		s->last.page = 0;
	s->changed = false;
	/* Of the first round there is nothing better. */
	if (!r->ns || !(is_long || !s->last.rate || (s->short_tells && r->bytes && r->page > 0)))
		return;
	if (is_long)
		s->short_tells = false;
	s->last = (struct speed) {
		.rate = (uint64_t)((double)r->bytes * 1e9 / (double)r->ns), .page = r->page,
	};
	if (!r->held_back)
		s->freely = s->last;
}

void speeds_change(struct speeds *s)
{
	s->freely = (struct speed) { .rate = 0 };
	s->changed = s->short_tells = true;
}

struct speed speeds_freely(const struct speeds *s)
{
	return speed_pages(&s->freely) > speed_pages(&s->last) ? s->freely : s->last;
}
