// SPDX-License-Identifier: GPL-2.0-only
/*
 * The note of a sender that has ended, and what resolve and `send --recover` make of it. Once an answer has shown that the guest
 * has run at the destination no later answer may start the source, whoever has heard the first one, and whatever failed after it.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "answering.h"
#include "base/clock.h"
#include "doubt/resolve.h"

#define NOTE	"\"receiver\":\"unix:/nowhere\",\"token\":\"verdict-000102030405060708090a0b0c0d0e0f\",\"undo\":[{\"kept\":1}]"
#define NEVER	((enum undo_what)-1)

static char dir[] = "/tmp/godwit-doubt-XXXXXX";
static bool running;	/* here */
static const char *vm_status = "postmigrate";
static int has_disk;

/* The VM is this process, and its notes are the test's. */
int __wrap_qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e);
void __wrap_qmp_close(struct qmp *q);
int __wrap_vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e);
void __wrap_vm_close(struct vm *vm);
int __wrap_claim_take(struct claim *c, struct vm *vm, struct err *e);
void __wrap_claim_drop(struct claim *c, struct vm *vm);
int __wrap_migration_running(struct qmp *q, bool *runs, struct err *e);
int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e);
int __wrap_migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e);
int __wrap_save_active_disk(struct qmp *q, char *node, size_t len, struct err *e);
int __real_record_open(struct record *r, const char *in, const char *name);
int __wrap_record_open(struct record *r, const char *in, const char *name);
json_t *__real_record_read(const char *in, const char *name, bool *held);
json_t *__wrap_record_read(const char *in, const char *name, bool *held);
void __real_record_unlink_vm(const char *in, const char *kind, pid_t vmm);
void __wrap_record_unlink_vm(const char *in, const char *kind, pid_t vmm);

int __wrap_qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e)
{
	(void)path, (void)timeout_ms, (void)e;
	*out = NULL;
	return 0;
}

void __wrap_qmp_close(struct qmp *q)
{
	(void)q;
}

int __wrap_vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e)
{
	(void)q, (void)pid, (void)flags, (void)e;
	*vm = (struct vm) { .pid = getpid(), .pidfd = -1, .vm_fd = -1, .nblocks = 1, .blocks = { { .name = "ram", .pages = 1 } } };
	return 0;
}

void __wrap_vm_close(struct vm *vm)
{
	(void)vm;
}

int __wrap_claim_take(struct claim *c, struct vm *vm, struct err *e)
{
	(void)c, (void)vm, (void)e;
	return 0;
}

void __wrap_claim_drop(struct claim *c, struct vm *vm)
{
	(void)c, (void)vm;
}

int __wrap_migration_running(struct qmp *q, bool *runs, struct err *e)
{
	(void)q, (void)e;
	*runs = running;
	return 0;
}

int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e)
{
	(void)q, (void)e;
	snprintf(buf, len, "%s", vm_status);
	return 0;
}

int __wrap_migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e)
{
	(void)q, (void)e;
	*on = false;
	return 0;
}

int __wrap_save_active_disk(struct qmp *q, char *node, size_t len, struct err *e)
{
	(void)q, (void)e;
	snprintf(node, len, has_disk ? "disk0" : "");
	return has_disk;
}

int __wrap_record_open(struct record *r, const char *in, const char *name)
{
	assert_string_equal(in, RECORD_DIR);
	return __real_record_open(r, dir, name);
}

json_t *__wrap_record_read(const char *in, const char *name, bool *held)
{
	assert_string_equal(in, RECORD_DIR);
	return __real_record_read(dir, name, held);
}

void __wrap_record_unlink_vm(const char *in, const char *kind, pid_t vmm)
{
	assert_string_equal(in, RECORD_DIR);
	__real_record_unlink_vm(dir, kind, vmm);
}

static void have_note(const char *text)
{
	struct record r;
	char name[RECORD_NAME];

	assert_int_equal(record_name_vm(name, "doubt", getpid()), 0);
	assert_int_equal(__real_record_open(&r, dir, name), 0);
	assert_int_equal(record_write(&r, json_loads(text, 0, NULL)), 0);
	record_close(&r);
}

