// SPDX-License-Identifier: GPL-2.0-only
/*
 * Half of the time is one long window; the other half is four short ones, of which the curve has
 * the mean, as one short window may fall between two bursts. In eighths of the time: the points of
 * a short window are at 1/4, 1/2 and 1, those of the long one at 2 and 4.
 */
#include <math.h>

#include "base/clock.h"
#include "estimate/curve.h"
#include "estimate/sample.h"

#define SHORT_WINDOWS	4

static const double eighths[CURVE_POINTS] = { 0.25, 0.5, 1, 2, 4 };
#define SHORT_POINTS	3	/* of them */

/* Measures at the points [from, to) and adds the results to *sum. */
static int curve_window(struct sample *s, struct dirty_source *src, double eighth_ns,
			unsigned int from, unsigned int to, struct curve *sum, struct err *e)
{
	uint64_t since, armed, pages;
	int r = sample_arm(s, src, &since, e);

	armed = now_ns();
	for (unsigned int i = from; i < to && !r; i++) {
		r = sample_rest(armed + (uint64_t)(eighths[i] * eighth_ns), e);
		if (!r)
			r = sample_collect(s, src, &pages, e);
		if (r)
			break;
		sum->points[i].ns += s->harvest_ns - since;
		sum->points[i].pages += (double)pages;
	}
	return r;
}

/*
 * Makes means of the sums, scaled up to the guest. Two points that are too close become one, and
 * noise must not make the curve fall.
 */
static void curve_conclude(struct curve *c, const struct sample *s)
{
	for (unsigned int i = 0; i < CURVE_POINTS; i++) {
		double times = i < SHORT_POINTS ? SHORT_WINDOWS : 1;
		double ns = (double)c->points[i].ns / times;
		double pages = c->points[i].pages * sample_scale(s) / times;

		if (c->n && ns < 1.1 * (double)c->points[c->n - 1].ns) {
			c->n--;
			ns = (ns + (double)c->points[c->n].ns) / 2;
			pages = (pages + c->points[c->n].pages) / 2;
		}
		if (c->n)
			pages = fmax(pages, c->points[c->n - 1].pages);
		c->points[c->n].ns = (uint64_t)ns;
		c->points[c->n++].pages = pages;
	}
	c->total_pages = s->total_pages;
	c->sample_pages = s->n * SAMPLE_CHUNK;
}

int curve_measure(const struct vm *vm, struct dirty_source *src, unsigned int seconds,
		  uint64_t sample_pages, uint64_t seed, struct curve *out, struct err *e)
{
	double eighth_ns = seconds * 1e9 / 8;
	struct sample s;
	int r = sample_choose(vm, sample_pages, seed, &s, e);

	*out = (struct curve) { 0 };
	if (!r)
		r = sample_begin(&s, src, e);
	for (int i = 0; i < SHORT_WINDOWS && !r; i++)
		r = curve_window(&s, src, eighth_ns, 0, SHORT_POINTS, out, e);
	if (!r)
		r = curve_window(&s, src, eighth_ns, SHORT_POINTS, CURVE_POINTS, out, e);
	if (!r)
		curve_conclude(out, &s);
	sample_free(&s);
	return r;
}

double curve_pages(const struct curve *c, uint64_t ns)
{
	double t0 = 0, p0 = 0, t1, p1, pages;
	unsigned int i = 0;

	while (i + 1 < c->n && c->points[i].ns < ns)
		i++;
	if (i) {
		t0 = (double)c->points[i - 1].ns;
		p0 = c->points[i - 1].pages;
	}
	t1 = (double)c->points[i].ns;
	p1 = c->points[i].pages;
	pages = p0 + (p1 - p0) * ((double)ns - t0) / (t1 - t0);
	return fmin(pages, (double)c->total_pages);
}
