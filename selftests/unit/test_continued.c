// SPDX-License-Identifier: GPL-2.0-only
/*
 * Another client continues the guest at the source behind the commit point, and may stop it again: QEMU's run state tells nothing of
 * that afterwards, and its events do. RAM is of another history from then on.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "answering.h"
#include "base/clock.h"
#include "qmp_peer.h"

#define EVENT(name)	"{\"timestamp\": {\"seconds\": 1700000000, \"microseconds\": 1}, \"event\": \"" name "\"}\r\n"
#define STOPPED		"{\"running\": false, \"singlestep\": false, \"status\": \"paused\"}"
#define RUNNING		"{\"running\": true, \"singlestep\": false, \"status\": \"running\"}"

/* What QEMU says of itself, and answers to query-status. */
static const char *says, *status;
static char dir[] = "/tmp/godwit-continued-XXXXXX";

int __real_record_open(struct record *r, const char *in, const char *name);
int __wrap_record_open(struct record *r, const char *in, const char *name);
bool __wrap_guardian_take_over(struct guardian *g, unsigned int ms);

static struct guardian ends;	/* as it does then */

/* It does not reach QEMU either, and goes on. */
bool __wrap_guardian_take_over(struct guardian *g, unsigned int ms)
{
	(void)ms;
	g->left = ends.left;
	g->died = ends.died;
	g->at_work = !ends.left && !ends.died;
	return ends.left;
}

int __wrap_record_open(struct record *r, const char *in, const char *name)
{
	assert_string_equal(in, RECORD_DIR);
	return __real_record_open(r, dir, name);
}

static void be_qemu(struct peer *p)
{
	peer_negotiate(p);
	peer_say(p, says);
	while (peer_line(p))
		peer_reply(p, "return", status);
}

static const struct sender_options options = { .addr = "unix:/nowhere" };
static struct report report;

/* A sender of this process behind the commit point, and the QEMU that it is connected to. */
static struct sender sender_of(struct peer *p, const char *events, const char *is, enum commit_state commit)
{
	struct sender s = {
		.o = &options, .report = &report, .vm = { .pid = getpid(), .pidfd = -1, .vm_fd = -1, .nblocks = 1 }, .migration = { .stream = -1 },
		.owing = OWING_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = commit, .note = RECORD_NONE,
		.next_ping_ns = UINT64_MAX, .stop_realtime_ns = 5, .devstate = &devstate_save,
	};
	struct err e = { 0 };

	says = events;
	status = is;
	s.migration.was_running = true;
	s.journal.records = json_array();
	assert_int_equal(peer_start(p, be_qemu, NULL, 4), 0);
	assert_int_equal(qmp_open(p->path, 2000, &s.qmp, &e), 0);
	return s;
}

static void sender_ends(struct sender *s, struct peer *p)
{
	qmp_close(s->qmp);
	peer_stop(p);
	json_decref(s->journal.records);
	record_remove(&s->note);
}

/* In the end, where nothing is owed. */
static void assert_end(const char *events, const char *is, enum gw_exit exit, const char *words)
{
	struct peer p;
	struct sender s = sender_of(&p, events, is, COMMIT_RUNS);
	struct err e = { 0 };

	sender_check_source(&s, &e);
	assert_int_equal(e.exit, exit);
	assert_true(strstr(e.text, words));
	/* The downtime begins with the first STOP. */
	assert_int_equal(s.stop_realtime_ns, 5);
	sender_ends(&s, &p);
	assert_string_equal(p.missed, "");
}

static void the_end_tells_of_it(void **state)
{
	(void)state;
	assert_end("", STOPPED, GW_OK, "");
	assert_end(EVENT("MIGRATION"), STOPPED, GW_OK, "");
	assert_end(EVENT("RESUME"), RUNNING, GW_RAN_TWICE, "AND here, because another client has continued it here (cont): stop it");
	assert_end(EVENT("RESUME") EVENT("STOP"), STOPPED, GW_RAN_TWICE, "and stopped it again");
}

