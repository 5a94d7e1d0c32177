// SPDX-License-Identifier: GPL-2.0-only
/* What a running migration answers, to whatever it is asked. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/stop.h"
#include "control/client.h"
#include "control/server.h"
#include "wire/wire.h"

struct rig {
	struct control c;
	struct report report;
	struct limits limits;
	struct pace pace;
	_Atomic uint32_t compress;
	uint64_t features;
	struct err no_postcopy;
	char answer[LINE_SOCKET_LINE];
};

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	rig->report.phase = "pre-copy";
	rig->limits = limits_default;
	pace_init(&rig->pace, 0);
	rig->c = (struct control) { .vm_pid = 4711, .qmp_path = "/run/guest.qmp", .addr = "there:4433", .report = &rig->report,
				    .limits = &rig->limits, .pace = &rig->pace, .compress = &rig->compress,
				    .features = &rig->features, .no_postcopy = &rig->no_postcopy, .socket = { .lfd = -1 } };
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* The member "return" or "error" of the answer; a new reference. */
static json_t *ask(struct rig *rig, const char *line, const char *kind)
{
	json_auto_t *j = NULL;
	json_t *what;

	assert_true(control_answer(&rig->c, line, rig->answer));
	assert_null(strchr(rig->answer, '\n'));
	assert_true(strlen(rig->answer) < LINE_SOCKET_LINE);
	j = json_loads(rig->answer, 0, NULL);
	assert_non_null(j);
	assert_int_equal(json_object_size(j), 1);
	what = json_object_get(j, kind);
	if (!what)
		print_error("%s -> %s\n", line, rig->answer);
	assert_non_null(what);
	return json_incref(what);
}

static void assert_refused(struct rig *rig, const char *line, const char *word)
{
	json_auto_t *error = ask(rig, line, "error");

	assert_int_equal(json_integer_value(json_object_get(error, "exit")), GW_USAGE);
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), word));
}

static void query_tells_what_it_is(void **state)
{
	struct rig *rig = *state;
	json_auto_t *ret = ask(rig, "{\"execute\": \"query\"}", "return");

	assert_int_equal(json_integer_value(json_object_get(ret, "vm")), 4711);
	assert_string_equal(json_string_value(json_object_get(ret, "qmp")), "/run/guest.qmp");
	assert_string_equal(json_string_value(json_object_get(ret, "to")), "there:4433");
	assert_string_equal(json_string_value(json_object_get(ret, "phase")), "pre-copy");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(ret, "limits"), "downtime-limit")), 300);
}

static void set_changes_what_it_names(void **state)
{
	struct rig *rig = *state;
	json_auto_t *ret = ask(rig, "{\"execute\": \"set\", \"arguments\": {\"bandwidth\": 7, \"on-timeout\": \"pause\", "
			       "\"timeout\": 90, \"downtime-limit\": 5, \"downtime-ramp\": 50, \"max-rounds\": 9, \"compress\": \"zstd:7\"}}", "return");
	struct codec_wish compress = codec_word_wish(rig->compress);

	assert_int_equal(rig->limits.downtime_limit_ms, 5);
	assert_int_equal(rig->limits.downtime_ramp_ms, 50);
	assert_int_equal(rig->limits.max_rounds, 9);
	assert_int_equal(rig->limits.timeout_s, 90);
	assert_int_equal(rig->limits.on_timeout, ON_TIMEOUT_PAUSE);
	assert_int_equal(rig->limits.bandwidth_mib, 7);
	/* What the streams look at, and what a query says. */
	assert_ptr_equal(compress.choice.codec, &codec_zstd);
	assert_int_equal(compress.choice.level, 7);
	assert_string_equal(json_string_value(json_object_get(ret, "compress")), "zstd:7");
	assert_int_equal(json_integer_value(json_object_get(ret, "bandwidth")), 7);
	assert_string_equal(json_string_value(json_object_get(ret, "on-timeout")), "pause");
	/* It holds at once: the first burst is free, the second waits for its turn. */
	pace_take(&rig->pace, 7 << 20, 1000000000);
	assert_in_range(pace_take(&rig->pace, 1, 1000000000), 1900000000, 2000000000);
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"bandwidth\": 0}}", "return"));
	assert_int_equal(pace_take(&rig->pace, 1, 1000000000), 1000000000);
	assert_int_equal(rig->limits.max_rounds, 9);
}

