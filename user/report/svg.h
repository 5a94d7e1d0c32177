/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes SVG, element by element. Lengths are in user units (pixels). */
#ifndef GODWIT_REPORT_SVG_H
#define GODWIT_REPORT_SVG_H

#include <stdio.h>

/* Escapes text for an element or an attribute; a character that XML cannot hold becomes a space. */
void xml_text(FILE *f, const char *text);
void svg_begin(FILE *f, double width, double height, const char *title);
void svg_end(FILE *f);
void svg_rect(FILE *f, const char *class, double x, double y, double width, double height);
void svg_line(FILE *f, const char *class, double x1, double y1, double x2, double y2);
/* y is the baseline. */
void svg_text(FILE *f, const char *class, double x, double y, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/**
 * struct axis - from values to positions, with round numbers at the ticks
 * @from: the position of 0
 * @to: the position of @max
 * @max: the end of the axis: not less than any value
 * @step: between two ticks
 */
struct axis {
	double from, to;
	double max, step;
};

/* Ends the axis with a tick. max: the largest value. ticks: about how many. */
void axis_fit(struct axis *a, double max, unsigned int ticks);
/* The same, but the axis ends with the largest value. */
void axis_fit_exactly(struct axis *a, double max, unsigned int ticks);
double axis_at(const struct axis *a, double value);
/* How many decimals the ticks need. */
int axis_decimals(const struct axis *a);

#endif
