// SPDX-License-Identifier: GPL-2.0-only
#include "page/page.h"
#include "plan/speed.h"

#define TELLING_BYTES	(4u << 20)
#define TELLING_PAGES	(TELLING_BYTES / PAGE_BYTES)
#define LINK_BYTES	(256u << 10)
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

/* No more pages per second than in any round. */
static void speeds_bound(const struct speeds *s, struct speed *speed)
{
	if (s->most > 0 && speed_pages(speed) > s->most)
		speed->page = (double)speed->rate / s->most;
}

/* Of a round with --delta: do its pages tell something? */
static bool speeds_note_pages(struct speeds *s, const struct speed_round *r)
{
	const double fast = (double)r->pages * 1e9 / (double)r->ns;

	if (r->pages < TELLING_PAGES || r->referred)
		return false;
	if (fast > s->most)
		s->most = fast;
	return true;
}

/* A link carries at least what it has carried. */
static void speeds_note_link(struct speeds *s, const struct speed_round *r, bool is_long)
{
	const uint64_t rate = (uint64_t)((double)r->bytes * 1e9 / (double)r->ns);

	if (r->bytes < LINK_BYTES || (r->referred && !is_long))
		return;
	if (rate > s->link || (is_long && !r->held_back))
		s->link = rate;
	if (is_long && !r->held_back && !r->referred)
		s->unhindered = rate;
}

static void speeds_note_reading(struct speeds *s, const struct speed_round *r)
{
	const double ns = r->read ? (double)r->ns / (double)r->read : 0;

	if (r->read >= TELLING_PAGES && (s->read_ns <= 0 || ns < s->read_ns))
		s->read_ns = ns;
}

void speeds_add(struct speeds *s, const struct speed_round *r)
{
	const bool is_long = r->bytes > TELLING_BYTES;
	bool many, tells;

	/* Until a round has told: pages that do not get smaller. */
	if (s->changed)
		s->last.page = 0;
	s->changed = false;
	if (!r->ns)
		return;
	speeds_note_link(s, r, is_long);
	speeds_note_reading(s, r);
	if (r->referred && !is_long && !s->last.rate && !s->skipped) {
		s->skipped = s->short_tells = true;
		return;
	}
	many = speeds_note_pages(s, r);
	/* Of the first round there is nothing better. */
	tells = is_long || !s->last.rate || (s->short_tells && r->bytes && r->page > 0);
	if (tells)
		s->last = (struct speed) {
			.rate = (uint64_t)((double)r->bytes * 1e9 / (double)r->ns), .page = r->page,
		};
	else if (many)
		s->last.page = r->page;
	else
		return;
	if (is_long || r->referred)
		s->short_tells = r->referred;
	speeds_bound(s, &s->last);
	if (!r->held_back)
		s->freely = s->last;
}

void speeds_change(struct speeds *s)
{
	s->freely = (struct speed) { .rate = 0 };
	s->most = 0;
	s->changed = s->short_tells = true;
}

struct speed speeds_freely(const struct speeds *s)
{
	return speed_pages(&s->freely) > speed_pages(&s->last) ? s->freely : s->last;
}