static void set_is_all_or_nothing(void **state)
{
	static const struct { const char *args, *word; } cases[] = {
		{ "{\"max-rounds\": 5, \"downtime-limit\": 0}", "--downtime-limit" },
		{ "{\"max-rounds\": 5, \"downtime-limit\": -1}", "--downtime-limit" },
		{ "{\"max-rounds\": 5, \"downtime-limit\": 4294967597}", "--downtime-limit" },
		{ "{\"max-rounds\": 5, \"downtime-limit\": \"7\"}", "whole number" },
		{ "{\"max-rounds\": 5, \"downtime-limit\": 7.5}", "whole number" },
		{ "{\"max-rounds\": 5, \"downtime-limit\": null}", "whole number" },
		{ "{\"max-rounds\": 5, \"on-timeout\": \"later\"}", "\"pause\"" },
		{ "{\"max-rounds\": 5, \"on-timeout\": 1}", "string" },
		{ "{\"max-rounds\": 5, \"speed\": 1}", "speed" },
		{ "{\"max-rounds\": 5, \"compress\": \"zstd:20\"}", "--compress" },
		{ "{\"max-rounds\": 5, \"compress\": 1}", "string" },
		{ "{\"max-rounds\": 5, \"postcopy\": \"soon\"}", "\"auto\", \"on\" or \"now\"" },
		{ "[5]", "object" }, { "5", "object" }, { "null", "object" },
	};
	struct rig *rig = *state;
	char line[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		snprintf(line, sizeof(line), "{\"execute\": \"set\", \"arguments\": %s}", cases[i].args);
		assert_refused(rig, line, cases[i].word);
		assert_memory_equal(&rig->limits, &limits_default, sizeof(limits_default));
	}
	assert_refused(rig, "{\"execute\": \"set\"}", "object");
	assert_int_equal(rig->compress, 0);
}

/* What the receiver does not have is refused, once that is known; what it has is not, nor are auto and off. */
static void set_asks_what_both_ends_have(void **state)
{
	static const char zlib[] = "{\"execute\": \"set\", \"arguments\": {\"compress\": \"zlib\", \"max-rounds\": 5}}";
	struct rig *rig = *state;
	json_auto_t *error = NULL;

	json_decref(ask(rig, zlib, "return"));
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"compress\": \"off\", \"max-rounds\": 30}}", "return"));
	rig->features = WIRE_ONE_WAY | WIRE_LZ4;
	error = ask(rig, zlib, "error");
	assert_int_equal(json_integer_value(json_object_get(error, "exit")), GW_VERSION);
	assert_int_equal(rig->limits.max_rounds, 30);
	assert_int_equal(codec_word_wish(rig->compress).kind, CODEC_OFF);
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"compress\": \"lz4\"}}", "return"));
	assert_ptr_equal(codec_word_wish(rig->compress).choice.codec, &codec_lz4);
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"compress\": \"auto\"}}", "return"));
	assert_int_equal(codec_word_wish(rig->compress).kind, CODEC_AUTO);
}

/* Whoever began without it is told why; what is no change is none. */
static void set_slows_until_the_switchover(void **state)
{
	static const struct { const char *text, *shown; unsigned int percent; } good[] = {
		{ "auto", "auto", THROTTLE_AUTO }, { "99", "99", 99 }, { "1", "1", 1 }, { "off", "off", 0 },
	};
	static const char *const bad[] = { "0", "100", "-1", "fast", "", "5%" };
	struct rig *rig = *state;
	char line[120];
	json_t *got;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(line, sizeof(line), "{\"execute\": \"set\", \"arguments\": {\"throttle\": \"%s\"}}", good[i].text);
		got = ask(rig, line, "return");
		assert_string_equal(json_string_value(json_object_get(got, "throttle")), good[i].shown);
		assert_int_equal(rig->limits.throttle, good[i].percent);
		json_decref(got);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(line, sizeof(line), "{\"execute\": \"set\", \"arguments\": {\"throttle\": \"%s\"}}", bad[i]);
		got = ask(rig, line, "error");
		assert_non_null(strstr(json_string_value(json_object_get(got, "message")), "per cent from 1 to 99"));
		json_decref(got);
	}
	rig->report.phase = "switchover";
	got = ask(rig, "{\"execute\": \"set\", \"arguments\": {\"throttle\": \"50\"}}", "error");
	assert_non_null(strstr(json_string_value(json_object_get(got, "message")), "too late"));
	json_decref(got);
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"throttle\": \"off\", \"max-rounds\": 9}}", "return"));
}

