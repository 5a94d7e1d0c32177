// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "page/page.h"
#include "report/draw.h"
#include "report/svg.h"
#include "report/text.h"

#define LINE		118u	/* characters of a message that fit into one line */
#define MESSAGE_LINES	4u
#define LINE_HEIGHT	18.0
#define MARGIN		24.0
#define TITLE_HEIGHT	98.0

/* The length of the next line of a message: to the last blank that fits. */
static size_t draw_line_length(const char *text)
{
	size_t n = strlen(text);

	if (n <= LINE)
		return n;
	for (n = LINE; n > LINE / 2; n--)
		if (text[n] == ' ')
			return n;
	/* No blank: cut the line, but not within a character of UTF-8. */
	for (n = LINE; ((unsigned char)text[n] & 0xc0) == 0x80; n--)
		;
	return n;
}

static void draw_title(FILE *f, const struct report *r, const char *summary)
{
	char expected[64] = "", tls[64] = "";

	if (r->predicted_ns)
		snprintf(expected, sizeof(expected), "; expected downtime %.1f ms, limit %.0f ms",
			 ns_to_ms(r->predicted_ns), ns_to_ms(r->limit_ns));
	if (r->encrypted)
		snprintf(tls, sizeof(tls), "; TLS 1.3, %s by %s", r->cipher,
			 r->kernel_tls ? "the kernel" : "GnuTLS");
	svg_text(f, "title", DRAW_LEFT, 42, "Migration report");
	svg_text(f, "head", DRAW_LEFT, 70, "%s", summary);
	svg_text(f, "note", DRAW_LEFT, 93,
		 "%.1f s in all; rounds: %u; %.1f MiB sent; streams: %u%s%s",
		 ns_to_seconds(r->total_ns), r->round, bytes_to_mib(r->bytes), r->streams, tls,
		 expected);
}

static void draw_message(FILE *f, const char *text, double y)
{
	for (unsigned int i = 0; *text && i < MESSAGE_LINES; i++) {
		size_t n = draw_line_length(text);

		y += LINE_HEIGHT;
		svg_text(f, "", DRAW_LEFT, y, "%.*s%s", (int)n, text,
			 i + 1 == MESSAGE_LINES && text[n] ? " ..." : "");
		text += n;
		while (*text == ' ')
			text++;
	}
}

static double draw_message_height(const char *text)
{
	unsigned int lines = 0;

	for (; *text && lines < MESSAGE_LINES; lines++) {
		text += draw_line_length(text);
		while (*text == ' ')
			text++;
	}
	return lines * LINE_HEIGHT;
}

void report_draw_svg(FILE *f, const struct report *r, const struct err *outcome)
{
	double y = TITLE_HEIGHT + draw_message_height(outcome->text) + MARGIN;
	double height = y + DRAW_ROUNDS_HEIGHT + MARGIN + draw_codecs_height(r) +
			draw_blackout_height(r) + MARGIN + draw_postcopy_height(r) +
			draw_pages_height(r);
	char summary[REPORT_SUMMARY];

	report_summary(r, outcome, summary);
	svg_begin(f, DRAW_WIDTH, height, summary);
	draw_title(f, r, summary);
	draw_message(f, outcome->text, TITLE_HEIGHT);
	draw_rounds(f, r, y);
	y += DRAW_ROUNDS_HEIGHT + MARGIN;
	draw_codecs(f, r, y);
	y += draw_codecs_height(r);
	draw_blackout(f, r, y);
	y += draw_blackout_height(r) + MARGIN;
	draw_postcopy(f, r, y);
	y += draw_postcopy_height(r);
	draw_pages(f, r, y);
	svg_end(f);
}

static void draw_html_row(FILE *f, const struct report_row *row)
{
	fprintf(f, "<tr><td>%u", row->first);
	if (row->count > 1)
		fprintf(f, "-%u", row->first + row->count - 1);
	fprintf(f, "<td>%.1f<td>%.1f<td>%.1f<td>%.1f<td>%llu<td>%llu<td>%llu<td>%.2f<td>%.2f<td>%u",
		ns_to_ms(row->start_ns), ns_to_ms(row->end_ns - row->start_ns),
		bytes_to_mib(row->bytes), report_row_sent(row) / (1 << 20),
		(unsigned long long)row->data_pages, (unsigned long long)row->zero_pages,
		(unsigned long long)row->reused_pages, bytes_to_mib(row->reused_bytes),
		report_ratio(row->data_pages, row->page_bytes), row->streams);
	if (row->blackout)
		fputs("<td colspan=3>in the blackout\n", f);
	else if (row->late)
		fprintf(f, "<td><td>%.1f<td>late\n", bytes_to_mib(row->pending_pages * PAGE_BYTES));
	else
		fprintf(f, "<td>%.1f<td>%.1f<td>%.1f\n", bytes_to_mib(row->dirty_rate * PAGE_BYTES),
			bytes_to_mib(row->pending_pages * PAGE_BYTES), ns_to_ms(row->predicted_ns));
}

void report_draw_html(FILE *f, const struct report *r, const struct err *outcome)
{
	char summary[REPORT_SUMMARY];

	report_summary(r, outcome, summary);
	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Migration report: ", f);
	xml_text(f, summary);
	fputs("</title>\n<style>"
	      "body{margin:1em auto;max-width:960px;background:#fff;color:#222;font:13px 'DejaVu Sans',Verdana,sans-serif}"
	      "svg{max-width:100%;height:auto}table{border-collapse:collapse;margin:0 30px 2em 76px}"
	      "th,td{padding:.25em .7em;text-align:right;border-bottom:1px solid #ddd}td[colspan]{text-align:center}</style>\n", f);
	report_draw_svg(f, r, outcome);
	fputs("<table>\n<tr><th>Round<th>Start ms<th>Time ms<th>Sent MiB<th>MiB/s<th>Normal pages<th>Zero pages<th>Reused pages<th>Reference MiB<th>Ratio<th>Streams"
	      "<th>Dirty MiB/s<th>Remaining MiB<th>Expected ms\n", f);
	for (unsigned int i = 0; i < r->nr_rows; i++)
		draw_html_row(f, &r->rows[i]);
	fputs("</table>\n</html>\n", f);
}