/* Until the commit point it is for the switchover to look at them: a RESUME of before the stop is none. */
static void what_came_before_the_stop_does_not_count(void **state)
{
	struct peer p;
	struct sender s = sender_of(&p, EVENT("RESUME") EVENT("STOP"), STOPPED, COMMIT_PREPARED);
	struct err e = { 0 };
	bool running;

	(void)state;
	/* They have come by then. */
	assert_int_equal(migration_running(s.qmp, &running, &e), 0);
	assert_false(sender_was_continued(&s));
	/* As every way to stop the guest begins. */
	assert_int_equal(sender_events(&s, NULL, 0, &e), 0);
	s.resumed = false;
	s.commit = COMMIT_RUNS;
	assert_false(sender_was_continued(&s));
	assert_int_equal(sender_check_source(&s, &e), 0);
	sender_ends(&s, &p);
}

/* Is that word of the note true? */
static bool note_says(const char *word)
{
	char name[RECORD_NAME];
	json_t *note;
	bool held, is;

	assert_int_equal(record_name_vm(name, "doubt", getpid()), 0);
	note = record_read(dir, name, &held);
	assert_non_null(note);
	is = json_is_true(json_object_get(note, word));
	json_decref(note);
	return is;
}

static bool is_noted(void)
{
	return note_says("continued");
}

static void owe(struct sender *s)
{
	const uint64_t pages = 16;
	const uint32_t unit = 1;
	struct err e = { 0 };

	s->vm.blocks[0].pages = pages;
	assert_int_equal(owed_init(&s->owing.owed, &pages, &unit, 1, &e), 0);
	assert_int_equal(owed_add(&s->owing.owed, 0, 0, pages), 0);
	push_init(&s->owing.push, &s->owing.owed);
	s->owing.collected = s->owing.follows = true;
	s->silent_ns = UINT64_MAX;
}

/* While RAM follows the guest: until a call of sender_idle() fails, or for ms. */
static int idle(struct sender *s, unsigned int ms, struct err *e)
{
	const uint64_t until_ns = deadline_ms(ms);
	int r = 0;

	while (!r && now_ns() < until_ns) {
		r = sender_idle(s, e);
		nap(5);
	}
	return r;
}

static void no_more_ram_is_sent(void **state)
{
	struct link *l = *state;
	struct peer p;
	struct sender s = sender_of(&p, EVENT("RESUME") EVENT("STOP"), STOPPED, COMMIT_SENT);
	struct wire_extent x;
	struct err e = { 0 };

	s.ch = l->ch;
	owe(&s);
	sender_note_doubt(&s);
	s.commit = COMMIT_RUNS;
	assert_true(push_take(&s.owing.push, 1, &x));
	assert_false(is_noted());
	assert_true(idle(&s, 5000, &e) < 0);
	assert_int_equal(e.exit, GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "no more of it is sent"));
	assert_false(push_take(&s.owing.push, 1, &x));
	assert_true(is_noted());
	/* And so the migration ends. That the guest has moved is no success then. */
	assert_true(sender_settle(&s, -EEXIST, &e) < 0);
	assert_int_equal(e.exit, GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "end both QEMUs"));
	assert_int_equal(s.commit, COMMIT_RUNS);
	/* No stream is left, nor the thread that answers. */
	assert_null(s.ch);
	l->ch = NULL;
	owing_free(&s);
	sender_ends(&s, &p);
}

/* The receiver has all: what has changed here since does not matter to the guest there, and the end tells of it. */
static void what_has_come_has_come(void **state)
{
	struct link *l = *state;
	struct peer p;
	struct sender s = sender_of(&p, EVENT("RESUME") EVENT("STOP"), STOPPED, COMMIT_RUNS);
	struct err e = { 0 };

	s.ch = l->ch;
	owe(&s);
	s.owing.complete = true;
	assert_int_equal(idle(&s, 300, &e), 0);
	assert_true(sender_settle(&s, 0, &e) < 0);
	assert_int_equal(e.exit, GW_RAN_TWICE);
	assert_non_null(strstr(e.text, "and stopped it again"));
	l->ch = s.ch;
	owing_reset(&s.owing);
	sender_ends(&s, &p);
}

