/* SPDX-License-Identifier: GPL-2.0-only */
/* A migration that might have been: 1024 MiB at 100 MiB/s, a guest that writes 25 MiB/s, rounds of 10.24, 2.56, ... s. */
#ifndef SAMPLE_REPORT_H
#define SAMPLE_REPORT_H

#include <stdio.h>

#include "report/report.h"

#define MIB_PAGES	256u
#define MIB		(1ull << 20)
#define S		1000000000ull
#define MS		1000000ull

/* In the middle of round 1. */
static inline void sample_begin(struct report *r)
{
	*r = (struct report) {
		.phase = "pre-copy", .started_realtime_ns = 1700000000 * S, .streams = 2, .round = 1, .limit_ns = 300 * MS,
		.total_pages = 2048 * MIB_PAGES, .untouched_pages = 1024 * MIB_PAGES, .pending_pages = 1024 * MIB_PAGES,
		.remaining_pages = 1024 * MIB_PAGES, .speed.rate = 100 * MIB,
	};
	report_round_begin(r, false, 1 * S);
	r->total_ns = 6 * S;
	r->bytes = 500 * MIB;
	r->remaining_pages = 524 * MIB_PAGES;
}

/* Pages of the round under way, none of them packed. */
static inline void sample_sent(struct report *r, uint64_t data_pages, uint64_t zero_pages)
{
	const struct report_sent sent = { .data_pages = data_pages, .zero_pages = zero_pages, .page_bytes = data_pages * 4096 };

	report_round_sent(r, &sent);
}

/* The round under way ends after ns; then so many MiB are left. Behind the first some pages went in part, or not at all. */
static inline void sample_end_round(struct report *r, uint64_t ns, uint64_t mib, uint64_t left_mib)
{
	const uint64_t data = mib * MIB_PAGES - 100, again = r->nr_rows > 1;
	const struct report_sent sent = {
		.data_pages = data, .zero_pages = 100, .page_bytes = data * 4096,
		.delta_pages = again * mib, .delta_bytes = again * 1000 * mib, .unchanged_pages = again * 3 * mib,
	};

	r->total_ns = r->rows[r->nr_rows - 1].start_ns + ns;
	r->bytes = r->rows[r->nr_rows - 1].bytes + mib * MIB;
	r->remaining_pages = 0;
	report_round_sent(r, &sent);
	report_round_end(r, r->total_ns);
	r->pending_pages = left_mib * MIB_PAGES;
	r->dirty_rate = (uint64_t)((double)r->pending_pages * 1e9 / (double)ns);
	r->predicted_ns = left_mib * S / 100 + 20 * MS;
	report_round_left(r);
}

static inline void sample_next_round(struct report *r, bool blackout)
{
	r->round++;
	report_round_begin(r, blackout, r->total_ns);
}

/* 2 s after the guest began to run at the destination, without 40 MiB; half of these have come. */
static inline void sample_postcopy(struct report *r)
{
	sample_begin(r);
	sample_end_round(r, 10 * S, 1024, 256);
	r->phase = "post-copy";
	sample_next_round(r, true);
	r->total_ns += 2 * S;
	r->remaining_pages = 20 * MIB_PAGES;
	r->postcopy.owed_pages = 40 * MIB_PAGES;
	r->postcopy.time_ns = 2 * S;
	r->postcopy.faults = 500;
	r->postcopy.asked = 400;
	r->postcopy.mean_ns = 2 * MS;
	r->postcopy.p99_ns = 9 * MS;
	r->postcopy.worst_ns = 12 * MS;
}

/* All of it. */
static inline void sample_done(struct report *r)
{
	sample_begin(r);
	sample_end_round(r, 10 * S, 1024, 256);
	sample_next_round(r, false);
	sample_end_round(r, 2560 * MS, 256, 20);
	r->phase = "switchover";
	sample_next_round(r, true);
	r->total_ns += 200 * MS;
	r->bytes += 20 * MIB;
	r->remaining_pages = 0;
	sample_sent(r, 20 * MIB_PAGES, 0);
	report_round_end(r, r->total_ns);
	r->total_ns += 10 * MS;
	r->phase = "done";
	r->verified = true;
	r->downtime_ns = 215 * MS;
	r->clock_error_ns = MS / 4;
	r->blackout.stop_ns = 3 * MS;
	r->blackout.harvest_ns = MS;
	r->blackout.check_ns = MS;
	r->blackout.ram_ns = 200 * MS;
	r->blackout.save_ns = 3 * MS;
	r->blackout.load_ns = 7 * MS;
}

/* Two rounds of 10 and of 3 s, the first half zstd and a quarter lz4, the second all zlib; and what encrypts it. */
static inline void sample_packed(struct report *r)
{
	struct report_sent sent = {
		.data_pages = 1000 * MIB_PAGES, .same_pages = 24 * MIB_PAGES, .page_bytes = 500 * MIB,
		.packed_pages = { 250 * MIB_PAGES, 500 * MIB_PAGES, 0 },
	};

	sample_begin(r);
	r->encrypted = r->kernel_tls = true;
	snprintf(r->cipher, sizeof(r->cipher), "AES-128-GCM");
	r->link = (struct report_link) {
		.rtt_ns = 80 * MS, .segments = 20000, .again = 100, .loss_ns = 60 * MS, .busy_ns = 10 * S, .window_ns = 4 * S,
		.buffer_ns = S,
	};
	report_round_sent(r, &sent);
	r->total_ns = 11 * S;
	report_round_end(r, r->total_ns);
	sample_next_round(r, false);
	sent = (struct report_sent) {
		.data_pages = 200 * MIB_PAGES, .page_bytes = 50 * MIB, .packed_pages = { 0, 0, 200 * MIB_PAGES },
	};
	report_round_sent(r, &sent);
	r->total_ns = 14 * S;
	report_round_end(r, r->total_ns);
}

#endif
