// SPDX-License-Identifier: GPL-2.0-only
/* Draws the parts of the blackout as one bar, and the pages as one bar for each kind. */
#include "page/page.h"
#include "report/draw.h"
#include "report/svg.h"
#include "report/text.h"

#define PARTS		7
#define PAGE_KINDS	5u
#define BAR_HEIGHT	34.0

struct blackout_part {
	const char *class;
	const char *name;
	uint64_t ns;
};

static double blackout_parts(const struct report *r, struct blackout_part parts[PARTS])
{
	const struct blackout_part all[PARTS] = {
		{ "stop", "stop", r->blackout.stop_ns },
		{ "harvest", "harvest", r->blackout.harvest_ns },
		{ "check", "check", r->blackout.check_ns },
		{ "ram", "RAM", r->blackout.ram_ns }, { "verify", "verify", r->blackout.verify_ns },
		{ "save", "save devices", r->blackout.save_ns },
		{ "load", "load and resume", r->blackout.load_ns },
	};
	double ms = 0;

	for (int i = 0; i < PARTS; i++) {
		parts[i] = all[i];
		ms += ns_to_ms(all[i].ns);
	}
	return ms;
}

double draw_blackout_height(const struct report *r)
{
	struct blackout_part parts[PARTS];

	return blackout_parts(r, parts) > 0 ? 150 : 24;
}

static void draw_ms_axis(FILE *f, const struct axis *ms, double y)
{
	svg_line(f, "axis", ms->from, y, ms->to, y);
	for (double v = 0; v <= ms->max * (1 + 1e-9); v += ms->step) {
		svg_line(f, "axis", axis_at(ms, v), y, axis_at(ms, v), y + 5);
		svg_text(f, "tick middle", axis_at(ms, v), y + 20, "%.*f", axis_decimals(ms), v);
	}
	svg_text(f, "tick right", ms->from - 8, y + 20, "ms");
}

static void draw_blackout_title(FILE *f, const struct report *r, double ms, double y)
{
	if (r->downtime_ns)
		svg_text(f, "head", DRAW_LEFT, y,
			 "Blackout: %.1f ms (+/- %.1f ms by the hosts' clocks)",
			 ns_to_ms(r->downtime_ns), ns_to_ms(r->clock_error_ns));
	else if (r->guest_was_paused)
		svg_text(f, "head", DRAW_LEFT, y, "Switchover of a paused guest: %.1f ms", ms);
	else if (ms > 0)
		svg_text(f, "head", DRAW_LEFT, y, "Blackout until the failure: %.1f ms", ms);
	else
		svg_text(f, "head", DRAW_LEFT, y, "Blackout: the guest was not stopped");
}

void draw_blackout(FILE *f, const struct report *r, double y)
{
	struct axis axis = { .from = DRAW_LEFT, .to = DRAW_RIGHT };
	double ms, x = DRAW_LEFT, key = DRAW_LEFT;
	struct blackout_part parts[PARTS];

	ms = blackout_parts(r, parts);
	draw_blackout_title(f, r, ms, y + 16);
	if (ms <= 0)
		return;
	axis_fit_exactly(&axis, ms, 10);
	for (int i = 0; i < PARTS; i++) {
		double width = axis_at(&axis, ns_to_ms(parts[i].ns)) - DRAW_LEFT;

		svg_rect(f, parts[i].class, x, y + 34, width, 40);
		x += width;
		svg_rect(f, parts[i].class, key, y + 117, 12, 12);
		svg_text(f, "", key + 18, y + 128, "%s", parts[i].name);
		svg_text(f, "note", key + 18, y + 146, "%.1f ms", ns_to_ms(parts[i].ns));
		key += i < 5 ? 108 : 140;
	}
	draw_ms_axis(f, &axis, y + 78);
}

/* A bar for what was reused only where there was a file. */
static bool pages_were_reused(const struct report *r)
{
	return r->reused_pages || r->reuse.entries;
}

double draw_pages_height(const struct report *r)
{
	return 24 + BAR_HEIGHT * (PAGE_KINDS - !pages_were_reused(r)) + BAR_HEIGHT;
}

void draw_pages(FILE *f, const struct report *r, double y)
{
	const struct {
		const char *class;
		const char *name;
		uint64_t pages;
	} kinds[PAGE_KINDS] = {
		{ "normal", "sent", r->data_pages }, { "duplicate", "zeros", r->zero_pages },
		{ "same", "of another byte", r->same_pages },
		{ "untouched", "never touched", r->untouched_pages },
		{ "reused", "reused there", r->reused_pages },
	};
	const unsigned int n = PAGE_KINDS - !pages_were_reused(r);
	struct axis pages = { .from = DRAW_LEFT + 110, .to = DRAW_RIGHT - 240 };
	double max = (double)r->total_pages;

	for (unsigned int i = 0; i < n; i++)
		if ((double)kinds[i].pages > max)
			max = (double)kinds[i].pages;
	axis_fit_exactly(&pages, max, 5);
	svg_text(f, "head", DRAW_LEFT, y + 16, "Pages by kind, of %llu (%.0f MiB of RAM)",
		 (unsigned long long)r->total_pages, bytes_to_mib(r->total_pages * PAGE_BYTES));
	for (unsigned int i = 0; i < n; i++) {
		double top = y + 36 + BAR_HEIGHT * i, to = axis_at(&pages, (double)kinds[i].pages);

		svg_text(f, "right", pages.from - 10, top + 17, "%s", kinds[i].name);
		svg_rect(f, kinds[i].class, pages.from, top, to - pages.from, 24);
		svg_text(f, "note", to + 8, top + 17, "%llu pages, %.1f MiB",
			 (unsigned long long)kinds[i].pages,
			 bytes_to_mib(kinds[i].pages * PAGE_BYTES));
	}
}
