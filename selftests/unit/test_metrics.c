// SPDX-License-Identifier: GPL-2.0-only
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "report/metrics.h"
#include "sample_report.h"

static struct report r;
static char directory[64], path[80];

static int setup(void **state)
{
	(void)state;
	strcpy(directory, "/tmp/godwit-metrics-XXXXXX");
	assert_non_null(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/m.prom", directory);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	/* Fails if anything else was left in it. */
	return rmdir(directory);
}

static void read_back(char text[8192])
{
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(text, 1, 8191, f);
	text[n] = '\0';
	fclose(f);
}

static void has(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no \"%s\" in:\n%s", line, text);
}

static void base_units_and_kubevirt_names(void **state)
{
	struct err e = { 0 };
	char text[8192];

	(void)state;
	sample_begin(&r);
	report_round_sent(&r, &(struct report_sent) { .delta_pages = 2, .delta_bytes = 1536, .unchanged_pages = 5 });
	r.link = (struct report_link) { .rtt_ns = 80 * MS, .segments = 20000, .again = 100 };
	assert_int_equal(metrics_write(path, "/run/a.qmp", &r, NULL, &e), 0);
	read_back(text);
	has(text, "\ngodwit_migration_link_round_trip_seconds{qmp=\"/run/a.qmp\"} 0.080000\n");
	has(text, "\ngodwit_migration_link_segments{qmp=\"/run/a.qmp\"} 20000\n");
	has(text, "\ngodwit_migration_link_segments_resent{qmp=\"/run/a.qmp\"} 100\n");
	has(text, "\ngodwit_migration_page_delta_bytes{qmp=\"/run/a.qmp\"} 8192\n");
	has(text, "\ngodwit_migration_page_delta_changed_bytes{qmp=\"/run/a.qmp\"} 1536\n");
	has(text, "\ngodwit_migration_page_unchanged_bytes{qmp=\"/run/a.qmp\"} 20480\n");
	has(text, "\ngodwit_migration_data_remaining_bytes{qmp=\"/run/a.qmp\"} 549453824\n");
	has(text, "\ngodwit_migration_data_processed_bytes{qmp=\"/run/a.qmp\"} 524288000\n");
	has(text, "\ngodwit_migration_memory_transfer_rate_bytes{qmp=\"/run/a.qmp\"} 104857600\n");
	has(text, "\ngodwit_migration_start_time_seconds{qmp=\"/run/a.qmp\"} 1700000000.000\n");
	has(text, "\ngodwit_migration_succeeded{qmp=\"/run/a.qmp\"} 0\n");
	has(text, "\ngodwit_migration_failed{qmp=\"/run/a.qmp\"} 0\n");
	assert_null(strstr(text, "end_time"));
	assert_null(strstr(text, "migration_downtime_seconds"));
}

static void the_end_is_told(void **state)
{
	struct err e = { 0 }, outcome = { 0 };
	char text[8192];

	(void)state;
	sample_done(&r);
	assert_int_equal(metrics_write(path, "a", &r, &outcome, &e), 0);
	read_back(text);
	has(text, "_succeeded{qmp=\"a\"} 1\n");
	has(text, "_failed{qmp=\"a\"} 0\n");
	has(text, "_end_time_seconds{qmp=\"a\"} 1700000013.770\n");
	has(text, "_downtime_seconds{qmp=\"a\"} 0.215000\n");
	err_set(&outcome, GW_TIMEOUT, 1, "silence");
	assert_int_equal(metrics_write(path, "a", &r, &outcome, &e), 0);
	read_back(text);
	has(text, "_succeeded{qmp=\"a\"} 0\n");
	has(text, "_failed{qmp=\"a\"} 1\n");
	assert_null(strstr(text, "migration_downtime_seconds"));
}

/* Before and after, by what, of the round under way as well; and what encrypts it. */
static void compression_is_told(void **state)
{
	struct err e = { 0 };
	char text[8192];

	(void)state;
	sample_packed(&r);
	assert_int_equal(metrics_write(path, "a", &r, NULL, &e), 0);
	read_back(text);
	has(text, "_page_data_bytes{qmp=\"a\"} 1258291200\n");
	has(text, "_page_data_compressed_bytes{qmp=\"a\"} 576716800\n");
	has(text, "_page_data_lz4_bytes{qmp=\"a\"} 262144000\n");
	has(text, "_page_data_zstd_bytes{qmp=\"a\"} 524288000\n");
	has(text, "_page_data_zlib_bytes{qmp=\"a\"} 209715200\n");
	has(text, "_page_constant_bytes{qmp=\"a\"} 25165824\n");
	has(text, "_encrypted{qmp=\"a\"} 1\n");
	has(text, "_kernel_tls{qmp=\"a\"} 1\n");
}

static void a_label_cannot_break_out(void **state)
{
	struct err e = { 0 };
	char text[8192];

	(void)state;
	sample_begin(&r);
	assert_int_equal(metrics_write(path, "a\"\\\nb", &r, NULL, &e), 0);
	read_back(text);
	has(text, "_rounds{qmp=\"a\\\"\\\\\\nb\"} 1\n");
}

static void a_place_that_is_none_is_refused(void **state)
{
	struct err e = { 0 };

	(void)state;
	assert_true(metrics_write("/nowhere/m.prom", "a", &r, NULL, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	has(e.text, "/nowhere/m.prom: No such file or directory");
	/* A directory stands where the file should: what was written beside it goes. */
	e = (struct err) { 0 };
	*strrchr(path, '/') = '\0';
	assert_true(metrics_write(path, "a", &r, NULL, &e) < 0);
	strcat(path, ".tmp");
	assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(base_units_and_kubevirt_names, setup, teardown),
		cmocka_unit_test_setup_teardown(the_end_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(compression_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(a_label_cannot_break_out, setup, teardown),
		cmocka_unit_test_setup_teardown(a_place_that_is_none_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
