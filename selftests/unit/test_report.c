// SPDX-License-Identifier: GPL-2.0-only
/* The rows of a report, its JSON, and the guess when it will be over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "page/page.h"
#include "report/eta.h"
#include "report/json.h"
#include "report/text.h"
#include "sample_report.h"

static struct report r;

static void rows_tell_of_rounds(void **state)
{
	(void)state;
	sample_done(&r);
	assert_int_equal(r.nr_rows, 3);
	assert_int_equal(r.setup_ns, 1 * S);
	assert_int_equal(r.rows[0].bytes, 1024 * MIB);
	assert_int_equal(r.rows[0].end_ns, 11 * S);
	assert_int_equal(r.rows[0].pending_pages, 256 * MIB_PAGES);
	assert_int_equal(r.rows[0].predicted_ns, 2580 * MS);
	assert_int_equal(r.rows[1].first, 2);
	assert_int_equal(r.rows[1].bytes, 256 * MIB);
	assert_false(r.rows[1].blackout);
	assert_true(r.rows[2].blackout);
	assert_int_equal(r.rows[2].pending_pages, 0);
	assert_int_equal(r.data_pages, 1300 * MIB_PAGES - 200);
	assert_int_equal(r.zero_pages, 200);
	assert_int_equal(r.rows[0].delta_pages, 0);
	assert_int_equal(r.rows[1].delta_pages, 256);
	assert_int_equal(r.delta_pages, 256);
	assert_int_equal(r.delta_bytes, 256000);
	assert_int_equal(r.unchanged_pages, 768);
}

/* However many rounds: the rows stay in their place, in order, and add up. */
static void many_rounds_fit(void **state)
{
	uint64_t bytes = 0, data = 0, end = 1 * S, changes[3] = { 0 };
	unsigned int next = 1;

	(void)state;
	sample_begin(&r);
	for (int i = 0; i < 10000; i++) {
		if (i)
			sample_next_round(&r, false);
		sample_end_round(&r, 100 * MS, 10, 2);
	}
	assert_in_range(r.nr_rows, REPORT_ROWS / 2, REPORT_ROWS);
	for (unsigned int i = 0; i < r.nr_rows; i++) {
		assert_int_equal(r.rows[i].first, next);
		assert_int_equal(r.rows[i].start_ns, end);
		assert_in_range(r.rows[i].dirty_rate, 20 * MIB_PAGES - 1, 20 * MIB_PAGES);
		next += r.rows[i].count;
		end = r.rows[i].end_ns;
		bytes += r.rows[i].bytes;
		data += r.rows[i].data_pages;
		changes[0] += r.rows[i].delta_pages;
		changes[1] += r.rows[i].delta_bytes;
		changes[2] += r.rows[i].unchanged_pages;
	}
	assert_int_equal(next, 10001);
	assert_int_equal(end, r.total_ns);
	assert_int_equal(bytes, 100000 * MIB);
	assert_int_equal(data, r.data_pages);
	assert_int_equal(changes[0], 99990);
	assert_int_equal(changes[1], 99990000);
	assert_int_equal(changes[2], 299970);
}

/* However many late rounds follow: no row is of both kinds. */
static void late_rounds_have_rows_of_their_own(void **state)
{
	unsigned int pre_copy = 0;

	(void)state;
	sample_begin(&r);
	for (int i = 0; i < 2000; i++) {
		if (i)
			sample_next_round(&r, false);
		r.rows[r.nr_rows - 1].late = i >= 5;
		sample_end_round(&r, 100 * MS, 10, 2);
	}
	assert_in_range(r.nr_rows, REPORT_ROWS / 2, REPORT_ROWS);
	for (unsigned int i = 0; i < r.nr_rows; i++)
		pre_copy += r.rows[i].late ? 0 : r.rows[i].count;
	assert_int_equal(pre_copy, 5);
	assert_int_equal(r.rows[0].first, 1);
	assert_true(r.rows[r.nr_rows - 1].late);
}

static bool says(const char *words)
{
	static char text[8192];
	FILE *f = fmemopen(text, sizeof(text), "w");

	assert_non_null(f);
	report_print(f, &r, &(struct err) { 0 });
	fclose(f);
	return strstr(text, words);
}

