// SPDX-License-Identifier: GPL-2.0-only
/*
 * Draws, below the rounds and on the same axis of time, how the pages of each went: a column whose
 * parts are shares of the pages with data, raw, packed or as references, and above it, where that
 * fits, the ratio of those that are no references.
 */
#include "page/page.h"
#include "report/draw.h"
#include "report/text.h"

#define COLUMNS_HEIGHT	80.0
#define RATIO_WIDTH	30.0	/* the room that a ratio needs */
#define REUSED		(REPORT_CODECS + 1)
#define KINDS		(REUSED + 1)	/* raw first */

static uint64_t codecs_packed(const uint64_t packed_pages[REPORT_CODECS])
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < REPORT_CODECS; i++)
		sum += packed_pages[i];
	return sum;
}

/* How many pages were sent in each way. Return: the sum. */
static uint64_t codecs_kinds(uint64_t data_pages, const uint64_t packed_pages[REPORT_CODECS],
			     uint64_t reused_pages, uint64_t kinds[KINDS])
{
	uint64_t packed = codecs_packed(packed_pages);

	kinds[0] = data_pages > packed ? data_pages - packed : 0;
	for (unsigned int i = 0; i < REPORT_CODECS; i++)
		kinds[i + 1] = packed_pages[i];
	kinds[REUSED] = reused_pages;
	return (data_pages > packed ? data_pages : packed) + reused_pages;
}

static const char *codecs_name(unsigned int kind)
{
	return kind == REUSED ? "reused" : kind ? report_codecs[kind - 1] : "raw";
}

double draw_codecs_height(const struct report *r)
{
	return codecs_packed(r->packed_pages) || r->reused_pages ? 176 : 0;
}

static void draw_codecs_legend(FILE *f, const struct report *r, double y)
{
	uint64_t kinds[KINDS];
	double x = DRAW_LEFT, all;

	all = (double)codecs_kinds(r->data_pages, r->packed_pages, r->reused_pages, kinds);
	for (unsigned int i = 0; i < KINDS; i++) {
		if (!kinds[i])
			continue;
		svg_rect(f, codecs_name(i), x, y - 10, 12, 12);
		if (i == REUSED)
			svg_text(f, "", x + 18, y, "reused %.0f %%, by %.2f MiB of references",
				 100 * (double)kinds[i] / all, bytes_to_mib(r->reused_bytes));
		else
			svg_text(f, "", x + 18, y, "%s %.0f %%", codecs_name(i),
				 100 * (double)kinds[i] / all);
		x += 132;
	}
}

static void draw_codecs_row(FILE *f, const struct report_row *row, const struct axis *time,
			    double top)
{
	double x = axis_at(time, ns_to_seconds(row->start_ns));
	double width = axis_at(time, ns_to_seconds(row->end_ns)) - x;
	double bottom = top + COLUMNS_HEIGHT, all;
	uint64_t kinds[KINDS];

	all = (double)codecs_kinds(row->data_pages, row->packed_pages, row->reused_pages, kinds);
	for (unsigned int i = 0; i < KINDS; i++) {
		double height = all > 0 ? COLUMNS_HEIGHT * (double)kinds[i] / all : 0;

		bottom -= height;
		if (height > 0)
			svg_rect(f, codecs_name(i), x, bottom, width, height);
	}
	if (width >= RATIO_WIDTH && row->page_bytes)
		svg_text(f, "number", x + width / 2, top - 5, "%.2f",
			 report_ratio(row->data_pages, row->page_bytes));
}

void draw_codecs(FILE *f, const struct report *r, double y)
{
	const struct axis time = draw_time_axis(r);
	double top = y + 48;

	if (!draw_codecs_height(r))
		return;
	svg_text(f, "head", DRAW_LEFT, y + 16, "Compression ratio %.2f: %.1f MiB of pages as %.1f MiB",
		 report_ratio(r->data_pages, r->page_bytes),
		 bytes_to_mib(r->data_pages * PAGE_BYTES), bytes_to_mib(r->page_bytes));
	svg_text(f, "tick right", DRAW_LEFT - 8, top - 5, "ratio");
	for (unsigned int i = 0; i < r->nr_rows; i++)
		draw_codecs_row(f, &r->rows[i], &time, top);
	svg_line(f, "axis", time.from, top + COLUMNS_HEIGHT, time.to, top + COLUMNS_HEIGHT);
	draw_codecs_legend(f, r, top + COLUMNS_HEIGHT + 26);
}