static void nobody_has_touched_it(void **state)
{
	struct link *l = *state;
	struct peer p;
	struct sender s = sender_of(&p, EVENT("MIGRATION"), STOPPED, COMMIT_RUNS);
	struct wire_extent x;
	struct err e = { 0 };

	s.ch = l->ch;
	owe(&s);
	assert_int_equal(idle(&s, 300, &e), 0);
	assert_true(push_take(&s.owing.push, 1, &x));
	owing_reset(&s.owing);
	sender_ends(&s, &p);
}

/* QEMU has exited: its RAM is read from files, which is no reason to end. */
static void qemu_has_gone(void **state)
{
	struct link *l = *state;
	struct peer p;
	struct sender s = sender_of(&p, EVENT("SHUTDOWN"), STOPPED, COMMIT_RUNS);
	struct err e = { 0 };

	s.ch = l->ch;
	owe(&s);
	shutdown(p.fd, SHUT_RDWR);
	assert_int_equal(idle(&s, 300, &e), 0);
	owing_reset(&s.owing);
	sender_ends(&s, &p);
}

/* Nobody answers at the other end, and the operator need not wait for that to hear of it. before: the note of a sender before. */
static void away(json_t *before, enum gw_exit exit, const char *words)
{
	static const struct sender_options patient = { .addr = "unix:/nowhere/at/all", .recover_s = 60, .timeout_ms = 5000 };
	struct peer p;
	struct sender s = sender_of(&p, EVENT("RESUME") EVENT("STOP"), STOPPED, COMMIT_RUNS);
	const uint64_t began_ns = now_ns();
	struct err e = { 0 };

	s.o = &patient;
	s.note_before = before;
	owe(&s);
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	assert_true(sender_settle(&s, -ECONNRESET, &e) < 0);
	assert_int_equal(e.exit, exit);
	assert_non_null(strstr(e.text, "no more of it is sent"));
	assert_non_null(strstr(e.text, words));
	assert_true(now_ns() - began_ns < 30000000000ull);
	owing_free(&s);
	json_decref(before);
	record_unlink_vm(dir, "doubt", getpid());
	sender_ends(&s, &p);
}

static void while_the_link_is_away(void **state)
{
	(void)state;
	away(NULL, GW_RAN_TWICE, "end both QEMUs");
	away(json_pack("{s:b}", "ran", 1), GW_RAN_TWICE, "end both QEMUs");
	away(json_pack("{s:b}", "ran", 0), GW_VM_STATE, "\"godwit resolve\" finds out");
}

/* The sender never hears whether the guest runs there. */
static void in_doubt_it_is_told_as_well(void **state)
{
	struct peer p;
	struct sender s = sender_of(&p, EVENT("RESUME"), RUNNING, COMMIT_SENT);
	struct err e = { 0 };
	bool running;

	(void)state;
	sender_note_doubt(&s);
	assert_int_equal(migration_running(s.qmp, &running, &e), 0);
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	assert_true(sender_settle(&s, -ECONNRESET, &e) < 0);
	assert_int_equal(e.exit, GW_UNKNOWN);
	assert_non_null(strstr(e.text, "stop it here now"));
	assert_true(is_noted());
	sender_ends(&s, &p);
}

/* Whether QEMU has its settings back is another question than where the guest runs. */
static void in_doubt_with_a_qemu_that_hangs(void **state)
{
	struct peer p;
	struct sender s = sender_of(&p, "", STOPPED, COMMIT_SENT);
	struct err e = { 0 };

	(void)state;
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	undoing = -ETIMEDOUT;
	assert_true(sender_settle(&s, -ECONNRESET, &e) < 0);
	undoing = 0;
	assert_int_equal(undone, UNDO_SETTINGS);
	assert_true(s.guardian.at_work);
	assert_int_equal(e.exit, GW_UNKNOWN);
	assert_non_null(strstr(e.text, "may run at the destination, so the source stays stopped"));
	assert_null(strstr(e.text, "guardian"));
	sender_ends(&s, &p);
}

