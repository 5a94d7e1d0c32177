// SPDX-License-Identifier: GPL-2.0-only
/*
 * The note of a sender that has ended, and what resolve makes of it (`send --recover`: test_doubt_take_over.c). Once an answer has
 * shown that the guest has run at the destination no later answer may start the source, whoever has heard the first one, and
 * whatever failed after it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "doubt_rig.h"

static void resolve_notes_that_it_runs(void **state)
{
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(unknowing) / sizeof(unknowing[0]); i++) {
		have_note(unknowing[i]);
		assert_int_equal(resolve(&says_owing, &e), GW_INCOMPLETE);
		assert_note_knows(true);
		assert_a_lie_changes_nothing();
		have_note(unknowing[i]);
		assert_int_equal(resolve(&says_lost, &e), GW_GUEST_LOST);
		assert_a_lie_changes_nothing();
		/* Another client has continued it here. */
		have_note(unknowing[i]);
		running = true;
		assert_int_equal(resolve(&says_runs, &e), GW_RAN_TWICE);
		running = false;
		assert_a_lie_changes_nothing();
	}
}

static void what_has_not_run_goes_on(void **state)
{
	json_t *gone;
	struct err e;

	(void)state;
	have_note(unknowing[0]);
	assert_int_equal(resolve(&says_sent, &e), GW_UNKNOWN);
	assert_note_knows(false);
	assert_int_equal(resolve(&says_dead, &e), GW_OK);
	assert_int_equal(undone, UNDO_ALL);
	gone = note();
	assert_null(gone);
	/* It is left stopped: another client has saved it to a file. The receiver may have forgotten. */
	have_note(unknowing[0]);
	leaves = true;
	assert_int_equal(resolve(&says_dead, &e), GW_VM_STATE);
	leaves = false;
	assert_non_null(strstr(e.text, "is left stopped here"));
	assert_int_equal(undone, UNDO_ALL);
	gone = note();
	assert_null(gone);
}

/* What its sender knows the receiver forgets, and the note is all that tells of it. */
static void the_note_knows_what_a_receiver_forgets(void **state)
{
	json_t *left;
	struct err e;

	(void)state;
	have_note("{" NOTE ",\"ran\":true,\"complete\":true,\"state\":\"postmigrate\"}");
	running = true;
	resolve(&says_nothing, &e);
	running = false;
	assert_int_equal(e.exit, GW_RAN_TWICE);
	assert_note_knows(true);
	have_note("{" NOTE ",\"ran\":true,\"complete\":true,\"state\":\"postmigrate\"}");
	assert_int_equal(resolve(&says_nothing, &e), GW_OK);
	assert_int_equal(resolved, COMMIT_RUNS);
	assert_int_equal(undone, NEVER);
	left = note();
	assert_null(left);
	/* It may lack RAM: that it has run there is known all the same. */
	have_note("{" NOTE ",\"ran\":true}");
	assert_int_equal(resolve(&says_nothing, &e), GW_INCOMPLETE);
	assert_non_null(strstr(e.text, "do not continue this one"));
	assert_int_equal(undone, NEVER);
	assert_note_knows(true);
	have_note("{" NOTE ",\"ran\":false}");
	assert_int_equal(resolve(&says_nothing, &e), GW_UNKNOWN);
	assert_note_knows(false);
	/* As one has said, to a `resolve` that ended otherwise. */
	have_note(unknowing[0]);
	running = true;
	assert_int_equal(resolve(&says_runs, &e), GW_RAN_TWICE);
	running = false;
	left = note();
	assert_true(json_is_true(json_object_get(left, "complete")));
	assert_true(json_is_true(json_object_get(left, "ran")));
	json_decref(left);
	have_note(unknowing[0]);
	assert_int_equal(resolve(&says_owing, &e), GW_INCOMPLETE);
	left = note();
	assert_false(json_is_true(json_object_get(left, "complete")));
	json_decref(left);
}

