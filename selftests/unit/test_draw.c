// SPDX-License-Identifier: GPL-2.0-only
/* The picture: its scales, its lengths, and that no text breaks it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "report/draw.h"
#include "report/svg.h"
#include "sample_report.h"

static struct report r;

typedef void (*draw_fn)(FILE *f, const struct report *r, const struct err *outcome);

static char *drawn(draw_fn draw, const struct err *outcome)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	draw(f, &r, outcome);
	fclose(f);
	assert_null(strstr(text, "nan"));
	assert_null(strstr(text, "inf"));
	return text;
}

static void ticks_are_round(void **state)
{
	const double max[] = { 0, 1e-3, 0.7, 1, 9.99, 10, 11, 48.5, 99, 1234567 };

	(void)state;
	for (size_t i = 0; i < sizeof(max) / sizeof(max[0]); i++) {
		struct axis a = { .from = 300, .to = 100 };

		axis_fit(&a, max[i], 6);
		assert_true(a.max >= max[i] && a.max < max[i] + a.step * 1.0001 + (max[i] > 0 ? 0 : 1));
		assert_true(a.max / a.step > 1.5 && a.max / a.step < 6.5);
		assert_true(axis_at(&a, 0) == 300 && axis_at(&a, a.max) == 100);
	}
}

/* The sum of the widths of all rectangles of a class. */
static double width_of(const char *text, const char *class)
{
	char mark[64];
	double sum = 0;

	snprintf(mark, sizeof(mark), "<rect class=\"%s\"", class);
	for (const char *at = text; (at = strstr(at, mark)); at++)
		sum += strtod(strstr(at, " width=\"") + 8, NULL);
	return sum;
}

/* Where the first rectangle of a class ends. */
static double end_of(const char *text, const char *class)
{
	char mark[64];
	const char *at;

	snprintf(mark, sizeof(mark), "<rect class=\"%s\"", class);
	at = strstr(text, mark);
	assert_non_null(at);
	return strtod(strstr(at, " x=\"") + 4, NULL) + strtod(strstr(at, " width=\"") + 8, NULL);
}

/* 200 of 215 ms are RAM, in a bar of all the width; each part also has a mark of 12 in the legend. */
static void the_blackout_is_to_scale(void **state)
{
	const struct err ok = { 0 };
	double wide = DRAW_RIGHT - DRAW_LEFT;
	char *text;

	(void)state;
	sample_done(&r);
	text = drawn(report_draw_svg, &ok);
	assert_float_equal(width_of(text, "ram"), 12 + wide * 200 / 215, 0.1);
	assert_float_equal(width_of(text, "load"), 12 + wide * 7 / 215, 0.1);
	assert_float_equal(width_of(text, "verify"), 12, 0.1);
	assert_float_equal(end_of(text, "ram"), DRAW_LEFT + wide * 205 / 215, 0.1);
	assert_float_equal(end_of(text, "load"), DRAW_RIGHT, 0.1);
	assert_non_null(strstr(text, "Blackout: 215.0 ms"));
	assert_float_equal(width_of(text, "normal") / width_of(text, "untouched"), (double)r.data_pages / (double)r.untouched_pages,
			   0.01);
	free(text);
}

/* Three bars, of which the longest has all of the axis; and none where nothing came after the guest. */
static void postcopy_is_to_scale(void **state)
{
	const double wide = DRAW_RIGHT - 240 - (DRAW_LEFT + 110);
	const struct err ok = { 0 };
	double before;
	char *text;

	(void)state;
	sample_done(&r);
	text = drawn(report_draw_svg, &ok);
	before = width_of(text, "load");
	assert_null(strstr(text, "Post-copy"));
	free(text);
	r.postcopy.owed_pages = 512;
	r.postcopy.time_ns = 3 * S;
	r.postcopy.faults = 70;
	r.postcopy.asked = 60;
	r.postcopy.mean_ns = 2 * MS;
	r.postcopy.p99_ns = 5 * MS;
	r.postcopy.worst_ns = 20 * MS;
	text = drawn(report_draw_svg, &ok);
	assert_float_equal(width_of(text, "load") - before, wide * (1 + 5. / 20 + 2. / 20), 0.1);
	assert_non_null(strstr(text, "Post-copy: 2.0 MiB came after the guest, in 3.0 s; it waited for 70 pages, and 60 requests took:"));
	assert_non_null(strstr(text, "20.00 ms"));
	free(text);
	/* None was asked for. */
	r.postcopy.mean_ns = r.postcopy.p99_ns = r.postcopy.worst_ns = 0;
	free(drawn(report_draw_svg, &ok));
}