static json_t *note(void)
{
	char name[RECORD_NAME];
	bool held;

	assert_int_equal(record_name_vm(name, "doubt", getpid()), 0);
	return __real_record_read(dir, name, &held);
}

/* The note has changed in that one word. */
static void assert_note_knows(bool ran)
{
	json_auto_t *now = note();

	assert_non_null(now);
	assert_int_equal(json_is_true(json_object_get(now, "ran")), ran);
	assert_string_equal(json_string_value(json_object_get(now, "receiver")), "unix:/nowhere");
	assert_int_equal(json_array_size(json_object_get(now, "undo")), 1);
}

static enum commit_state resolved;

/* What `godwit resolve` ends with when that is answered. */
static int resolve(const struct wire_header *says, struct err *e)
{
	struct answering a = { .says = *says };
	struct resolve_options o = { .doubt = { .engine = engine, .timeout_ms = 5000, .addr = a.path } };
	pthread_t thread;

	answering_begin(&a, &thread);
	resolved = COMMIT_PREPARED;
	undone = NEVER;
	*e = (struct err) { 0 };
	resolve_run(&o, &resolved, e);
	answering_end(&a, &thread);
	assert_int_equal(a.asked, WIRE_ASK);
	return (int)e->exit;
}

static const struct wire_header says_dead = { .type = WIRE_VERDICT, .arg = COMMIT_DEAD, .length = 8 };
static const struct wire_header says_owing = { .type = WIRE_VERDICT, .arg = COMMIT_RUNS, .flags = WIRE_OWING, .length = 8 };
static const struct wire_header says_lost = {
	.type = WIRE_VERDICT, .arg = COMMIT_RUNS, .flags = WIRE_OWING | WIRE_LOST, .length = 8,
};
static const struct wire_header says_runs = { .type = WIRE_VERDICT, .arg = COMMIT_RUNS, .length = 8 };
static const struct wire_header says_nothing = { .type = WIRE_VERDICT, .arg = WIRE_NO_VERDICT, .length = 8 };
static const struct wire_header says_sent = { .type = WIRE_VERDICT, .arg = COMMIT_SENT, .length = 8 };

/* A receiver that says that it never ran there: is the source left as it is? */
static void assert_a_lie_changes_nothing(void)
{
	struct err e;

	assert_int_equal(resolve(&says_dead, &e), GW_UNKNOWN);
	assert_non_null(strstr(e.text, "as another answer has shown"));
	assert_int_equal(undone, NEVER);
	assert_note_knows(true);
}

static const char *const unknowing[] = {
	"{" NOTE ",\"ran\":false}",
	"{" NOTE "}",	/* an older godwit's */
};

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
	/* It is left stopped: another client has saved it to a file. */
	leaves = true;
	assert_int_equal(resolve(&says_dead, &e), GW_VM_STATE);
	leaves = false;
	assert_non_null(strstr(e.text, "is left stopped here"));
	assert_note_knows(false);
	assert_int_equal(resolve(&says_dead, &e), GW_OK);
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
	json_decref(left);
	have_note(unknowing[0]);
	assert_int_equal(resolve(&says_owing, &e), GW_INCOMPLETE);
	left = note();
	assert_false(json_is_true(json_object_get(left, "complete")));
	json_decref(left);
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

static int make_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static int remove_dir(void **state)
{
	(void)state;
	__real_record_unlink_vm(dir, "doubt", getpid());
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resolve_notes_that_it_runs),
		cmocka_unit_test(what_has_not_run_goes_on),
		cmocka_unit_test(the_note_knows_what_a_receiver_forgets),
		cmocka_unit_test(resolve_tells_of_two),
		cmocka_unit_test(a_sender_that_takes_over_notes_it),
		cmocka_unit_test(one_that_hears_nothing_notes_nothing),
		cmocka_unit_test(what_has_run_here_since_is_not_sent),
		cmocka_unit_test(a_paused_guest_is_not_given_up),
		cmocka_unit_test(the_note_says_how_the_guest_was),
		cmocka_unit_test(an_address_may_be_any_path),
		cmocka_unit_test(no_note_of_a_vm_that_is_gone),
		cmocka_unit_test(a_strict_question_ends_in_time),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