/* It may lack RAM: whether it has run here as well is no less the question. */
static void two_may_run_where_ram_is_lacking(void **state)
{
	const struct wire_header *const says[] = { &says_owing, &says_nothing };
	static const char *const is[] = { "postmigrate", "paused" };
	struct err e;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		json_t *left;

		have_note("{" NOTE ",\"ran\":true,\"state\":\"paused\"}");
		vm_status = is[i / 2];
		running = i & 1;
		assert_int_equal(resolve(says[i / 2], &e), i == 2 ? GW_INCOMPLETE : GW_RAN_TWICE);
		running = false;
		assert_int_equal(!!strstr(e.text, "leave both QEMUs"), i == 2);
		assert_int_equal(undone, NEVER);
		assert_note_knows(true);
		/* For whoever would send that RAM later, when it is stopped again. */
		left = note();
		assert_int_equal(json_is_true(json_object_get(left, "continued")), i & 1);
		json_decref(left);
	}
	vm_status = "postmigrate";
}

/* An answer that it never runs there is the last one: what it lets one do may fail, and be tried again. */
static void a_proof_of_death_is_kept(void **state)
{
	json_t *left;
	struct err e;

	(void)state;
	have_note(unknowing[0]);
	undoing = -ETIMEDOUT;
	assert_int_equal(resolve(&says_dead, &e), GW_TIMEOUT);
	undoing = 0;
	assert_note_knows(false);
	assert_int_equal(resolve(&says_nothing, &e), GW_OK);
	assert_int_equal(resolved, COMMIT_DEAD);
	assert_int_equal(undone, UNDO_ALL);
	left = note();
	assert_null(left);
	/* It has run, as one has said since: two receivers contradict each other, and nothing is started. */
	have_note("{" NOTE ",\"ran\":true,\"dead\":true}");
	assert_int_equal(resolve(&says_nothing, &e), GW_INCOMPLETE);
	assert_int_equal(undone, NEVER);
}

/* The guest has moved, and has run here since, whether it runs still or not. */
static void resolve_tells_of_two(void **state)
{
	json_t *left;
	struct err e;

	(void)state;
	have_note("{" NOTE ",\"state\":\"postmigrate\"}");
	assert_int_equal(resolve(&says_runs, &e), GW_OK);
	have_note("{" NOTE ",\"state\":\"paused\"}");
	vm_status = "paused";
	running = true;
	assert_int_equal(resolve(&says_runs, &e), GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "stop it here now"));
	running = false;
	assert_int_equal(resolve(&says_runs, &e), GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "and stopped it again"));
	/* That was the last word. */
	left = note();
	assert_null(left);
	/* Nobody has seen it run: it may have been saved, or reset, and no more. */
	have_note("{" NOTE ",\"state\":\"paused\"}");
	vm_status = "postmigrate";
	assert_int_equal(resolve(&says_runs, &e), GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "continued it here (cont), or only reset it, saved it to a file"));
	assert_null(strstr(e.text, "stopped it again"));
}

/* At the commit point, and once the guest is known to run there. */
static void the_note_says_how_the_guest_was(void **state)
{
	const struct sender_options o = { .addr = "unix:/nowhere" };

	(void)state;
	for (unsigned int i = 0; i < 8; i++) {
		const bool paused = i & 1, ran = i & 2, migrates = i & 4;
		struct sender s = {
			.o = &o, .vm = { .pid = getpid() }, .note = RECORD_NONE, .commit = COMMIT_PREPARED,
			.migration = { .was_running = !paused }, .journal = { .records = json_array() },
			.devstate = migrates ? &devstate_migrate : &devstate_save,
		};
		json_t *now;

		sender_note_doubt(&s);
		if (ran) {
			s.commit = COMMIT_RUNS;
			s.owing.collected = paused;
			sender_note_doubt(&s);
		}
		now = note();
		assert_int_equal(json_is_true(json_object_get(now, "complete")), ran && !paused);
		if (ran && paused) {
			json_decref(now);
			s.owing.complete = true;
			sender_note_doubt(&s);
			now = note();
			assert_true(json_is_true(json_object_get(now, "complete")));
		}
		assert_int_equal(doubt_guest(now), paused ? DOUBT_GUEST_PAUSED : DOUBT_GUEST_RAN);
		assert_int_equal(json_is_true(json_object_get(now, "ran")), ran);
		assert_string_equal(json_string_value(json_object_get(now, "state")), migrates ? "postmigrate" : paused ? "" : "paused");
		assert_true(json_is_false(json_object_get(now, "continued")));
		json_decref(now);
		record_close(&s.note);
		json_decref(s.journal.records);
	}
}