/* Rounds 1, 2 and 3 take 10, 2.56 and 0.2 of 13.77 s; the blackout ends with the migration. */
static void rounds_are_to_scale(void **state)
{
	const struct err ok = { 0 };
	double second = (DRAW_RIGHT - DRAW_LEFT) / 13.77;
	char *text;

	(void)state;
	sample_done(&r);
	text = drawn(report_draw_svg, &ok);
	assert_float_equal(width_of(text, "sent"), 22 + 12.76 * second, 0.1);
	assert_float_equal(width_of(text, "out"), 22 + 0.215 * second, 0.1);
	free(text);
}

/* The sum of the areas of all rectangles of a class, in seconds times height. */
static double area_of(const char *text, const char *class, double second)
{
	char mark[64];
	double sum = 0;

	snprintf(mark, sizeof(mark), "<rect class=\"%s\"", class);
	for (const char *at = text; (at = strstr(at, mark)); at++)
		sum += strtod(strstr(at, " width=\"") + 8, NULL) / second * strtod(strstr(at, " height=\"") + 9, NULL);
	return sum;
}

/* Where the first rectangle of a class begins, from above. */
static double top_of(const char *text, const char *class)
{
	char mark[64];
	const char *at;

	snprintf(mark, sizeof(mark), "<rect class=\"%s\"", class);
	at = strstr(text, mark);
	assert_non_null(at);
	return strtod(strstr(at, " y=\"") + 4, NULL);
}

/* In a round of 10 s half of the pages are zstd's, a quarter lz4's; in one of 3 s all are zlib's. Ratios 2 and 4, in all 2.18. */
static void codecs_are_to_scale(void **state)
{
	const struct err ok = { 0 };
	double second = (DRAW_RIGHT - DRAW_LEFT) / 14, key = 12 * 12 / second;
	char *text;

	(void)state;
	sample_packed(&r);
	text = drawn(report_draw_svg, &ok);
	assert_float_equal(area_of(text, "zstd", second), 10 * 40 + key, 0.1);
	assert_float_equal(area_of(text, "lz4", second), 10 * 20 + key, 0.1);
	assert_float_equal(area_of(text, "raw", second), 10 * 20 + key, 0.1);
	assert_float_equal(area_of(text, "zlib", second), 3 * 80 + key, 0.1);
	/* One on the other: raw, lz4, zstd; all columns are as high. */
	assert_float_equal(top_of(text, "zstd"), top_of(text, "zlib"), 0.1);
	assert_float_equal(top_of(text, "lz4"), top_of(text, "zstd") + 40, 0.1);
	assert_float_equal(top_of(text, "raw"), top_of(text, "lz4") + 20, 0.1);
	assert_non_null(strstr(text, "Compression ratio 2.18: 1200.0 MiB of pages as 550.0 MiB"));
	assert_non_null(strstr(text, ">2.00</text>"));
	assert_non_null(strstr(text, ">4.00</text>"));
	assert_non_null(strstr(text, "zstd 42 %"));
	assert_non_null(strstr(text, "raw 21 %"));
	assert_non_null(strstr(text, "TLS 1.3, AES-128-GCM by the kernel"));
	free(text);
	/* Nothing was packed, nothing is encrypted: no word of it. */
	sample_done(&r);
	text = drawn(report_draw_svg, &ok);
	assert_null(strstr(text, "Compression"));
	assert_null(strstr(text, "TLS"));
	assert_float_equal(area_of(text, "raw", second), 0, 0.1);
	free(text);
}

