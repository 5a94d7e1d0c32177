// SPDX-License-Identifier: GPL-2.0-only
#include "report/report.h"

const char *const report_codecs[REPORT_CODECS] = { "lz4", "zstd", "zlib" };

static uint64_t report_mean(uint64_t a, uint64_t a_ns, uint64_t b, uint64_t b_ns)
{
	double ns = (double)a_ns + (double)b_ns;

	return ns > 0 ? (uint64_t)(((double)a * (double)a_ns + (double)b * (double)b_ns) / ns) : b;
}

/*
 * Makes one row of a and of b, which follows, and is late if a is. The pages left after both are
 * those left after b.
 */
static struct report_row report_join(const struct report_row *a, const struct report_row *b)
{
	struct report_row sum = *b;

	sum.first = a->first;
	sum.count = a->count + b->count;
	sum.start_ns = a->start_ns;
	sum.bytes = a->bytes + b->bytes;
	sum.data_pages = a->data_pages + b->data_pages;
	sum.zero_pages = a->zero_pages + b->zero_pages;
	sum.same_pages = a->same_pages + b->same_pages;
	sum.page_bytes = a->page_bytes + b->page_bytes;
	sum.delta_pages = a->delta_pages + b->delta_pages;
	sum.delta_bytes = a->delta_bytes + b->delta_bytes;
	sum.unchanged_pages = a->unchanged_pages + b->unchanged_pages;
	sum.reused_pages = a->reused_pages + b->reused_pages;
	sum.reused_bytes = a->reused_bytes + b->reused_bytes;
	for (unsigned int i = 0; i < REPORT_CODECS; i++)
		sum.packed_pages[i] = a->packed_pages[i] + b->packed_pages[i];
	sum.dirty_rate = report_mean(a->dirty_rate, a->end_ns - a->start_ns, b->dirty_rate,
				     b->end_ns - b->start_ns);
	return sum;
}

/* Two of pre-copy, or two late ones, are one then. */
static void report_make_room(struct report *r)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < r->nr_rows; n++) {
		const struct report_row *a = &r->rows[i++];
		const bool pair = i < r->nr_rows && a->late == r->rows[i].late;

		r->rows[n] = pair ? report_join(a, &r->rows[i++]) : *a;
	}
	r->nr_rows = n;
}

void report_round_begin(struct report *r, bool blackout, uint64_t now_ns)
{
	if (r->nr_rows == REPORT_ROWS)
		report_make_room(r);
	if (!r->nr_rows)
		r->setup_ns = now_ns;
	r->rows[r->nr_rows++] = (struct report_row) {
		.first = r->round, .count = 1, .streams = r->streams, .blackout = blackout,
		.start_ns = now_ns, .end_ns = now_ns, .bytes = r->bytes, .rate = r->speed.rate,
		.predicted_ns = r->predicted_ns, .throttle = blackout ? 0 : r->throttle,
	};
}

/* The sum gets what the row gets, whichever way that is. */
static void report_count(uint64_t *sum, uint64_t *row, uint64_t now)
{
	*sum += now - *row;
	*row = now;
}

void report_round_sent(struct report *r, const struct report_sent *sent)
{
	struct report_row *row = &r->rows[r->nr_rows - 1];

	report_count(&r->data_pages, &row->data_pages, sent->data_pages);
	report_count(&r->zero_pages, &row->zero_pages, sent->zero_pages);
	report_count(&r->same_pages, &row->same_pages, sent->same_pages);
	report_count(&r->page_bytes, &row->page_bytes, sent->page_bytes);
	report_count(&r->delta_pages, &row->delta_pages, sent->delta_pages);
	report_count(&r->delta_bytes, &row->delta_bytes, sent->delta_bytes);
	report_count(&r->unchanged_pages, &row->unchanged_pages, sent->unchanged_pages);
	report_count(&r->reused_pages, &row->reused_pages, sent->reused_pages);
	report_count(&r->reused_bytes, &row->reused_bytes, sent->reused_bytes);
	for (unsigned int i = 0; i < REPORT_CODECS; i++)
		report_count(&r->packed_pages[i], &row->packed_pages[i], sent->packed_pages[i]);
}

void report_round_end(struct report *r, uint64_t now_ns)
{
	struct report_row *row = &r->rows[r->nr_rows - 1];

	row->end_ns = now_ns;
	row->bytes = r->bytes - row->bytes;
	row->pending_pages = r->remaining_pages;
}

void report_round_left(struct report *r)
{
	struct report_row *row = &r->rows[r->nr_rows - 1];

	r->remaining_pages = r->pending_pages;
	row->pending_pages = r->pending_pages;
	row->dirty_rate = r->dirty_rate;
	row->rate = r->speed.rate;
	row->predicted_ns = r->predicted_ns;
}
