// SPDX-License-Identifier: GPL-2.0-only
/* Draws MiB/s over seconds. A round is a step: its values are means over its time. */
#include "page/page.h"
#include "report/draw.h"
#include "report/svg.h"
#include "report/text.h"

#define NUMBER_WIDTH	20.0	/* the room that a round's number needs */

/* The values that are drawn of a row, in MiB/s. */
static double row_sent(const struct report_row *row)
{
	return report_row_sent(row) / (1 << 20);
}

static double row_dirty(const struct report_row *row)
{
	return bytes_to_mib(row->dirty_rate * PAGE_BYTES);
}

static double row_link_rate(const struct report_row *row)
{
	return bytes_to_mib(row->rate);
}

struct axis draw_time_axis(const struct report *r)
{
	struct axis time = { .from = DRAW_LEFT, .to = DRAW_RIGHT };
	uint64_t end = r->total_ns;

	for (unsigned int i = 0; i < r->nr_rows; i++)
		if (r->rows[i].end_ns > end)
			end = r->rows[i].end_ns;
	axis_fit_exactly(&time, ns_to_seconds(end), 10);
	return time;
}

static void draw_fit_axes(const struct report *r, double y, struct axis *time, struct axis *rate)
{
	double max = 0;

	for (unsigned int i = 0; i < r->nr_rows; i++) {
		const struct report_row *row = &r->rows[i];
		double values[] = { row_sent(row), row_dirty(row), row_link_rate(row) };

		for (int v = 0; v < 3; v++)
			if (values[v] > max)
				max = values[v];
	}
	*time = draw_time_axis(r);
	*rate = (struct axis) { .from = y + 310, .to = y + 62 };
	axis_fit(rate, max, 6);
}

static void draw_axes(FILE *f, const struct axis *time, const struct axis *rate)
{
	for (double v = 0; v <= rate->max * (1 + 1e-9); v += rate->step) {
		double at = axis_at(rate, v);

		svg_line(f, v > 0 ? "grid" : "axis", time->from, at, time->to, at);
		svg_text(f, "tick right", time->from - 8, at + 4, "%.*f", axis_decimals(rate), v);
	}
	for (double v = 0; v <= time->max * (1 + 1e-9); v += time->step) {
		double at = axis_at(time, v);

		svg_line(f, "axis", at, rate->from, at, rate->from + 5);
		svg_text(f, "tick middle", at, rate->from + 20, "%.*f", axis_decimals(time), v);
	}
	svg_text(f, "tick right", time->from - 8, rate->to - 12, "MiB/s");
	svg_text(f, "tick middle", (time->from + time->to) / 2, rate->from + 40, "seconds since the migration began");
}

/* Every other round has a grey background, and each its number above where that fits. */
static void draw_numbers(FILE *f, const struct report *r, const struct axis *time,
			 const struct axis *rate)
{
	for (unsigned int i = 0; i < r->nr_rows; i++) {
		const struct report_row *row = &r->rows[i];
		double x = axis_at(time, ns_to_seconds(row->start_ns));
		double width = axis_at(time, ns_to_seconds(row->end_ns)) - x;

		if (i % 2 == 0)
			svg_rect(f, "stripe", x, rate->to, width, rate->from - rate->to);
		if (width < NUMBER_WIDTH)
			continue;
		if (row->count == 1)
			svg_text(f, "number", x + width / 2, rate->to - 5, "%u", row->first);
		else if (width > 2 * NUMBER_WIDTH)
			svg_text(f, "number", x + width / 2, rate->to - 5, "%u-%u", row->first,
				 row->first + row->count - 1);
	}
}

static void draw_blackout_band(FILE *f, const struct report *r, const struct axis *time,
			       const struct axis *rate)
{
	double x = axis_at(time, ns_to_seconds(r->total_ns - r->downtime_ns)), width = time->to - x;

	if (!r->downtime_ns || r->downtime_ns > r->total_ns)
		return;
	if (width < 1.5) {
		x += width - 1.5;
		width = 1.5;
	}
	svg_rect(f, "out", x, rate->to, width, rate->from - rate->to);
}

static void draw_sent(FILE *f, const struct report *r, const struct axis *time,
		      const struct axis *rate)
{
	for (unsigned int i = 0; i < r->nr_rows; i++) {
		double x = axis_at(time, ns_to_seconds(r->rows[i].start_ns));
		double end = axis_at(time, ns_to_seconds(r->rows[i].end_ns));
		double top = axis_at(rate, row_sent(&r->rows[i]));

		svg_rect(f, "sent", x, top, end - x, rate->from - top);
	}
}

/* No harvest has followed the round: it failed, or it is the last. Late ones are not measured. */
static bool row_is_open(const struct report_row *row)
{
	return row->blackout || row->late || (!row->dirty_rate && !row->predicted_ns);
}

/* Only while the guest runs: in the blackout it writes nothing, and the link is not measured. */
static void draw_steps(FILE *f, const char *class, const struct report *r,
		       double (*value)(const struct report_row *row), const struct axis *time,
		       const struct axis *rate)
{
	unsigned int n = 0;

	fprintf(f, "<path class=\"%s\" d=\"", class);
	for (unsigned int i = 0; i < r->nr_rows; i++) {
		const struct report_row *row = &r->rows[i];

		if (row_is_open(row))
			continue;
		fprintf(f, "%s%.2f %.2fH%.2f", n++ ? "L" : "M",
			axis_at(time, ns_to_seconds(row->start_ns)), axis_at(rate, value(row)),
			axis_at(time, ns_to_seconds(row->end_ns)));
	}
	fprintf(f, "%s\"/>\n", n ? "" : "M0 0");
}

static void draw_legend(FILE *f, const struct report *r, double y)
{
	double x = DRAW_LEFT + 320;

	svg_rect(f, "sent", x, y - 10, 22, 11);
	svg_text(f, "", x + 28, y, "sent");
	if (!r->nr_rows || row_is_open(&r->rows[0]))
		return;
	svg_line(f, "dirty", x + 84, y - 4, x + 106, y - 4);
	svg_text(f, "", x + 112, y, "guest writes");
	svg_line(f, "link", x + 272, y - 4, x + 294, y - 4);
	svg_text(f, "", x + 300, y, "link rate");
	if (!r->downtime_ns)
		return;
	svg_rect(f, "out", x + 390, y - 10, 22, 11);
	svg_text(f, "", x + 418, y, "guest is stopped");
}

void draw_rounds(FILE *f, const struct report *r, double y)
{
	struct axis time, rate;

	svg_text(f, "head", DRAW_LEFT, y + 16, "Rounds over time");
	draw_legend(f, r, y + 16);
	draw_fit_axes(r, y, &time, &rate);
	draw_numbers(f, r, &time, &rate);
	draw_axes(f, &time, &rate);
	draw_sent(f, r, &time, &rate);
	draw_blackout_band(f, r, &time, &rate);
	draw_steps(f, "link", r, row_link_rate, &time, &rate);
	draw_steps(f, "dirty", r, row_dirty, &time, &rate);
}
