// SPDX-License-Identifier: GPL-2.0-only
/* The note of a sender that has ended, and what `send --recover` makes of it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "doubt_rig.h"

/* The receiver may know RAM by its place only: which names its backends have there is a matter of its command line. */
static void assert_says_where_ram_is(const struct answering *a)
{
	const uint8_t *at = a->more + WIRE_SECRET;
	struct wire_block b;
	struct wire_header h;

	assert_true(a->n_more > WIRE_SECRET + WIRE_HEADER);
	wire_get_header(at, &h);
	assert_int_equal(h.type, WIRE_BLOCKS);
	assert_int_equal(h.arg, 1);
	assert_int_equal(wire_get_blocks(at + WIRE_HEADER, h.length, &b, 1), 0);
	assert_true(b.address == PLACE);
}

/* What `send --recover` ends with when RECOVER is answered so, and the link is lost then. */
static int take_over(const struct wire_header *says, struct err *e)
{
	static struct report report;
	struct answering a = { .says = *says };
	const struct sender_options o = { .recover = true, .recover_s = 3, .timeout_ms = 3000, .addr = a.path, .engine = engine };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .owing = OWING_NONE,
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = COMMIT_PREPARED, .note = RECORD_NONE,
	};
	pthread_t thread;

	answering_begin(&a, &thread);
	*e = (struct err) { 0 };
	owing_take_over(&s, e);
	answering_end(&a, &thread);
	assert_int_equal(a.asked, WIRE_RECOVER);
	assert_says_where_ram_is(&a);
	owing_free(&s);
	s.source->ops->close(s.source, false);
	json_decref(s.note_before);
	return (int)e->exit;
}

static void a_sender_that_takes_over_notes_it(void **state)
{
	const struct wire_header owed = { .type = WIRE_POSTCOPY_ASK, .arg = 1, .length = 4 };
	const struct wire_header lost = { .type = WIRE_ABORT, .arg = GW_GUEST_LOST, .length = 4 };
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(unknowing) / sizeof(unknowing[0]); i++) {
		have_note(unknowing[i]);
		assert_int_equal(take_over(&owed, &e), GW_INCOMPLETE);
		assert_a_lie_changes_nothing();
		have_note(unknowing[i]);
		assert_int_equal(take_over(&lost, &e), GW_GUEST_LOST);
		assert_a_lie_changes_nothing();
	}
}

/* It believes no more than was said, and says no more than the note. */
static void one_that_hears_nothing_notes_nothing(void **state)
{
	const struct wire_header others[] = {
		{ .type = WIRE_ABORT, .arg = GW_BUSY, .length = 4 },
		{ .type = WIRE_ABORT, .arg = GW_NO_MIGRATION, .length = 4 },
		{ .type = WIRE_PONG, .length = 8 },
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		have_note(unknowing[i % 2]);
		assert_int_equal(take_over(&others[i], &e), GW_UNKNOWN);
		assert_non_null(strstr(e.text, "\"godwit resolve\""));
		assert_null(strstr(e.text, "the guest runs"));
		assert_note_knows(false);
		have_note("{" NOTE ",\"ran\":true}");
		assert_int_equal(take_over(&others[i], &e), GW_INCOMPLETE);
		assert_non_null(strstr(e.text, "the guest runs"));
	}
}

/* What `send --recover` ends with where no receiver is asked. text: NULL: the note that is there. */
static int is_refused(const char *text, struct err *e)
{
	static struct report report;
	const struct sender_options o = { .recover = true, .timeout_ms = 1000, .addr = "unix:/nowhere/at/all", .engine = engine };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .owing = OWING_NONE,
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = COMMIT_PREPARED, .note = RECORD_NONE,
	};

	if (text)
		have_note(text);
	*e = (struct err) { 0 };
	owing_take_over(&s, e);
	owing_free(&s);
	if (s.source)
		s.source->ops->close(s.source, false);
	json_decref(s.note_before);
	return (int)e->exit;
}

/* Another client has continued the guest here, and stopped it again: RAM is of another history than what has moved. */
static void what_has_run_here_since_is_not_sent(void **state)
{
	static const struct {
		const char *more, *now;
		int disk;
		bool refused;
	} each[] = {
		{ "\"state\":\"postmigrate\"", "postmigrate", 0, false },
		/* The run state says it all: of disks nobody asks. */
		{ "\"state\":\"postmigrate\"", "postmigrate", 1, false },
		{ "\"state\":\"postmigrate\"", "paused", 0, true },
		{ "\"state\":\"postmigrate\"", "prelaunch", 0, true },
		{ "\"state\":\"paused\"", "paused", 0, false },
		{ "\"state\":\"paused\"", "paused", 1, true },
		{ "\"state\":\"paused\"", "prelaunch", 0, true },
		{ "\"state\":\"\"", "prelaunch", 0, false },
		{ "\"state\":\"\"", "paused", 1, true },
		{ "\"state\":\"paused\",\"continued\":true", "paused", 0, true },
		/* An older godwit's. */
		{ "\"paused\":false", "paused", 1, false },
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), "{" NOTE ",\"ran\":true,%s}", each[i].more);
		vm_status = each[i].now;
		has_disk = each[i].disk;
		assert_int_equal(is_refused(text, &e), each[i].refused ? GW_RAN_TWICE : GW_INCOMPLETE);
		assert_int_equal(!!strstr(e.text, "none of it is sent"), each[i].refused);
		assert_int_equal(!!strstr(e.text, "has a disk: disk0"), each[i].refused && each[i].disk);
	}
	/* Nor if the one that finds it running is not the one that would send. */
	vm_status = "paused";
	has_disk = 0;
	running = true;
	assert_int_equal(is_refused("{" NOTE ",\"ran\":true,\"state\":\"paused\"}", &e), GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "the guest runs here"));
	running = false;
	assert_int_equal(is_refused(NULL, &e), GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "none of it is sent"));
	vm_status = "postmigrate";
}

