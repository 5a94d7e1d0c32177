// SPDX-License-Identifier: GPL-2.0-only
/* receive --recover: what it learns of a QEMU whose receiver was killed, before and when the sender has come. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "qmp_peer.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"
#include "run_dir.h"

#define SENT	"{\"state\":\"sent\",\"vmm\":\"doubt-7-7\",\"capabilities\":[{\"capability\":\"x-ignore-shared\",\"state\":false}]}"
#define LACKS	"{\"state\":\"runs\",\"vmm\":\"doubt-7-7\",\"owing\":true}"
#define WHOLE	"{\"state\":\"runs\",\"vmm\":\"doubt-7-7\",\"owing\":false}"
#define RUNS	"{\"state\":\"runs\",\"vmm\":\"doubt-7-7\",\"capabilities\":null}"

static const uint8_t token[WIRE_SECRET] = "the guest's own";

int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);
int __wrap_receiver_find(struct receiver *r, struct err *e);
int __wrap_receiver_listen(struct receiver *r, struct err *e);
int __real_postcopy_finish(struct receiver *r, struct err *e);
int __wrap_postcopy_finish(struct receiver *r, struct err *e);

static struct qmp *found;
static const struct vm *is_vm;	/* or NULL: without RAM */
static char *to_be_set;

int __wrap_receiver_find(struct receiver *r, struct err *e)
{
	(void)e;
	r->qmp = found;
	strcpy(r->vmm, "doubt-7-7");
	if (is_vm)
		r->vm = *is_vm;
	return 0;
}

static bool exits, ended;

/* The sender comes at once; or QEMU exits before. */
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	(void)until, (void)serve;
	r->off |= ended;
	if (exits)
		return err_set(e, GW_VM_GONE, ESRCH, "QEMU has exited");
	memcpy(r->token, token, sizeof(token));
	return 1;
}

int __wrap_receiver_listen(struct receiver *r, struct err *e)
{
	(void)r, (void)e;
	return 0;
}

static bool to_the_end;

int __wrap_postcopy_finish(struct receiver *r, struct err *e)
{
	if (to_the_end)
		return __real_postcopy_finish(r, e);
	assert_ptr_equal(r->migration.qmp, found);
	to_be_set = r->migration.old_caps ? json_dumps(r->migration.old_caps, JSON_COMPACT) : strdup("");
	return 0;
}

static void have_record(const char *text)
{
	struct record rec;
	char name[RECORD_NAME];

	record_name_verdict(name, token, sizeof(token));
	assert_int_equal(record_open(&rec, run_dir, name), 0);
	assert_int_equal(record_write(&rec, json_loads(text, 0, NULL)), 0);
	record_close(&rec);
}

#define MARKED	{ "qom-list", "", "[{\"name\": \"godwit-migration\", \"type\": \"secret\"}]" }, { "qom-get", "", "\"00 -\"" }