static void an_address_may_be_any_path(void **state)
{
	const struct doubt d = { .addr = "unix:/run/\xff\x80" };
	struct record r = RECORD_NONE;
	struct doubt read;
	struct err e = { 0 };
	json_t *now;

	(void)state;
	doubt_write(&r, getpid(), &d, NULL);
	record_close(&r);
	assert_int_equal(doubt_read(getpid(), &read, &now, &e), 0);
	assert_string_equal(read.addr, d.addr);
	json_decref(now);
}

/* Its QEMU has exited: that there is no note is no failure of the directory's. */
static void no_note_of_a_vm_that_is_gone(void **state)
{
	const struct doubt d = { .addr = "unix:/nowhere" };
	struct record r = RECORD_NONE;
	pid_t gone = fork();
	int old, said[2];
	char text[256];

	(void)state;
	if (!gone)
		_exit(0);
	assert_int_equal(waitpid(gone, NULL, 0), gone);
	assert_int_equal(pipe(said), 0);
	old = dup(STDERR_FILENO);
	dup2(said[1], STDERR_FILENO);
	doubt_write(&r, gone, &d, NULL);
	dup2(old, STDERR_FILENO);
	close(old);
	close(said[1]);
	assert_int_equal(read(said[0], text, sizeof(text)), 0);
	close(said[0]);
	assert_int_equal(r.fd, -1);
}

/* It reads, and answers nothing, until the sender has gone. */
static void *be_silent(void *arg)
{
	struct answering *a = arg;
	uint8_t bytes[256];
	int fd = accept(a->fd, NULL, NULL);

	while (recv(fd, bytes, sizeof(bytes), 0) > 0)
		;
	close(fd);
	return NULL;
}

/* A sender whose guest goes on asks for so long and no longer, however long it would wait for one answer. */
static void a_strict_question_ends_in_time(void **state)
{
	struct answering a = { .closes = 0 };
	const struct doubt d = { .addr = a.path, .engine = engine, .timeout_ms = 60000, .seconds = 1, .strict = true };
	struct doubt_answer answer;
	struct err e = { 0 };
	pthread_t thread;
	uint64_t began_ns;

	(void)state;
	answering_begin(&a, NULL);
	assert_int_equal(pthread_create(&thread, NULL, be_silent, &a), 0);
	began_ns = now_ns();
	assert_int_equal(doubt_ask(&d, &answer, &e), SOURCE_STOPS_ASKING);
	assert_true(now_ns() - began_ns < 30000000000ull);
	answering_end(&a, &thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolve_notes_that_it_runs),
		cmocka_unit_test(what_has_not_run_goes_on),
		cmocka_unit_test(the_note_knows_what_a_receiver_forgets),
		cmocka_unit_test(two_may_run_where_ram_is_lacking),
		cmocka_unit_test(a_proof_of_death_is_kept),
		cmocka_unit_test(resolve_tells_of_two),
		cmocka_unit_test(the_note_says_how_the_guest_was),
		cmocka_unit_test(an_address_may_be_any_path),
		cmocka_unit_test(no_note_of_a_vm_that_is_gone),
		cmocka_unit_test(a_strict_question_ends_in_time),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