/* In a round of 10 s three quarters of the pages are references, the rest is raw; none in one of 4 s. */
static void references_are_to_scale(void **state)
{
	const struct report_sent first = {
		.data_pages = 100 * MIB_PAGES, .page_bytes = 100 * MIB, .reused_pages = 300 * MIB_PAGES, .reused_bytes = 2 * MIB,
	};
	const struct report_sent second = { .data_pages = 20 * MIB_PAGES, .page_bytes = 20 * MIB };
	double unit = (DRAW_RIGHT - DRAW_LEFT) / 14, key = 12 * 12 / unit, bar;
	const struct err ok = { 0 };
	char *text;

	(void)state;
	sample_begin(&r);
	report_round_sent(&r, &first);
	r.total_ns = 11 * S;
	report_round_end(&r, r.total_ns);
	sample_next_round(&r, false);
	r.rows[1].start_ns = 10 * S;
	report_round_sent(&r, &second);
	r.total_ns = 14 * S;
	report_round_end(&r, r.total_ns);
	text = drawn(report_draw_svg, &ok);
	/* 300 MiB of 2048 in the bar of pages by kind. */
	bar = 300. / 2048 * (DRAW_RIGHT - 240 - DRAW_LEFT - 110) * 24 / unit;
	assert_float_equal(area_of(text, "reused", unit), 10 * 60 + key + bar, 0.2);
	assert_float_equal(area_of(text, "raw", unit), 10 * 20 + 4 * 80 + key, 0.1);
	assert_float_equal(top_of(text, "raw"), top_of(text, "reused") + 60, 0.1);
	assert_non_null(strstr(text, "reused 71 %, by 2.00 MiB of references"));
	assert_non_null(strstr(text, "raw 29 %"));
	assert_non_null(strstr(text, ">reused there</text>"));
	assert_non_null(strstr(text, "76800 pages, 300.0 MiB"));
	free(text);
	text = drawn(report_draw_html, &ok);
	assert_non_null(strstr(text, "<td>25600<td>0<td>76800<td>2.00<td>1.00"));
	free(text);
	/* There was no file: no word of it. */
	sample_done(&r);
	text = drawn(report_draw_svg, &ok);
	assert_null(strstr(text, "reused there"));
	assert_null(strstr(text, "references"));
	free(text);
	/* There was one, and nothing of it was of use. */
	r.reuse.entries = 5;
	text = drawn(report_draw_svg, &ok);
	assert_non_null(strstr(text, ">reused there</text>"));
	assert_non_null(strstr(text, ">0 pages, 0.0 MiB"));
	free(text);
}

static void text_cannot_break_out(void **state)
{
	draw_fn draw[] = { report_draw_svg, report_draw_html };
	struct err bad = { .exit = GW_QMP, .text = "</text><script>\"&\n" };

	(void)state;
	memset(bad.text + strlen(bad.text), '<', 900);
	sample_begin(&r);
	r.phase = "<b>";
	r.encrypted = true;
	snprintf(r.cipher, sizeof(r.cipher), "<script>");
	for (int i = 0; i < 2; i++) {
		char *text = drawn(draw[i], &bad);

		assert_null(strstr(text, "<script"));
		assert_null(strstr(text, "<b>"));
		assert_null(strstr(text, "<<"));
		assert_non_null(strstr(text, "&lt;script&gt;&quot;&amp;"));
		free(text);
	}
}

/* From a refusal before the first round. */
static void nothing_can_be_drawn(void **state)
{
	struct err bad = { .exit = GW_UNREACHABLE, .text = "no receiver listens there" };
	char *text;

	(void)state;
	r = (struct report) { .phase = "connect" };
	text = drawn(report_draw_html, &bad);
	assert_non_null(strstr(text, "no receiver listens there"));
	assert_non_null(strstr(text, "the guest was not stopped"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks_are_round),
		cmocka_unit_test(the_blackout_is_to_scale),
		cmocka_unit_test(postcopy_is_to_scale),
		cmocka_unit_test(rounds_are_to_scale),
		cmocka_unit_test(codecs_are_to_scale),
		cmocka_unit_test(references_are_to_scale),
		cmocka_unit_test(text_cannot_break_out),
		cmocka_unit_test(nothing_can_be_drawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