static void what_was_sent_in_part_is_told(void **state)
{
	(void)state;
	sample_begin(&r);
	assert_false(says("Pages in part") || says("Unchanged pages"));
	sample_done(&r);
	assert_true(says("Pages in part            256 pages         1.0 MiB  (of it sent: 0.2 MiB)"));
	assert_true(says("Unchanged pages          768 pages         3.0 MiB"));
}

/* Of the link what there is to tell. */
static void what_the_link_does_is_told(void **state)
{
	(void)state;
	sample_done(&r);
	assert_true(says("(limit 300 ms)\n"));
	assert_false(says("resent") || says("Window full") || says("Buffer full"));
	sample_packed(&r);
	r.predicted_ns = 200 * MS;
	assert_true(says("200.0 ms   (limit 300 ms; of it 60.0 ms for what the link loses)\n"));
	assert_true(says("Segments resent          100      (0.50 % of those that rounds sent; round trip 80.0 ms; more --streams may carry more)"));
	r.streams = 16;
	assert_true(says("round trip 80.0 ms)\n"));
	assert_true(says("Window full           4000.0 ms   (of 10000.0 ms that a stream sent: the receiver reads"));
	assert_false(says("Buffer full"));
	r.link.buffer_ns = 3 * S;
	assert_true(says("Buffer full           3000.0 ms   (of 10000.0 ms that a stream sent: this host's net.ipv4.tcp_wmem"));
}

/* A failure in the middle of a round leaves a row of what was done. */
static void a_round_that_fails_has_a_row(void **state)
{
	(void)state;
	sample_begin(&r);
	sample_sent(&r, 1000, 10);
	report_round_end(&r, r.total_ns);
	assert_int_equal(r.rows[0].end_ns, 6 * S);
	assert_int_equal(r.rows[0].bytes, 500 * MIB);
	assert_int_equal(r.rows[0].pending_pages, 524 * MIB_PAGES);
}

/* While a round runs row and sums grow; what was said before does not count twice, nor what a lost link took back. */
static void pages_are_counted_once(void **state)
{
	struct report_sent sent = { .data_pages = 100, .zero_pages = 7, .same_pages = 5, .page_bytes = 1000, .packed_pages = { 1, 60, 3 } };

	(void)state;
	sample_begin(&r);
	report_round_sent(&r, &sent);
	assert_int_equal(r.data_pages, 100);
	sent.data_pages = 300;
	sent.packed_pages[1] = 200;
	report_round_sent(&r, &sent);
	report_round_sent(&r, &sent);
	sent.data_pages = 280;
	report_round_sent(&r, &sent);
	report_round_end(&r, r.total_ns);
	assert_int_equal(r.rows[0].data_pages, 280);
	sample_next_round(&r, false);
	report_round_sent(&r, &sent);
	assert_int_equal(r.data_pages, 560);
	assert_int_equal(r.zero_pages, 14);
	assert_int_equal(r.same_pages, 10);
	assert_int_equal(r.page_bytes, 2000);
	assert_int_equal(r.packed_pages[0], 2);
	assert_int_equal(r.packed_pages[1], 400);
	assert_int_equal(r.packed_pages[2], 6);
	assert_int_equal(r.rows[1].packed_pages[1], 200);
	assert_int_equal(r.rows[1].page_bytes, 1000);
}

