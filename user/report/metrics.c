// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "page/page.h"
#include "report/metrics.h"

struct metric {
	const char *name;	/* after "godwit_migration_" */
	const char *help;
	int decimals;
	double value;
};

/* Escapes a label's value as Prometheus needs it. */
static void metrics_write_label(FILE *f, const char *value)
{
	for (const char *p = value; *p; p++) {
		if (*p == '\n')
			fputs("\\n", f);
		else if (*p == '"' || *p == '\\')
			fprintf(f, "\\%c", *p);
		else
			putc(*p, f);
	}
}

static void metrics_write_one(FILE *f, const char *qmp, const struct metric *m)
{
	fprintf(f, "# HELP godwit_migration_%s %s\n# TYPE godwit_migration_%s gauge\ngodwit_migration_%s{qmp=\"", m->name, m->help,
		m->name, m->name);
	metrics_write_label(f, qmp);
	fprintf(f, "\"} %.*f\n", m->decimals, m->value);
}

static void metrics_write_all(FILE *f, const char *qmp, const struct report *r,
			      const struct err *outcome)
{
	bool ok = outcome && outcome->exit == GW_OK, failed = outcome && outcome->exit != GW_OK;
	double start = (double)r->started_realtime_ns / 1e9;
	const struct metric running[] = {
		{ "start_time_seconds", "When the migration began, Unix time.", 3, start },
		{ "succeeded", "1 if the migration has succeeded.", 0, ok },
		{ "failed", "1 if the migration has failed.", 0, failed },
		{ "data_total_bytes", "Guest RAM.", 0, (double)(r->total_pages * PAGE_BYTES) },
		{ "data_processed_bytes", "Sent over the link so far.", 0, (double)r->bytes },
		{ "page_data_bytes", "Pages that were sent with data, before compression.", 0,
		  (double)(r->data_pages * PAGE_BYTES) },
		{ "page_data_compressed_bytes", "What they took on the link.", 0, (double)r->page_bytes },
		{ "page_data_lz4_bytes", "Of page_data_bytes, what lz4 packed.", 0, (double)(r->packed_pages[0] * PAGE_BYTES) },
		{ "page_data_zstd_bytes", "Of page_data_bytes, what zstd packed.", 0, (double)(r->packed_pages[1] * PAGE_BYTES) },
		{ "page_data_zlib_bytes", "Of page_data_bytes, what zlib packed.", 0, (double)(r->packed_pages[2] * PAGE_BYTES) },
		{ "page_constant_bytes", "Pages of one byte, zeros or another.", 0,
		  (double)((r->zero_pages + r->same_pages) * PAGE_BYTES) },
		{ "page_delta_bytes", "Of the pages that were sent with data, those that went as their changes.", 0,
		  (double)(r->delta_pages * PAGE_BYTES) },
		{ "page_delta_changed_bytes", "These changes, before compression.", 0, (double)r->delta_bytes },
		{ "page_unchanged_bytes", "Dirty pages that the destination had already.", 0,
		  (double)(r->unchanged_pages * PAGE_BYTES) },
		{ "page_reused_bytes", "Pages that went as references to what the destination has in a file.", 0,
		  (double)(r->reused_pages * PAGE_BYTES) },
		{ "page_reused_references_bytes", "What these references took on the link.", 0, (double)r->reused_bytes },
		{ "page_refused_bytes", "Of them, those that the file did not have any more.", 0,
		  (double)(r->reuse.refused_pages * PAGE_BYTES) },
		{ "data_remaining_bytes", "Guest RAM that is still to be sent.", 0, (double)(r->remaining_pages * PAGE_BYTES) },
		{ "dirty_memory_rate_bytes", "Guest RAM that the guest writes, per second.", 0,
		  (double)(r->dirty_rate * PAGE_BYTES) },
		{ "memory_transfer_rate_bytes", "Sent over the link, per second.", 0, (double)r->speed.rate },
		{ "rounds", "Rounds begun.", 0, r->round },
		{ "expected_downtime_seconds", "Downtime predicted at the last decision.", 6, (double)r->predicted_ns / 1e9 },
		{ "link_round_trip_seconds", "The shortest round trip.", 6, (double)r->link.rtt_ns / 1e9 },
		{ "link_segments", "Segments of TCP that rounds sent.", 0, (double)r->link.segments },
		{ "link_segments_resent", "Of these, those that were lost before.", 0, (double)r->link.again },
		{ "throttle_ratio", "Share of the time that vCPUs stand still.", 2, r->throttle / 100.0 },
		{ "throttled_seconds", "How long each vCPU has stood still for that.", 6, (double)r->throttled_ns / 1e9 },
		{ "postcopy_seconds", "How long the guest ran without all of its RAM.", 6, (double)r->postcopy.time_ns / 1e9 },
		{ "postcopy_faults", "Pages that the guest waited for.", 0, (double)r->postcopy.faults },
		{ "postcopy_latency_p99_seconds", "What 99 % of these took at most.", 6, (double)r->postcopy.p99_ns / 1e9 },
		{ "encrypted", "1 if the stream is encrypted.", 0, r->encrypted },
		{ "kernel_tls", "1 if the kernel encrypts it.", 0, r->kernel_tls },
		{ "downtime_limit_seconds", "Downtime that is allowed.", 6, (double)r->limit_ns / 1e9 },
	};
	const struct metric ended[] = {
		{ "end_time_seconds", "When the migration ended, Unix time.", 3, start + (double)r->total_ns / 1e9 },
		{ "downtime_seconds", "How long the guest was stopped.", 6, (double)r->downtime_ns / 1e9 },
	};

	for (size_t i = 0; i < sizeof(running) / sizeof(running[0]); i++)
		metrics_write_one(f, qmp, &running[i]);
	if (outcome)
		metrics_write_one(f, qmp, &ended[0]);
	if (ok)
		metrics_write_one(f, qmp, &ended[1]);
}

int metrics_write(const char *path, const char *qmp, const struct report *r,
		  const struct err *outcome, struct err *e)
{
	char tmp[PATH_MAX];
	int code = 0, n = snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	FILE *f = n < PATH_MAX ? fopen(tmp, "we") : NULL;

	if (!f) {
		code = n < PATH_MAX ? errno : ENAMETOOLONG;
	} else {
		metrics_write_all(f, qmp, r, outcome);
		code = ferror(f) ? EIO : 0;
		if (fclose(f) && !code)
			code = errno;
		if (!code && rename(tmp, path))
			code = errno;
		if (code)
			unlink(tmp);
	}
	if (!code)
		return 0;
	return err_set(e, GW_USAGE, code, "cannot write metrics to %s: %s; give the path of a file in a directory that you can write to",
		       path, strerror(code));
}
