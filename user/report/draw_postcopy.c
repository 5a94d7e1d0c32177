// SPDX-License-Identifier: GPL-2.0-only
/* Draws how long a guest waited for pages that came after it. */
#include "page/page.h"
#include "report/draw.h"
#include "report/svg.h"
#include "report/text.h"

#define TIMES	3u

double draw_postcopy_height(const struct report *r)
{
	return r->postcopy.owed_pages ? 60 + 34 * TIMES : 0;
}

void draw_postcopy(FILE *f, const struct report *r, double y)
{
	const struct {
		const char *name;
		uint64_t ns;
	} times[TIMES] = {
		{ "mean", r->postcopy.mean_ns }, { "99 % at most", r->postcopy.p99_ns },
		{ "slowest", r->postcopy.worst_ns },
	};
	struct axis ms = { .from = DRAW_LEFT + 110, .to = DRAW_RIGHT - 240 };

	if (!r->postcopy.owed_pages)
		return;
	axis_fit_exactly(&ms, r->postcopy.worst_ns ? ns_to_ms(r->postcopy.worst_ns) : 1, 5);
	svg_text(f, "head", DRAW_LEFT, y + 16,
		 "Post-copy: %.1f MiB came after the guest, in %.1f s; it waited for %llu pages, and %llu requests took:",
		 bytes_to_mib(r->postcopy.owed_pages * PAGE_BYTES),
		 ns_to_seconds(r->postcopy.time_ns), (unsigned long long)r->postcopy.faults,
		 (unsigned long long)r->postcopy.asked);
	for (unsigned int i = 0; i < TIMES; i++) {
		double top = y + 36 + 34 * i, to = axis_at(&ms, ns_to_ms(times[i].ns));

		svg_text(f, "right", ms.from - 10, top + 17, "%s", times[i].name);
		svg_rect(f, "load", ms.from, top, to - ms.from, 24);
		svg_text(f, "note", to + 8, top + 17, "%.2f ms", ns_to_ms(times[i].ns));
	}
}