static void set_chooses_postcopy_where_it_can(void **state)
{
	static const char now[] = "{\"execute\": \"set\", \"arguments\": {\"postcopy\": \"now\"}}";
	struct rig *rig = *state;
	json_auto_t *error = NULL;

	json_decref(ask(rig, now, "return"));
	assert_int_equal(rig->limits.postcopy, POSTCOPY_NOW);
	/* The round is cut: what is left of it would be sent in the blackout. */
	error = ask(rig, "{\"execute\": \"set\", \"arguments\": {\"postcopy\": \"off\"}}", "error");
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "too late"));
	assert_int_equal(rig->limits.postcopy, POSTCOPY_NOW);
	json_decref(error);
	rig->limits.postcopy = POSTCOPY_OFF;
	rig->report.phase = "switchover";
	error = ask(rig, now, "error");
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "too late"));
	assert_int_equal(rig->limits.postcopy, POSTCOPY_OFF);
	json_decref(error);
	rig->report.phase = "pre-copy";
	err_set(&rig->no_postcopy, GW_NO_MODULE, ENOENT, "there is no module");
	error = ask(rig, now, "error");
	assert_int_equal(json_integer_value(json_object_get(error, "exit")), GW_NO_MODULE);
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "there is no module"));
	assert_int_equal(rig->limits.postcopy, POSTCOPY_OFF);
	json_decref(ask(rig, "{\"execute\": \"set\", \"arguments\": {\"postcopy\": \"off\", \"max-rounds\": 9}}", "return"));
	assert_int_equal(rig->limits.max_rounds, 9);
}

static void what_makes_no_sense_is_refused(void **state)
{
	static const char *const lines[] = {
		"", "x", "{", "[]", "null", "\"cancel\"", "{}", "{\"execute\": 1}", "{\"execute\": \"quit\"}", "{\"execute\": null}",
		"{\"execute\": \"cancel\", \"execute\": \"query\"}", "{\"execute\": \"cancel\"} {}", "\xff\xfe", "{\"execute\": \"\\u0000cancel\"}",
	};
	struct rig *rig = *state;
	char deep[LINE_SOCKET_LINE];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_refused(rig, lines[i], "query");
	memset(deep, '[', sizeof(deep));
	deep[sizeof(deep) - 1] = '\0';
	assert_refused(rig, deep, "query");
	assert_false(stop_requested());
}

static void an_answer_that_is_too_long_is_an_error(void **state)
{
	struct rig *rig = *state;

	memset(rig->c.qmp_path, 'q', LINE_SOCKET_LINE);
	json_decref(ask(rig, "{\"execute\": \"query\"}", "error"));
}

/* A file's name may be any bytes, and so may what QEMU says. */
static void what_is_no_utf8_is_answered(void **state)
{
	struct rig *rig = *state;
	json_auto_t *ret = NULL, *error = NULL;
	char path[32];

	strcpy(rig->c.qmp_path, "/run/\xff.qmp");
	rig->c.addr = "unix:/\xfe";
	ret = ask(rig, "{\"execute\": \"query\"}", "return");
	assert_string_equal(path_from_json(json_object_get(ret, "qmp"), path, sizeof(path)), rig->c.qmp_path);
	assert_string_equal(json_string_value(json_object_get(ret, "to")), "unix:/?");
	err_set(&rig->no_postcopy, GW_QMP, EIO, "QEMU says \xff");
	error = ask(rig, "{\"execute\": \"set\", \"arguments\": {\"postcopy\": \"on\"}}", "error");
	assert_int_equal(json_integer_value(json_object_get(error, "exit")), GW_QMP);
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "QEMU says ?"));
}