/* By an answer to its question, with which the receiver has forgotten: before it waits for its QEMU again. */
static void what_it_hears_is_noted_first(void **state)
{
	struct peer p;
	struct sender s = sender_of(&p, "", STOPPED, COMMIT_SENT);
	struct err e = { 0 };

	(void)state;
	sender_note_doubt(&s);
	assert_false(note_says("complete"));
	s.commit = COMMIT_RUNS;
	assert_int_equal(sender_settle(&s, 0, &e), 0);
	assert_int_equal(undone, UNDO_SETTINGS);
	assert_true(note_says("ran") && note_says("complete"));
	sender_ends(&s, &p);
}

/* And where QEMU does not answer then: no receiver may say it once more. */
static void a_death_that_it_hears_of_is_noted_first(void **state)
{
	struct answering a = { .closes = 0 };
	const struct sender_options o = { .addr = a.path, .engine = engine, .timeout_ms = 5000, .resolve_s = 5 };
	pthread_t thread;
	struct peer p;
	struct sender s = sender_of(&p, "", STOPPED, COMMIT_SENT);
	struct err e = { 0 };

	(void)state;
	answering_begin(&a, &thread);
	s.o = &o;
	s.verdicts = true;
	sender_note_doubt(&s);
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	undoing = -ETIMEDOUT;
	assert_true(sender_settle(&s, -ECONNRESET, &e) < 0);
	undoing = 0;
	answering_end(&a, &thread);
	assert_int_equal(e.exit, GW_NOT_PUT_BACK);
	assert_int_equal(undone, UNDO_ALL);
	assert_true(note_says("dead") && !note_says("ran"));
	sender_ends(&s, &p);
}

/* It never runs there, and is left stopped here, by what another client has done: that is not as it was before. */
static void what_is_left_stopped_is_said(void **state)
{
	struct peer p;
	struct sender s = sender_of(&p, "", STOPPED, COMMIT_PREPARED);
	struct err e = { 0 };

	(void)state;
	err_set(&e, GW_CANCELLED, ECANCELED, "it was told to stop");
	leaves = true;
	assert_true(sender_settle(&s, -ECANCELED, &e) < 0);
	leaves = false;
	assert_int_equal(undone, UNDO_ALL);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "it was told to stop. The guest is left stopped here"));
	sender_ends(&s, &p);
}

/* The guardian has found that, or was killed: then the note has what a later `resolve` does in its place. */
static void what_the_guardian_came_to_is_said(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		const bool died = i == 1;	/* the third works on, and has done nothing yet */
		struct peer p;
		struct sender s = sender_of(&p, "", STOPPED, COMMIT_PREPARED);
		struct err e = { 0 };

		err_set(&e, GW_CANCELLED, ECANCELED, "it was told to stop");
		undoing = -ETIMEDOUT;
		ends = (struct guardian) { .left = i == 0, .died = died };
		assert_true(sender_settle(&s, -ECANCELED, &e) < 0);
		ends = (struct guardian) { .pid = 0 };
		undoing = 0;
		assert_int_equal(e.exit, i ? GW_NOT_PUT_BACK : GW_VM_STATE);
		assert_non_null(strstr(e.text, i == 0 ? "left stopped here" : died ? "\"godwit resolve\" tries again" : "goes on trying"));
		assert_true(note_says("dead"));
		sender_ends(&s, &p);
	}
}

static int make_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_tells_of_it),
		cmocka_unit_test(what_came_before_the_stop_does_not_count),
		cmocka_unit_test_setup_teardown(no_more_ram_is_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(what_has_come_has_come, setup, teardown),
		cmocka_unit_test_setup_teardown(nobody_has_touched_it, setup, teardown),
		cmocka_unit_test_setup_teardown(qemu_has_gone, setup, teardown),
		cmocka_unit_test(while_the_link_is_away),
		cmocka_unit_test(in_doubt_it_is_told_as_well),
		cmocka_unit_test(in_doubt_with_a_qemu_that_hangs),
		cmocka_unit_test(what_it_hears_is_noted_first),
		cmocka_unit_test(a_death_that_it_hears_of_is_noted_first),
		cmocka_unit_test(what_is_left_stopped_is_said),
		cmocka_unit_test(what_the_guardian_came_to_is_said),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