/* The sender before had heard it, noted it, and was killed: the receiver has gone. */
static void nothing_is_owed_of_what_has_come(void **state)
{
	struct err e, dead;
	json_t *left;

	(void)state;
	assert_int_equal(is_refused("{" NOTE ",\"ran\":true,\"complete\":true,\"state\":\"postmigrate\"}", &e), GW_OK);
	left = note();
	assert_null(left);
	vm_status = "paused";
	assert_int_equal(is_refused("{" NOTE ",\"ran\":true,\"complete\":true,\"state\":\"postmigrate\"}", &e), GW_RAN_TWICE);
	vm_status = "postmigrate";
	/* It never ran there: there is nothing to recover. */
	assert_int_equal(is_refused("{" NOTE ",\"ran\":false,\"dead\":true,\"state\":\"postmigrate\"}", &dead), GW_NO_MIGRATION);
	assert_non_null(strstr(dead.text, "\"godwit resolve\" has it run here"));
	assert_non_null(strstr(e.text, "at the destination lacks none"));
	assert_null(strstr(e.text, "end both QEMUs"));
}

#define COMPLETED(ms, down, bytes)	"{\"undo\":\"migrate\",\"running\":true,\"began\":1},{\"more\":\"accepted\",\"at\":2}," \
	"{\"more\":\"completed\",\"running\":true,\"identity\":{\"total-ms\":" #ms ",\"downtime-ms\":" #down ",\"bytes\":" #bytes "}}"

/* It is "postmigrate" as the commit left it, but another client has continued the guest and sent it, to a file or a host, meanwhile. */
static void what_was_sent_once_more_is_not_sent(void **state)
{
	static const struct {
		const char *undo;
		struct migration_status last;
		bool refused;
	} each[] = {
		{ COMPLETED(900, 40, 123456), { "completed", false, 900, 40, 123456 }, false },
		{ COMPLETED(900, 40, 123456), { "completed", false, 901, 40, 123456 }, true },
		{ COMPLETED(900, 40, 123456), { "completed", false, 900, 41, 123456 }, true },
		{ COMPLETED(900, 40, 123456), { "completed", false, 900, 40, 123457 }, true },
		/* After a `system_reset`, say, or as another client has failed to send it. */
		{ COMPLETED(900, 40, 123456), { "failed", false, -1, -1, -1 }, true },
		/* A QEMU that did not know yet how long it had taken. */
		{ COMPLETED(0, 0, 123456), { "completed", false, 900, 40, 123456 }, false },
		{ COMPLETED(0, 0, 123456), { "completed", false, 900, 40, 123457 }, true },
		/* That the note does not say it proves nothing. */
		{ "{\"kept\":1}", { "completed", false, 900, 40, 123456 }, false },
	};
	struct err e;

	(void)state;
	vm_status = "postmigrate";
	for (unsigned int i = 0; i < 2 * sizeof(each) / sizeof(each[0]); i++) {
		const bool ran = i & 1, refused = each[i / 2].refused;
		char text[512];

		snprintf(text, sizeof(text), "{\"receiver\":\"unix:/nowhere\",\"token\":\"verdict-000102030405060708090a0b0c0d0e0f\",\"ran\":%s,"
			 "\"state\":\"postmigrate\",\"undo\":[%s]}", ran ? "true" : "false", each[i / 2].undo);
		last = each[i / 2].last;
		assert_int_equal(is_refused(text, &e), refused ? (ran ? GW_RAN_TWICE : GW_VM_STATE) : (ran ? GW_INCOMPLETE : GW_UNKNOWN));
		assert_int_equal(!!strstr(e.text, "none of it is sent"), refused);
	}
	last = (struct migration_status) { "", false, 0, 0, 0 };
}

/* Of a guest that was paused nothing is lost: an older note does not say whether it was. */
static void a_paused_guest_is_not_given_up(void **state)
{
	const struct wire_header lost = { .type = WIRE_ABORT, .arg = GW_GUEST_LOST, .length = 4 };
	const struct {
		const char *note;
		bool may_be_here, may_have_run;
	} each[] = {
		{ "{" NOTE ",\"ran\":true,\"paused\":true}", true, false },
		{ "{" NOTE ",\"ran\":true,\"paused\":false}", false, true },
		{ "{" NOTE ",\"ran\":true}", true, true },
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_note(each[i].note);
		for (unsigned int by = 0; by < 2; by++) {
			assert_int_equal(by ? take_over(&lost, &e) : resolve(&says_lost, &e), GW_GUEST_LOST);
			assert_int_equal(!!strstr(e.text, "all of it is here, and "), each[i].may_be_here);
			assert_int_equal(!!strstr(e.text, "`cont` brings it back"), each[i].may_be_here);
			assert_int_equal(!!strstr(e.text, "do not continue this QEMU"), each[i].may_have_run);
			assert_int_equal(!!strstr(e.text, "Only if it was paused"), each[i].may_be_here && each[i].may_have_run);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sender_that_takes_over_notes_it),
		cmocka_unit_test(one_that_hears_nothing_notes_nothing),
		cmocka_unit_test(what_has_run_here_since_is_not_sent),
		cmocka_unit_test(nothing_is_owed_of_what_has_come),
		cmocka_unit_test(what_was_sent_once_more_is_not_sent),
		cmocka_unit_test(a_paused_guest_is_not_given_up),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
