// SPDX-License-Identifier: GPL-2.0-only
/* What is undone of a source, and what others did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "devstate/migration.h"
#include "qmp_peer.h"
#include "txn/journal.h"

/**
 * struct vm - QEMU as its answers show it; it changes as the real one does
 * @total: query-migrate's total-time; -1: none. @downtime: likewise
 * @heard: commands that change something
 * @connected: is something connected to "vu0"? To "vu1" nothing is
 */
struct vm {
	struct peer peer;
	const char *migration, *guest;
	int total, downtime;
	bool connected;
	char heard[1024];
};

static void answer(struct vm *vm, const char *command)
{
	char text[160];

	if (!strcmp(command, "query-migrate")) {
		snprintf(text, sizeof(text), vm->total < 0 ? "{\"status\": \"%s\"}" :
			 "{\"status\": \"%s\", \"total-time\": %d, \"downtime\": %d, \"ram\": {\"transferred\": 100}}", vm->migration,
			 vm->total, vm->downtime);
		peer_reply(&vm->peer, "return", text);
		return;
	}
	if (!strcmp(command, "query-status")) {
		snprintf(text, sizeof(text), "{\"status\": \"%s\"}", vm->guest);
		peer_reply(&vm->peer, "return", text);
		return;
	}
	if (!strcmp(command, "query-chardev")) {
		snprintf(text, sizeof(text), "[{\"label\": \"vu0\", \"filename\": \"%sunix:/a\"},"
			 " {\"label\": \"vu1\", \"filename\": \"disconnected:unix:/b\"}]", vm->connected ? "" : "disconnected:");
		peer_reply(&vm->peer, "return", text);
		return;
	}
	strcat(vm->heard, command);
	strcat(vm->heard, " ");
	if (!strcmp(command, "migrate_cancel")) {
		vm->migration = "cancelled";
		vm->guest = "running";
	}
	if (!strcmp(command, "cont"))
		vm->guest = "running";
	peer_reply(&vm->peer, "return", !strcmp(command, "query-fdsets") ? "[]" : "{}");
}

static void script(struct peer *p)
{
	struct vm *vm = (struct vm *)((char *)p - offsetof(struct vm, peer));

	peer_negotiate(p);
	while (peer_line(p)) {
		json_auto_t *j = json_loads(p->line, 0, NULL);
		const char *command = json_string_value(json_object_get(j, "execute"));

		if (command)
			answer(vm, command);
	}
}

enum did { MIGRATED = 1, ACCEPTED = 2, REFUSED = 4, CONTINUED = 8, COMPLETED = 16, STOPPED = 32, SET = 64, LINKS = 128 };

#define AGE_S	60u	/* since it began */

static unsigned int continued_s;	/* ago, and */
static bool left;		/* what the last journal said of the guest */
static bool then_all;		/* is undone, after that */

static void age(struct journal *j)
{
	for (size_t i = 0; i < json_array_size(j->records); i++) {
		json_t *record = json_array_get(j->records, i);

		if (json_object_get(record, "began"))
			json_object_set_new(record, "began", json_integer((json_int_t)(now_ns() - AGE_S * 1000000000ull)));
		if (json_object_get(record, "since"))
			json_object_set_new(record, "since", json_integer((json_int_t)(now_ns() - continued_s * 1000000000ull)));
		if (json_object_get(record, "at"))	/* QEMU took five seconds to answer */
			json_object_set_new(record, "at", json_integer((json_int_t)(now_ns() - (AGE_S - 5) * 1000000000ull)));
	}
}

/*
 * What a journal of these makes of a VM in this state: the commands that change something. later: what has become of the VM
 * since; NULL: nothing.
 */
static const char *undone(struct vm *vm, unsigned int did, enum undo_what what, const struct vm *later)
{
	struct journal j = { .pipe = -1 };
	struct migration_status last;
	struct err e = { 0 };
	struct qmp *q;

	assert_int_equal(peer_start(&vm->peer, script, NULL, 1), 0);
	assert_int_equal(qmp_open(vm->peer.path, 2000, &q, &e), 0);
	assert_int_equal(journal_open(&j, &e), 0);
	if (did & SET)
		assert_int_equal(journal_command(&j, "migrate-set-parameters", json_object(), true, &e), 0);
	if (did & MIGRATED)
		assert_int_equal(journal_migrate(&j, true, &e), 0);
	if (did & ACCEPTED)
		assert_int_equal(journal_accepted(&j, &e), 0);
	if (did & REFUSED)
		journal_refused(&j);
	if (did & LINKS)
		assert_int_equal(journal_links(&j, json_pack("[{s:s, s:s}, {s:s, s:s}]", "name", "hn0", "chardev", "vu0",
							     "name", "hn1", "chardev", "vu1"), &e), 0);
	if (did & CONTINUED)
		assert_int_equal(journal_continue(&j, &e), 0);
	if (did & COMPLETED)
		assert_int_equal(journal_completed(&j, q, true, &e), 0);
	if (did & STOPPED) {
		assert_int_equal(migration_query(q, &last, &e), 0);
		assert_int_equal(journal_stop(&j, &last, &e), 0);
	}
	age(&j);
	if (later) {
		vm->migration = later->migration;
		vm->guest = later->guest;
		vm->total = later->total;
		vm->downtime = later->downtime;
	}
	assert_int_equal(journal_undo(&j, q, what, &e), 0);
	if (what == UNDO_ALL)
		assert_int_equal(json_array_size(j.records), 0);
	if (then_all)
		assert_int_equal(journal_undo(&j, q, UNDO_ALL, &e), 0);
	left = j.left;
	journal_close(&j);
	qmp_close(q);
	peer_stop(&vm->peer);
	return vm->heard;
}