static void *cancel(void *arg)
{
	struct control_which which = { .control = arg };
	struct err e = { 0 };
	json_t *ret;

	return control_ask(&which, "cancel", NULL, &ret, &e) ? NULL : ret;
}

/* Also if it is in no words of UTF-8. */
static void the_outcome_is_told(void **state)
{
	char dir[] = "/tmp/godwit-control-XXXXXX", path[64];
	struct rig *rig = *state;
	struct err outcome = { 0 };
	json_auto_t *ret = NULL;
	pthread_t thread;
	void *said;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	assert_int_equal(control_open(&rig->c, path, &outcome), 0);
	assert_int_equal(pthread_create(&thread, NULL, cancel, path), 0);
	while (!stop_requested()) {
		control_serve(&rig->c);
		nap_ms(1);
	}
	err_set(&outcome, GW_CANCELLED, ECANCELED, "cancelled \xff");
	control_close(&rig->c, &outcome);
	pthread_join(thread, &said);
	ret = said;
	assert_non_null(ret);
	assert_int_equal(json_integer_value(json_object_get(ret, "exit")), GW_CANCELLED);
	assert_string_equal(json_string_value(json_object_get(ret, "message")), "cancelled ?");
	assert_int_equal(rmdir(dir), 0);
}

static void command_line_limits(void **state)
{
	struct limits l = limits_default;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(limits_set(&l, "bandwidth", "100", &e), 0);
	assert_int_equal(limits_set(&l, "on-timeout", "pause", &e), 0);
	assert_int_equal(l.bandwidth_mib, 100);
	assert_int_equal(l.on_timeout, ON_TIMEOUT_PAUSE);
	for (const char *const *bad = (const char *const[]){ "soon", "", "1x", "-1", "99999999999999999999", "10001", NULL }; *bad; bad++) {
		e.exit = GW_OK;
		assert_int_equal(limits_set(&l, "max-rounds", *bad, &e), -EINVAL);
		assert_int_equal(e.exit, GW_USAGE);
		assert_non_null(strstr(e.text, "--max-rounds"));
		assert_int_equal(l.max_rounds, limits_default.max_rounds);
	}
}

/* Last: a request is for ever. */
static void cancel_is_answered_at_the_end_or_too_late(void **state)
{
	struct rig *rig = *state;
	json_auto_t *error = NULL;

	assert_false(control_answer(&rig->c, "{\"execute\": \"cancel\"}", rig->answer));
	assert_true(stop_requested());
	stop_ignore();
	error = ask(rig, "{\"execute\": \"cancel\"}", "error");
	assert_int_equal(json_integer_value(json_object_get(error, "exit")), GW_NO_MIGRATION);
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "too late to cancel: the device state is on its way"));
	json_decref(error);
	rig->report.phase = "post-copy";
	error = ask(rig, "{\"execute\": \"cancel\"}", "error");
	assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "too late to cancel: the guest runs at the destination"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(query_tells_what_it_is, setup, teardown),
		cmocka_unit_test_setup_teardown(set_changes_what_it_names, setup, teardown),
		cmocka_unit_test_setup_teardown(set_is_all_or_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(set_asks_what_both_ends_have, setup, teardown),
		cmocka_unit_test_setup_teardown(set_slows_until_the_switchover, setup, teardown),
		cmocka_unit_test_setup_teardown(set_chooses_postcopy_where_it_can, setup, teardown),
		cmocka_unit_test_setup_teardown(what_makes_no_sense_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_answer_that_is_too_long_is_an_error, setup, teardown),
		cmocka_unit_test_setup_teardown(command_line_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_utf8_is_answered, setup, teardown),
		cmocka_unit_test_setup_teardown(the_outcome_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(cancel_is_answered_at_the_end_or_too_late, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
