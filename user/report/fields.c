// SPDX-License-Identifier: GPL-2.0-only
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "page/page.h"
#include "report/fields.h"
#include "report/report.h"

/**
 * enum unit - what a member holds, and what the JSON has
 * UNIT_COUNT: uint64_t, as it is
 * UNIT_UINT: unsigned int, as it is
 * UNIT_BOOL: bool
 * UNIT_MS: uint64_t nanoseconds, written as milliseconds
 * UNIT_SECONDS: uint64_t nanoseconds, written as whole seconds
 * UNIT_PAGES: uint64_t pages, written as bytes
 * UNIT_MBPS: uint64_t bytes per second, written as megabits per second
 * UNIT_TEXT: char[REPORT_TEXT]
 */
enum unit {
	UNIT_COUNT, UNIT_UINT, UNIT_BOOL, UNIT_MS, UNIT_SECONDS, UNIT_PAGES, UNIT_MBPS, UNIT_TEXT
};

struct field {
	const char *key;
	enum unit unit;
	size_t offset;
};

#define R(key, unit, member)	{ key, unit, offsetof(struct report, member) }
#define ROW(key, unit, member)	{ key, unit, offsetof(struct report_row, member) }

static const struct field main_fields[] = {
	R("start-time", UNIT_SECONDS, started_realtime_ns),
	R("total-time", UNIT_MS, total_ns),
	R("setup-time", UNIT_MS, setup_ns),
	R("downtime", UNIT_MS, downtime_ns),
	R("clock-error", UNIT_MS, clock_error_ns),
	R("expected-downtime", UNIT_MS, predicted_ns),
	R("downtime-limit", UNIT_MS, limit_ns),
	R("streams", UNIT_UINT, streams),
	R("reconnects", UNIT_UINT, reconnects),
	R("throttle", UNIT_UINT, throttle),
	R("throttled-time", UNIT_MS, throttled_ns),
	R("verified", UNIT_BOOL, verified),
	R("guest-was-paused", UNIT_BOOL, guest_was_paused),
	R("device-state-saved", UNIT_BOOL, save_mode),
	R("encrypted", UNIT_BOOL, encrypted),
	R("kernel-tls", UNIT_BOOL, kernel_tls),
	R("cipher", UNIT_TEXT, cipher),
};

static const struct field ram_fields[] = {
	R("total", UNIT_PAGES, total_pages),
	R("transferred", UNIT_COUNT, bytes),
	R("remaining", UNIT_PAGES, remaining_pages),
	R("normal", UNIT_COUNT, data_pages),
	R("duplicate", UNIT_COUNT, zero_pages),
	R("same-byte", UNIT_COUNT, same_pages),
	R("lz4", UNIT_COUNT, packed_pages[0]),
	R("zstd", UNIT_COUNT, packed_pages[1]),
	R("zlib", UNIT_COUNT, packed_pages[2]),
	R("normal-bytes", UNIT_COUNT, page_bytes),
	R("delta", UNIT_COUNT, delta_pages),
	R("delta-bytes", UNIT_COUNT, delta_bytes),
	R("unchanged", UNIT_COUNT, unchanged_pages),
	R("reused", UNIT_COUNT, reused_pages),
	R("reused-bytes", UNIT_COUNT, reused_bytes),
	R("untouched", UNIT_COUNT, untouched_pages),
	R("device-bytes", UNIT_COUNT, device_bytes),
	R("zero-copy-sends", UNIT_COUNT, zero_copies),
	R("zero-copy-copied", UNIT_COUNT, zero_copies_copied),
	R("dirty-pages-rate", UNIT_COUNT, dirty_rate),
	R("dirty-sync-count", UNIT_UINT, round),
	R("mbps", UNIT_MBPS, speed.rate),
};