#define VM(m, g, t, d) ((struct vm) { .migration = m, .guest = g, .total = t, .downtime = d })

static void ours_is_cancelled(void **state)
{
	struct vm vm = VM("pre-switchover", "finish-migrate", 60000, -1);

	(void)state;
	assert_string_equal(undone(&vm, SET | MIGRATED | ACCEPTED, UNDO_ALL, NULL), "migrate_cancel migrate-set-parameters ");
	/* QEMU was slow to begin. */
	vm = VM("pre-switchover", "finish-migrate", 56000, -1);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED, UNDO_ALL, NULL), "migrate_cancel ");
	/* Of one that was not answered, the journal cannot tell how slow. */
	vm = VM("active", "running", 20000, -1);
	assert_string_equal(undone(&vm, MIGRATED, UNDO_ALL, NULL), "migrate_cancel ");
}

static void somebody_elses_is_not(void **state)
{
	struct vm vm = VM("active", "running", 20000, -1);

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED, UNDO_ALL, NULL), "");
	/* It was there when ours was refused. */
	vm = VM("active", "running", 60100, -1);
	assert_string_equal(undone(&vm, MIGRATED | REFUSED, UNDO_ALL, NULL), "");
	vm = VM("active", "running", 90000, -1);
	assert_string_equal(undone(&vm, MIGRATED, UNDO_ALL, NULL), "");
}

static void a_guest_that_was_moved_elsewhere_stays(void **state)
{
	const struct vm moved = VM("completed", "postmigrate", 20000, 70);
	struct vm vm = moved;

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED, UNDO_ALL, NULL), "");
	vm = moved;
	assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "");
	assert_true(left);
	vm = moved;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED, UNDO_ALL, NULL), "");
	assert_true(left);
	/* Ours had completed before, and was forgotten: an operator let the guest run, and moved it. */
	vm = VM("completed", "postmigrate", 300, 70);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_ALL, &moved), "");
	assert_true(left);
}

/* We died between QEMU's "completed" and the record of it, after a blackout that was much longer than what followed. */
static void one_that_completed_unheard_comes_back(void **state)
{
	const struct vm ours = VM("completed", "postmigrate", 58000, 57000);
	struct vm vm = ours;

	(void)state;
	continued_s = 2;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED, UNDO_ALL, NULL), "cont ");
	assert_false(left);
	/* It took less time than ours had stood in pre-switchover. */
	vm = VM("completed", "postmigrate", 1500, 70);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED, UNDO_ALL, NULL), "");
	assert_true(left);
	/* Long ago: an operator could have done anything in between. */
	continued_s = 30;
	vm = ours;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED, UNDO_ALL, NULL), "");
	assert_true(left);
}

static void one_that_we_moved_comes_back(void **state)
{
	struct vm vm = VM("completed", "postmigrate", 300, 70);

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_ALL, NULL), "cont ");
}

/*
 * Links that came up between the two are no reason not to know it, and go down first. Where the backend is back QEMU has the
 * link up, and it stays so, however often this is done.
 */
static void links_go_down_where_backends_are_dead(void **state)
{
	struct vm vm = VM("completed", "postmigrate", 300, 70);

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | LINKS | CONTINUED | COMPLETED, UNDO_ALL, NULL),
			    "set_link set_link cont ");
	assert_false(left);
	vm = VM("completed", "postmigrate", 300, 70);
	vm.connected = true;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | LINKS | CONTINUED | COMPLETED, UNDO_ALL, NULL), "set_link cont ");
	continued_s = 2;
	vm = VM("completed", "postmigrate", 58000, 57000);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | LINKS | CONTINUED, UNDO_ALL, NULL), "set_link set_link cont ");
	vm = VM("pre-switchover", "finish-migrate", 60000, -1);
	assert_string_equal(undone(&vm, SET | MIGRATED | ACCEPTED | LINKS, UNDO_ALL, NULL),
			    "set_link set_link migrate_cancel migrate-set-parameters ");
	/* The guest runs there, and has its links. */
	vm = VM("completed", "postmigrate", 300, 70);
	assert_string_equal(undone(&vm, SET | MIGRATED | ACCEPTED | LINKS | CONTINUED | COMPLETED, UNDO_SETTINGS, NULL),
			    "migrate-set-parameters ");
}