/* It knows at once whether the guest runs, and as soon as its sender has come what the receiver before has set. */
static void what_one_that_takes_over_learns(void **state)
{
	static const struct peer_answer running[] = { MARKED, { "query-status", "", "{\"status\": \"running\"}" }, { 0 } };
	static const struct peer_answer paused[] = { MARKED, { "query-status", "", "{\"status\": \"paused\"}" }, { 0 } };
	static const struct peer_answer off[] = { MARKED, { "query-status", "", "{\"status\": \"shutdown\"}" }, { 0 } };
	const struct {
		const struct peer_answer *qemu;
		const char *record, *set;
		bool ran, off, whole;
	} each[] = {
		{ running, SENT, "[{\"capability\":\"x-ignore-shared\",\"state\":false}]", .ran = true },
		{ paused, SENT, "[{\"capability\":\"x-ignore-shared\",\"state\":false}]", .ran = false },
		{ running, RUNS, "", .ran = true },
		{ off, RUNS, "", .off = true },
		{ running, LACKS, "", .ran = true },
		{ running, WHOLE, "", .ran = true, .whole = true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		const struct receiver_options o = { .recover = true, .qmp_path = "/tmp/godwit-none" };
		struct receiver r = { .o = &o, .lfd = -1, .postcopy = POSTCOPY_NONE, .record = RECORD_NONE, .migration = { .stream = -1 } };
		struct err e = { 0 };
		struct peer qemu;

		have_record(each[i].record);
		found = peer_qemu(&qemu, each[i].qemu, &e);
		assert_non_null(found);
		assert_int_equal(recover_take_over(&r, &e), 0);
		assert_true(r.ran == each[i].ran && r.off == each[i].off && r.whole == each[i].whole);
		assert_string_equal(to_be_set, each[i].set);
		free(to_be_set);
		record_remove(&r.record);
		migration_free(&r.migration);
		peer_qemu_end(&qemu, found);
	}
}

#define MTREE	"memory-region: system\\r\\n" \
	"  0000000000000000-0000000000007fff (prio 0, ram): b\\r\\n" \
	"  0000000000008000-000000000000ffff (prio 0, ram): a\\r\\n" \
	"  00000000fe000000-00000000fe007fff (prio 1, ram): pipe\\r\\n"

/* Without a note nothing says that names are of no account: it learns where RAM is, but for what the guest may move. */
static void without_a_note_it_asks_where_ram_is(void **state)
{
	static const struct peer_answer qemu[] = {
		{ "qom-list", "peripheral\"", "[{\"name\": \"tube\", \"type\": \"child<ivshmem-plain>\"}]" },
		{ "qom-list", "peripheral-anon", "[]" }, { "qom-get", "memdev", "\"/objects/pipe\"" }, MARKED,
		{ "query-status", "", "{\"status\": \"running\"}" }, { "human-monitor-command", "info mtree", "\"" MTREE "\"" }, { 0 },
	};
	static const struct vm vm = {
		.pidfd = -1, .vm_fd = -1, .nblocks = 3,
		.blocks = { { .name = "a", .pages = 8, .fd = -1 }, { .name = "b", .pages = 8, .fd = -1 }, { .name = "pipe", .pages = 8, .fd = -1 } },
	};
	const struct receiver_options o = { .recover = true, .qmp_path = "/tmp/godwit-none" };
	struct receiver r = { .o = &o, .lfd = -1, .postcopy = POSTCOPY_NONE, .record = RECORD_NONE, .migration = { .stream = -1 } };
	struct err e = { 0 };
	struct peer peer;

	(void)state;
	have_record(LACKS);
	found = peer_qemu(&peer, qemu, &e);
	assert_non_null(found);
	is_vm = &vm;
	assert_int_equal(recover_take_over(&r, &e), 0);
	is_vm = NULL;
	assert_true(r.vm.blocks[0].address == 0x8000 && !r.vm.blocks[1].address);
	assert_true(r.vm.blocks[2].address == WIRE_NO_ADDRESS);
	assert_false(r.numbered);
	free(to_be_set);
	record_remove(&r.record);
	migration_free(&r.migration);
	peer_qemu_end(&peer, found);
}

/* Its guest may have ended of its own accord. If it was not seen to run nobody can know. */
static void qemu_exits_before_the_sender_comes(void **state)
{
	static const struct peer_answer running[] = { MARKED, { "query-status", "", "{\"status\": \"running\"}" }, { 0 } };
	static const struct peer_answer paused[] = { MARKED, { "query-status", "", "{\"status\": \"paused\"}" }, { 0 } };
	static const char *const words[] = { "cannot be known", ": the guest is lost" };

	(void)state;
	exits = true;
	for (unsigned int i = 0; i < 4; i++) {
		const struct receiver_options o = { .recover = true, .qmp_path = "/tmp/godwit-none" };
		struct receiver r = { .o = &o, .lfd = -1, .postcopy = POSTCOPY_NONE, .record = RECORD_NONE, .migration = { .stream = -1 } };
		char name[RECORD_NAME];
		struct err e = { 0 };
		struct peer qemu;
		json_t *record;
		bool held;
		int ret;

		ended = i / 2;
		have_record(LACKS);
		found = peer_qemu(&qemu, i % 2 ? running : paused, &e);
		assert_non_null(found);
		ret = recover_take_over(&r, &e);
		assert_int_equal(ret == 0, ended);
		assert_int_equal(r.lost, !ended);
		assert_true(r.whole == ended && r.ended == ended);
		assert_int_equal(e.exit, ended ? GW_OK : GW_VM_GONE);
		if (!ended)
			assert_non_null(strstr(e.text, words[i % 2]));
		/* Who is started here later can tell the sender. */
		record_name_verdict(name, token, sizeof(token));
		record = record_find(name, &held);
		assert_int_equal(json_is_true(json_object_get(record, "lost")), !ended);
		assert_int_equal(json_is_true(json_object_get(record, "owing")), !ended);
		json_decref(record);
		record_remove(&r.record);
		peer_qemu_end(&qemu, found);
	}
	exits = ended = false;
}

/* A QEMU whose guest is as @now says, and after `cont` as @then does; NULL: it refuses that. */
struct starting {
	const char *now, *then;
	unsigned int conts;
};

static void may_start(struct peer *p)
{
	static const struct peer_answer marked[] = { MARKED };
	struct starting *s = (struct starting *)p->arg;
	char status[64];

	peer_negotiate(p);
	while (peer_line(p)) {
		if (strstr(p->line, "\"cont\"")) {
			s->conts++;
			s->now = s->then ? s->then : s->now;
			peer_reply(p, s->then ? "return" : "error", s->then ? "{}" : "{\"class\": \"GenericError\", \"desc\": \"a lock\"}");
			continue;
		}
		snprintf(status, sizeof(status), "{\"status\": \"%s\"}", s->now);
		peer_reply(p, "return", strstr(p->line, "query-status") ? status : strstr(p->line, "qom-list") ? marked[0].ret :
			   strstr(p->line, "qom-get") ? marked[1].ret : "{}");
	}
}

#define KILLED(state, more)	"{\"state\":\"" state "\",\"vmm\":\"doubt-7-7\"," more "}"

/* The receiver before was killed when QEMU had loaded the guest, and had not begun to run it. */
static void a_guest_that_nobody_has_started(void **state)
{
	static const struct {
		const char *record, *now, *then;
		unsigned int conts;
		bool fails;
	} each[] = {
		{ KILLED("sent", "\"runs\":true"), "paused", "running", 1, false },
		{ KILLED("in-doubt", "\"runs\":true"), "paused", "running", 1, false },
		{ KILLED("sent", "\"runs\":true"), "paused", NULL, 1, true },
		/* QEMU 11.1 says yes, and does nothing. */
		{ KILLED("sent", "\"runs\":true"), "paused", "paused", 1, true },
		/* The one that took over was killed as well, also when the last page had come. */
		{ KILLED("runs", "\"owing\":true,\"unstarted\":true"), "paused", "running", 1, false },
		{ KILLED("runs", "\"owing\":false,\"unstarted\":true"), "paused", NULL, 1, true },
		/* It has run, and ended, or stopped by itself. */
		{ KILLED("sent", "\"runs\":true"), "running", "running", 0, false },
		{ KILLED("sent", "\"runs\":true"), "shutdown", "running", 0, false },
		{ KILLED("sent", "\"runs\":true"), "io-error", "running", 0, false },
		/* Its operator has stopped it, at the source or here. */
		{ KILLED("sent", "\"runs\":false"), "paused", "running", 0, false },
		{ KILLED("runs", "\"runs\":true,\"owing\":true"), "paused", "running", 0, false },
	};

	(void)state;
	to_the_end = true;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		const struct receiver_options o = { .recover = true, .qmp_path = "/tmp/godwit-none", .timeout_ms = 5000 };
		struct receiver r = {
			.o = &o, .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE, .record = RECORD_NONE,
			.migration = { .stream = -1 }, .claim = CLAIM_NONE,
		};
		struct starting s = { .now = each[i].now, .then = each[i].then };
		struct err e = { 0 };
		struct peer qemu;

		have_record(each[i].record);
		assert_int_equal(peer_start(&qemu, may_start, &s, 4), 0);
		assert_int_equal(qmp_open(qemu.path, 2000, &found, &e), 0);
		assert_int_equal(recover_take_over(&r, &e) < 0, each[i].fails);
		assert_int_equal(e.exit, each[i].fails ? GW_UNKNOWN : GW_OK);
		if (each[i].fails)
			assert_non_null(strstr(e.text, "has not started the guest"));
		assert_int_equal(s.conts, each[i].conts);
		assert_true(r.whole);
		record_remove(&r.record);
		migration_free(&r.migration);
		peer_qemu_end(&qemu, found);
	}
	to_the_end = false;
}