static const struct field link_fields[] = {
	R("round-trip", UNIT_MS, link.rtt_ns),
	R("segments", UNIT_COUNT, link.segments),
	R("resent", UNIT_COUNT, link.again),
	R("expected-loss", UNIT_MS, link.loss_ns),
	R("busy", UNIT_MS, link.busy_ns),
	R("window-full", UNIT_MS, link.window_ns),
	R("buffer-full", UNIT_MS, link.buffer_ns),
};

static const struct field blackout_fields[] = {
	R("stop", UNIT_MS, blackout.stop_ns),
	R("harvest", UNIT_MS, blackout.harvest_ns),
	R("check", UNIT_MS, blackout.check_ns),
	R("ram", UNIT_MS, blackout.ram_ns),
	R("verify", UNIT_MS, blackout.verify_ns),
	R("save", UNIT_MS, blackout.save_ns),
	R("load", UNIT_MS, blackout.load_ns),
};

static const struct field postcopy_fields[] = {
	R("time", UNIT_MS, postcopy.time_ns),
	R("owed", UNIT_PAGES, postcopy.owed_pages),
	R("early", UNIT_PAGES, postcopy.early_pages),
	R("faults", UNIT_COUNT, postcopy.faults),
	R("zero-faults", UNIT_COUNT, postcopy.zero_faults),
	R("requests", UNIT_COUNT, postcopy.asked),
	R("latency-mean", UNIT_MS, postcopy.mean_ns),
	R("latency-p99", UNIT_MS, postcopy.p99_ns),
	R("latency-worst", UNIT_MS, postcopy.worst_ns),
};

static const struct field reuse_fields[] = {
	R("entries", UNIT_COUNT, reuse.entries),
	R("left-out", UNIT_COUNT, reuse.left_out),
	R("index-time", UNIT_MS, reuse.index_ns),
	R("memory", UNIT_COUNT, reuse.memory),
	R("refused", UNIT_COUNT, reuse.refused_pages),
};

static const struct field image_fields[] = {
	R("state", UNIT_TEXT, image.state),
	R("bytes", UNIT_COUNT, image.bytes),
	R("time", UNIT_MS, image.time_ns),
};

static const struct field row_fields[] = {
	ROW("round", UNIT_UINT, first),
	ROW("count", UNIT_UINT, count),
	ROW("streams", UNIT_UINT, streams),
	ROW("blackout", UNIT_BOOL, blackout),
	ROW("late", UNIT_BOOL, late),
	ROW("start-time", UNIT_MS, start_ns),
	ROW("end-time", UNIT_MS, end_ns),
	ROW("transferred", UNIT_COUNT, bytes),
	ROW("remaining", UNIT_PAGES, pending_pages),
	ROW("normal", UNIT_COUNT, data_pages),
	ROW("duplicate", UNIT_COUNT, zero_pages),
	ROW("same-byte", UNIT_COUNT, same_pages),
	ROW("lz4", UNIT_COUNT, packed_pages[0]),
	ROW("zstd", UNIT_COUNT, packed_pages[1]),
	ROW("zlib", UNIT_COUNT, packed_pages[2]),
	ROW("normal-bytes", UNIT_COUNT, page_bytes),
	ROW("delta", UNIT_COUNT, delta_pages),
	ROW("delta-bytes", UNIT_COUNT, delta_bytes),
	ROW("unchanged", UNIT_COUNT, unchanged_pages),
	ROW("reused", UNIT_COUNT, reused_pages),
	ROW("reused-bytes", UNIT_COUNT, reused_bytes),
	ROW("dirty-pages-rate", UNIT_COUNT, dirty_rate),
	ROW("mbps", UNIT_MBPS, rate),
	ROW("expected-downtime", UNIT_MS, predicted_ns),
	ROW("throttle", UNIT_UINT, throttle),
};

#define N(a) (sizeof(a) / sizeof((a)[0]))

const struct field_table report_tables[REPORT_TABLES] = {
	{ NULL, main_fields, N(main_fields) },
	{ "ram", ram_fields, N(ram_fields) },
	{ "link", link_fields, N(link_fields) },
	{ "blackout", blackout_fields, N(blackout_fields) },
	{ "postcopy", postcopy_fields, N(postcopy_fields) },
	{ "reuse", reuse_fields, N(reuse_fields) },
	{ "image", image_fields, N(image_fields) },
};