static void a_guest_that_was_stopped_by_others_stays(void **state)
{
	struct vm vm = VM("cancelled", "paused", -1, -1);

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED, UNDO_ALL, NULL), "");
	/* Stopped while QEMU's migration ran: then that does not let it run. */
	vm = VM("cancelled", "postmigrate", -1, -1);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED, UNDO_ALL, NULL), "");
	vm = VM("none", "paused", -1, -1);
	assert_string_equal(undone(&vm, SET, UNDO_ALL, NULL), "migrate-set-parameters ");
}

static void one_that_we_stopped_runs(void **state)
{
	struct vm vm = VM("none", "paused", -1, -1);

	(void)state;
	assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "cont ");
	assert_false(left);
	vm = VM("none", "running", -1, -1);
	assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "");
	assert_false(left);
	/* It sleeps, and its QEMU runs. */
	vm = VM("none", "suspended", -1, -1);
	assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "");
	assert_false(left);
}

/* By itself, at the moment in which it was stopped, or by an operator. */
static void one_that_was_reset_runs_on(void **state)
{
	static const char *const last[] = { "none", "failed", "cancelled", "completed" };

	(void)state;
	for (size_t i = 0; i < sizeof(last) / sizeof(last[0]); i++) {
		struct vm vm = VM(last[i], "prelaunch", i < 3 ? -1 : 20000, i < 3 ? -1 : 70);

		assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "cont ");
		assert_false(left);
	}
}

/* What has moved, and is ours, has not moved far. */
static void one_that_we_moved_and_they_reset_runs_on(void **state)
{
	const struct vm reset = VM("completed", "prelaunch", 300, 70), other = VM("completed", "prelaunch", 20000, 70);
	struct vm vm = VM("completed", "postmigrate", 300, 70);

	(void)state;
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_ALL, &reset), "cont ");
	assert_false(left);
	vm = VM("completed", "postmigrate", 300, 70);
	assert_string_equal(undone(&vm, MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_ALL, &other), "");
	assert_true(left);
}

/* The guest stands still by what another client has done since: nothing is as it was. */
static void one_that_others_have_saved_stays(void **state)
{
	const struct vm stopped[] = {
		VM("completed", "postmigrate", 20000, 70), VM("completed", "finish-migrate", 20000, 70),
		/* Reset behind that; and sent once more, without success. */
		VM("completed", "prelaunch", 20000, 70), VM("failed", "prelaunch", -1, -1),
	};
	static const char *const by_itself[] = { "shutdown", "io-error", "guest-panicked" };

	(void)state;
	for (size_t i = 0; i < sizeof(stopped) / sizeof(stopped[0]); i++) {
		struct vm vm = VM("none", "running", -1, -1);

		assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, &stopped[i]), "");
		assert_true(left);
	}
	for (size_t i = 0; i < sizeof(by_itself) / sizeof(by_itself[0]); i++) {
		struct vm vm = VM("completed", by_itself[i], 20000, 70);

		assert_string_equal(undone(&vm, STOPPED, UNDO_ALL, NULL), "");
		assert_false(left);
	}
}

static void behind_the_commit_point_only_settings(void **state)
{
	struct vm vm = VM("completed", "postmigrate", 300, 70);

	(void)state;
	assert_string_equal(undone(&vm, SET | MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_SETTINGS, NULL),
			    "migrate-set-parameters ");
}

/* In doubt settings go back at once; what is found out later is done all the same. */
static void behind_the_settings_the_rest(void **state)
{
	struct vm vm = VM("completed", "postmigrate", 300, 70);

	(void)state;
	then_all = true;
	assert_string_equal(undone(&vm, SET | MIGRATED | ACCEPTED | CONTINUED | COMPLETED, UNDO_SETTINGS, NULL),
			    "migrate-set-parameters cont ");
	then_all = false;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(ours_is_cancelled),
	cmocka_unit_test(somebody_elses_is_not),
	cmocka_unit_test(a_guest_that_was_moved_elsewhere_stays),
	cmocka_unit_test(one_that_completed_unheard_comes_back),
	cmocka_unit_test(one_that_we_moved_comes_back),
	cmocka_unit_test(links_go_down_where_backends_are_dead),
	cmocka_unit_test(a_guest_that_was_stopped_by_others_stays),
	cmocka_unit_test(one_that_we_stopped_runs),
	cmocka_unit_test(one_that_was_reset_runs_on),
	cmocka_unit_test(one_that_we_moved_and_they_reset_runs_on),
	cmocka_unit_test(one_that_others_have_saved_stays),
	cmocka_unit_test(behind_the_commit_point_only_settings),
	cmocka_unit_test(behind_the_settings_the_rest),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