static void make_path(char path[64])
{
	int fd;

	strcpy(path, "/tmp/godwit-report-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
}

static void json_comes_back(void **state)
{
	struct err outcome = { 0 }, e = { 0 };
	struct report_file back;
	char path[64];

	(void)state;
	sample_packed(&r);
	err_set(&outcome, GW_LINK_LOST, 1, "it said \"no\"\xff");
	make_path(path);
	assert_int_equal(report_write_json(path, &r, &outcome, &e), 0);
	assert_int_equal(report_read_json(path, &back, &e), 0);
	assert_int_equal(back.outcome.exit, GW_LINK_LOST);
	assert_string_equal(back.outcome.text, "it said \"no\"?");
	assert_string_equal(back.report.phase, "pre-copy");
	assert_string_equal(back.report.cipher, "AES-128-GCM");
	assert_int_equal(back.report.nr_rows, 2);
	/* What is not in the file. */
	back.report.phase = r.phase;
	back.report.pending_pages = r.pending_pages;
	assert_memory_equal(&back.report, &r, offsetof(struct report, rows));
	assert_memory_equal(back.report.rows, r.rows, sizeof(r.rows));
	report_file_free(&back);
	unlink(path);
}

static void read_refused(const char *path, const char *why)
{
	struct report_file back;
	struct err e = { 0 };

	assert_true(report_read_json(path, &back, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_non_null(strstr(e.text, path));
	if (!strstr(e.text, why))
		fail_msg("\"%s\" does not say \"%s\"", e.text, why);
	report_file_free(&back);
}

/* A good report with one thing changed is refused, and the message names it. */
static void spoiled(const char *object, const char *key, json_t *value, const char *why)
{
	struct err outcome = { 0 }, e = { 0 };
	char path[64];
	json_t *j, *o;

	sample_done(&r);
	make_path(path);
	assert_int_equal(report_write_json(path, &r, &outcome, &e), 0);
	j = json_load_file(path, 0, NULL);
	o = object ? json_object_get(j, object) : j;
	if (json_is_array(o))
		o = json_array_get(o, 1);
	if (value)
		json_object_set_new(o, key, value);
	else
		json_object_del(o, key);
	assert_int_equal(json_dump_file(j, path, 0), 0);
	json_decref(j);
	read_refused(path, why);
	unlink(path);
}

static void what_is_no_report_is_refused(void **state)
{
	(void)state;
	read_refused("/nowhere/run.json", "No such file");
	read_refused("/dev/null", "cannot read");
	spoiled(NULL, "phase", NULL, "phase");
	spoiled(NULL, "exit", json_integer(GW_EXITS), "exit");
	spoiled(NULL, "downtime", json_string("1"), "\"downtime\"");
	spoiled(NULL, "downtime", json_real(-1), "\"downtime\"");
	spoiled(NULL, "downtime", json_real(1e300), "\"downtime\"");
	spoiled(NULL, "verified", json_integer(1), "\"verified\"");
	spoiled(NULL, "ram", json_array(), "\"total\" in ram");
	spoiled("ram", "normal", NULL, "\"normal\" in ram");
	spoiled(NULL, "cipher", json_integer(1), "\"cipher\"");
	spoiled(NULL, "cipher", json_string("a name of more than twenty-three"), "\"cipher\"");
	spoiled("blackout", "load", NULL, "\"load\" in blackout");
	spoiled(NULL, "rounds", json_integer(3), "\"rounds\"");
	spoiled("rounds", "streams", json_real(1e18), "\"streams\"");
	spoiled("rounds", "start-time", json_real(0), "not in order");
}

/* It has not all that a report of today has, and tells of as much as it did. */
static void an_earlier_report_is_read(void **state)
{
	static const char *const lacks[] = {
		"encrypted", "kernel-tls", "cipher", "same-byte", "lz4", "zstd", "zlib", "normal-bytes", "delta", "delta-bytes",
		"unchanged", "reused", "reused-bytes", "throttle", "throttled-time", "postcopy", "reuse", "image", "link",
		"late",
	};
	struct err outcome = { 0 }, e = { 0 };
	struct report_file back;
	char path[64];
	json_t *j, *row;
	size_t at;

	(void)state;
	sample_packed(&r);
	make_path(path);
	assert_int_equal(report_write_json(path, &r, &outcome, &e), 0);
	j = json_load_file(path, 0, NULL);
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
		json_object_del(j, lacks[i]);
		json_object_del(json_object_get(j, "ram"), lacks[i]);
		json_array_foreach(json_object_get(j, "rounds"), at, row)
			json_object_del(row, lacks[i]);
	}
	assert_int_equal(json_dump_file(j, path, 0), 0);
	json_decref(j);
	if (report_read_json(path, &back, &e))
		fail_msg("%s", e.text);
	assert_int_equal(back.report.data_pages, r.data_pages);
	assert_int_equal(back.report.nr_rows, 2);
	assert_int_equal(back.report.rows[0].data_pages, r.rows[0].data_pages);
	assert_false(back.report.encrypted);
	assert_string_equal(back.report.cipher, "");
	assert_int_equal(back.report.packed_pages[1] + back.report.rows[0].page_bytes, 0);
	report_file_free(&back);
	unlink(path);
}

static void nothing_is_guessed_before_anything_is_known(void **state)
{
	uint64_t ns;

	(void)state;
	r = (struct report) { .phase = "connect" };
	assert_int_equal(report_eta(&r, &ns), ETA_UNKNOWN);
	sample_begin(&r);
	assert_int_equal(report_eta(&r, &ns), ETA_AT_LEAST);
	assert_int_equal(ns, 5240 * MS);
	r.speed.rate = 0;
	assert_int_equal(report_eta(&r, &ns), ETA_UNKNOWN);
}

/* 256 MiB are left; at 25 of 100 MiB/s the rounds are 2.56 and 0.64 s, and 0.16 s + 20 ms fit the limit. */
static void rounds_that_shrink_converge(void **state)
{
	uint64_t ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 256);
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_in_range(ns, 3379 * MS, 3381 * MS);
	/* Half a second into the next round. */
	sample_next_round(&r, false);
	r.total_ns += 500 * MS;
	r.remaining_pages = 206 * MIB_PAGES;
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_in_range(ns, 2879 * MS, 2881 * MS);
}

/* What the link may lose does not make it one that never arrives. */
static void a_loss_is_no_round_more(void **state)
{
	uint64_t ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 20);
	r.link.loss_ns = 200 * MS;
	r.predicted_ns += r.link.loss_ns;
	assert_true(r.predicted_ns > r.limit_ns);
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_int_equal(ns, r.predicted_ns);
}