const struct field_table row_table = { NULL, row_fields, N(row_fields) };

static json_t *fields_encode_one(const struct field *f, const void *from)
{
	const void *p = (const char *)from + f->offset;
	uint64_t v;

	if (f->unit == UNIT_BOOL)
		return json_boolean(*(const bool *)p);
	if (f->unit == UNIT_TEXT)
		return text_to_json(p);
	v = f->unit == UNIT_UINT ? *(const unsigned int *)p : *(const uint64_t *)p;
	switch (f->unit) {
	case UNIT_MS:
		return json_real((double)v / 1e6);
	case UNIT_SECONDS:
		return json_integer((json_int_t)(v / 1000000000));
	case UNIT_PAGES:
		return json_integer((json_int_t)(v * PAGE_BYTES));
	case UNIT_MBPS:
		return json_real((double)v * 8 / 1e6);
	default:
		return json_integer((json_int_t)v);
	}
}

int fields_encode(json_t *o, const struct field_table *t, const void *from)
{
	int failed = 0;

	for (size_t i = 0; i < t->n; i++)
		failed |= json_object_set_new(o, t->fields[i].key,
					      fields_encode_one(&t->fields[i], from));
	return failed ? -1 : 0;
}

static bool fields_decode_one(const struct field *f, const json_t *v, void *to)
{
	void *p = (char *)to + f->offset;
	double d = json_number_value(v);

	if (f->unit == UNIT_BOOL) {
		*(bool *)p = json_is_true(v);
		return json_is_boolean(v);
	}
	if (f->unit == UNIT_TEXT) {
		if (!json_is_string(v) || json_string_length(v) >= REPORT_TEXT)
			return false;
		snprintf(p, REPORT_TEXT, "%s", json_string_value(v));
		return true;
	}
	if (!json_is_number(v) || !(d >= 0 && d < 1e18))
		return false;
	if (f->unit == UNIT_UINT) {
		*(unsigned int *)p = (unsigned int)d;
		return d <= 1e9;
	}
	switch (f->unit) {
	case UNIT_MS:
		d = d < 1e12 ? round(d * 1e6) : 1e18;
		break;
	case UNIT_SECONDS:
		d = d < 1e9 * 9 ? d * 1e9 : 9e18;
		break;
	case UNIT_PAGES:
		d /= PAGE_BYTES;
		break;
	case UNIT_MBPS:
		d = d < 1e12 ? round(d * 1e6 / 8) : 1e18;
		break;
	default:
		break;
	}
	*(uint64_t *)p = (uint64_t)d;
	return true;
}

/* Reports of earlier versions lack these: 0, false or empty, as there was nothing to tell. */
static bool fields_are_newer(const char *key)
{
	static const char *const newer[] = {
		"encrypted", "kernel-tls", "cipher",
		"same-byte", "lz4", "zstd", "zlib", "normal-bytes", "delta", "delta-bytes", "unchanged",
		"reused", "reused-bytes", "entries", "left-out", "index-time", "memory", "refused",
		"state", "bytes", "throttle", "throttled-time", "time", "owed", "early", "faults",
		"zero-faults", "requests", "latency-mean", "latency-p99", "latency-worst", "late",
		"round-trip", "segments", "resent", "expected-loss", "busy", "window-full", "buffer-full",
	};

	for (size_t i = 0; i < N(newer); i++)
		if (!strcmp(key, newer[i]))
			return true;
	return false;
}

const char *fields_decode(const json_t *o, const struct field_table *t, void *to)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct field *f = &t->fields[i];
		const json_t *v = json_object_get(o, f->key);

		if (!v && fields_are_newer(f->key))
			continue;
		if (!fields_decode_one(f, v, to))
			return f->key;
	}
	return NULL;
}
