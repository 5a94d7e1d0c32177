/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The report as a picture: rounds over time, how their pages went, the parts of the blackout,
 * post-copy, pages by kind.
 */
#ifndef GODWIT_REPORT_DRAW_H
#define GODWIT_REPORT_DRAW_H

#include <stdio.h>

#include "base/err.h"
#include "report/report.h"
#include "report/svg.h"

/* Both only write to f: the caller that opened f checks it for errors. */
void report_draw_svg(FILE *f, const struct report *r, const struct err *outcome);
/* A page that needs no other file: the picture and the table of rounds. */
void report_draw_html(FILE *f, const struct report *r, const struct err *outcome);

/* The parts of the picture, from y on; for report_draw_svg(). */
#define DRAW_WIDTH	960.0
#define DRAW_LEFT	76.0
#define DRAW_RIGHT	930.0

void draw_rounds(FILE *f, const struct report *r, double y);
/* Seconds, from the beginning of the migration to its end. */
struct axis draw_time_axis(const struct report *r);
#define DRAW_ROUNDS_HEIGHT	364.0
/* How the pages of each round went; height 0: nothing was packed, and nothing reused. */
void draw_codecs(FILE *f, const struct report *r, double y);
double draw_codecs_height(const struct report *r);
void draw_blackout(FILE *f, const struct report *r, double y);
double draw_blackout_height(const struct report *r);
/* How long the guest waited for pages; height 0: none came after it. */
void draw_postcopy(FILE *f, const struct report *r, double y);
double draw_postcopy_height(const struct report *r);
void draw_pages(FILE *f, const struct report *r, double y);
double draw_pages_height(const struct report *r);

#endif