static void a_guest_as_fast_as_the_link_never_arrives(void **state)
{
	uint64_t ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 1024);
	assert_int_equal(report_eta(&r, &ns), ETA_NEVER);
	r.limit_ns = 11 * S;
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
}

/* A link that is a quarter as fast, and pages that take a quarter of it: nothing else changes. */
static void packed_pages_take_less(void **state)
{
	uint64_t raw, ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 256);
	assert_int_equal(report_eta(&r, &raw), ETA_KNOWN);
	r.speed = (struct speed) { .rate = 25 * MIB, .page = PAGE_BYTES / 4 };
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_in_range(ns, raw - 1000, raw + 1000);
}

static void a_limit_below_the_fixed_part_is_never_met(void **state)
{
	uint64_t ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 1);
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_int_equal(ns, r.predicted_ns);
	r.limit_ns = 19 * MS;
	assert_int_equal(report_eta(&r, &ns), ETA_NEVER);
}

static void the_last_round_takes_what_is_left_of_it(void **state)
{
	uint64_t ns;

	(void)state;
	sample_begin(&r);
	sample_end_round(&r, 10240 * MS, 1024, 20);
	sample_next_round(&r, true);
	r.remaining_pages = 10 * MIB_PAGES;
	assert_int_equal(report_eta(&r, &ns), ETA_KNOWN);
	assert_int_equal(ns, 100 * MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_tell_of_rounds),
		cmocka_unit_test(many_rounds_fit), cmocka_unit_test(late_rounds_have_rows_of_their_own),
		cmocka_unit_test(what_was_sent_in_part_is_told), cmocka_unit_test(what_the_link_does_is_told),
		cmocka_unit_test(a_round_that_fails_has_a_row),
		cmocka_unit_test(pages_are_counted_once),
		cmocka_unit_test(json_comes_back),
		cmocka_unit_test(what_is_no_report_is_refused),
		cmocka_unit_test(an_earlier_report_is_read),
		cmocka_unit_test(nothing_is_guessed_before_anything_is_known),
		cmocka_unit_test(rounds_that_shrink_converge),
		cmocka_unit_test(a_loss_is_no_round_more), cmocka_unit_test(a_guest_as_fast_as_the_link_never_arrives),
		cmocka_unit_test(packed_pages_take_less),
		cmocka_unit_test(a_limit_below_the_fixed_part_is_never_met),
		cmocka_unit_test(the_last_round_takes_what_is_left_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