/* Its operator may stop it before the next receiver comes. */
static void that_it_has_run_is_on_record(void **state)
{
	const struct receiver_options o = { .recover = true, .qmp_path = "/tmp/godwit-none" };
	struct receiver r = { .o = &o, .record = RECORD_NONE, .commit = COMMIT_RUNS, .runs = true, .unstarted = true, .verdicts = true };
	char name[RECORD_NAME];
	json_t *record;
	bool held;

	(void)state;
	memcpy(r.token, token, sizeof(token));
	record_name_verdict(name, token, sizeof(token));
	verdict_open(&r);
	postcopy_saw(&r, "paused");
	record = record_read(run_dir, name, &held);
	assert_true(json_is_true(json_object_get(record, "unstarted")));
	json_decref(record);
	postcopy_saw(&r, "running");
	record = record_read(run_dir, name, &held);
	assert_true(json_is_false(json_object_get(record, "unstarted")));
	json_decref(record);
	record_remove(&r.record);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_that_takes_over_learns),
		cmocka_unit_test(without_a_note_it_asks_where_ram_is),
		cmocka_unit_test(qemu_exits_before_the_sender_comes),
		cmocka_unit_test(a_guest_that_nobody_has_started),
		cmocka_unit_test(that_it_has_run_is_on_record),
	};

	return cmocka_run_group_tests(tests, run_dir_make, run_dir_remove);
}
