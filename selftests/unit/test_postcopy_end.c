// SPDX-License-Identifier: GPL-2.0-only
/*
 * The last page of a post-copy is in place. The receiver says so if QEMU has the guest, and that the guest is lost if QEMU was
 * killed before: pages come into place without it, too. A guest that has powered itself off is not lost.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "qmp_peer.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"

bool __wrap_requests_failed(struct requests *r, struct err *e);
const atomic_bool *__wrap_receive_streams_failed(const struct receive_streams *all);
void __wrap_owed_again(struct owed *o);
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);
void __wrap_lazy_unregister(struct lazy_ram *l);

void __wrap_say(const char *fmt, ...);

/* What the receiver has said. */
static char words[4096];

void __wrap_say(const char *fmt, ...)
{
	const size_t before = strlen(words);
	va_list args;

	va_start(args, fmt);
	vsnprintf(words + before, sizeof(words) - before, fmt, args);
	va_end(args);
}

/* Nothing waits for a page any more. */
static atomic_bool let_go;

void __wrap_lazy_unregister(struct lazy_ram *l)
{
	(void)l;
	atomic_store(&let_go, true);
}

bool __wrap_requests_failed(struct requests *r, struct err *e)
{
	(void)r, (void)e;
	return false;
}

const atomic_bool *__wrap_receive_streams_failed(const struct receive_streams *all)
{
	static atomic_bool failed;

	(void)all;
	return &failed;
}

/* Where the last unit is put in place once the link is lost: while the threads end, or of a sender that came and went again. */
static enum { NEVER, ENDING, WAITING } last_comes;
static unsigned int waits;

void __wrap_owed_again(struct owed *o)
{
	if (last_comes == ENDING)
		atomic_store(&o->left, 0);
}

int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	(void)until, (void)serve, (void)e;
	waits++;
	if (last_comes == WAITING)
		atomic_store(&r->postcopy.lazy.owed.left, 0);
	return 0;
}

/**
 * struct scene
 * @qemu: its process
 * @qemu_says: its last words
 * @hears: and it is asked something after that
 * @takes_over: from a receiver that was killed before it gave QEMU its capabilities back
 * @silent: QEMU did not answer until that one's sender was back: it waited for a page
 * @given_back: how often they were, before the mark was looked for
 * @gave: the receiver told QEMU so when the guest began to run; @refuses: and QEMU did not
 * @waits: QEMU was asked something while it may have waited for a page, and nobody served faults
 * @owes: a unit, and the link is lost; @lacks: one, and it is not
 * @other: and the monitor is another QEMU's by now
 * @whole: the record of the one before says so
 * @late: the sender takes a while to confirm what it has read
 * @said: the frames that the sender has read, but for those that tell of page faults
 * @status: of ABORT
 */
struct scene {
	pid_t qemu;
	const char *qemu_says;
	bool hears, takes_over, silent, gave, refuses, waits, owes, lacks, other, late, whole;
	int peer;
	unsigned int said, given_back;
	uint32_t status;
};

/* The sender: confirms the first word that ends the migration. */
static void *sender_hears(void *arg)
{
	const struct wire_header done = { .type = WIRE_DONE };
	struct scene *s = arg;
	uint8_t head[WIRE_HEADER], body[4096];
	struct wire_header h;

	while (!s->owes && recv(s->peer, head, sizeof(head), MSG_WAITALL) == sizeof(head)) {
		wire_get_header(head, &h);
		if (h.length)
			recv(s->peer, body, h.length, MSG_WAITALL);
		if (h.type != WIRE_COMPLETE && h.type != WIRE_ABORT)
			continue;
		s->said = h.type;
		s->status = h.arg;
		wire_put_header(head, &done);
		if (s->late)
			nap_ms(600);
		send(s->peer, head, sizeof(head), MSG_NOSIGNAL);
		break;
	}
	shutdown(s->peer, SHUT_RDWR);
	return NULL;
}

/* Its monitor closes some time before its process ends, as that of a process that is killed may. */
static void qemu_ends(struct peer *p)
{
	const struct scene *s = p->arg;

	peer_negotiate(p);
	peer_say(p, s->qemu_says);
	if (s->hears)
		peer_line(p);
	shutdown(p->fd, SHUT_RDWR);
	peer_nap(50);
	kill(s->qemu, SIGKILL);
}

/* QEMU has answered what it was told when the guest began to run. */
static atomic_bool told;

static void qemu_lives(struct peer *p)
{
	struct scene *s = (struct scene *)p->arg;
	bool looked = false;

	peer_negotiate(p);
	while (peer_line(p)) {
		looked |= strstr(p->line, "qom-list") != NULL;
		if (strstr(p->line, "migrate-set-capabilities") && strstr(p->line, "x-ignore-shared") && !looked)
			s->given_back++;
		if (s->gave && s->given_back == 1 && !looked) {
			peer_reply(p, s->refuses ? "error" : "return", s->refuses ? "{\"class\": \"GenericError\", \"desc\": \"busy\"}" : "{}");
			atomic_store(&told, true);
			continue;
		}
		s->waits |= !atomic_load(&let_go);
		peer_reply(p, "return", "[]");
	}
}

static int end_with(struct scene *s, peer_script *qemu, struct receiver *r, struct err *e)
{
	struct receiver_options o = { .timeout_ms = 20000, .recover = s->takes_over, .recover_s = 1 };
	struct peer monitor;
	pthread_t thread;
	int pair[2], ret;

	atomic_store(&let_go, false);
	words[0] = '\0';
	s->qemu = fork();
	if (!s->qemu) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	*r = (struct receiver) {
		.o = &o, .lfd = -1, .vm = { .pid = s->qemu, .pidfd = pidfd_open(s->qemu, 0), .vm_fd = -1 }, .postcopy = POSTCOPY_NONE,
		.commit = COMMIT_RUNS, .record = RECORD_NONE, .claim = CLAIM_NONE, .features = WIRE_POSTCOPY | WIRE_LOSSES,
		.verdicts = true, .sender = SENDER_KNOWS,
	};
	r->whole = s->whole;
	r->postcopy.begun = true;
	r->postcopy.lazy.owed.left = s->owes || s->lacks;
	assert_true(r->vm.pidfd >= 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	s->peer = pair[1];
	assert_int_equal(channel_new(pair[0], engine, 20000, &r->ch, e), 0);
	assert_int_equal(peer_start(&monitor, qemu, s, 4), 0);
	/* The monitor is this process's. */
	r->at = (struct qmp_place) { .path = monitor.path, .socket = -1, .vmm = s->other ? s->qemu : 0 };
	if (!s->silent)
		assert_int_equal(qmp_open(monitor.path, 20000, &r->qmp, e), 0);
	r->migration = (struct migration) {
		.qmp = r->qmp, .stream = -1, .old_caps = json_loads("[{\"capability\":\"x-ignore-shared\",\"state\":false}]", 0, NULL),
	};
	atomic_store(&told, false);
	if (s->gave)
		migration_restore_begin(&r->migration);
	while (s->gave && !atomic_load(&told))
		nap_ms(1);
	assert_int_equal(pthread_create(&thread, NULL, sender_hears, s), 0);
	ret = postcopy_finish(r, e);
	channel_free(r->ch);
	pthread_join(thread, NULL);
	close(s->peer);
	migration_free(&r->migration);
	peer_qemu_end(&monitor, r->qmp);
	kill(s->qemu, SIGKILL);
	waitpid(s->qemu, NULL, 0);
	close(r->vm.pidfd);
	return ret;
}

static void a_guest_that_is_whole(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		struct scene s = { .takes_over = i, .silent = i == 2 };
		struct err e = { 0 };
		struct receiver r;

		assert_int_equal(end_with(&s, qemu_lives, &r, &e), 0);
		assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_COMPLETE));
		assert_false(r.lost);
		assert_int_equal(r.sender, SENDER_KNOWS);
		assert_int_equal(s.given_back, 1);
		assert_false(s.waits);
		assert_string_equal(words, "");
	}
}

/* It gets its settings back from nobody: who ends here says what is left in it, and how to be rid of that. */
static void a_qemu_that_is_never_reached(void **state)
{
	struct scene s = { .takes_over = true, .silent = true, .other = true };
	struct err e = { 0 };
	struct receiver r;

	(void)state;
	assert_int_equal(end_with(&s, qemu_lives, &r, &e), 0);
	assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_COMPLETE));
	assert_int_equal(s.given_back, 0);
	assert_non_null(strstr(words, "may keep the capabilities of this migration"));
	assert_non_null(strstr(words, "x-ignore-shared"));
	assert_non_null(strstr(words, "switch that off (migrate-set-capabilities)"));
	assert_non_null(strstr(words, "resolve --forget"));
}

/* What it was told when the guest began to run holds: an operator may have set others since. But if it refused, it is told again. */
static void a_qemu_that_has_its_settings(void **state)
{
	(void)state;
	for (unsigned int refuses = 0; refuses < 2; refuses++) {
		struct scene s = { .gave = true, .refuses = refuses };
		struct err e = { 0 };
		struct receiver r;

		assert_int_equal(end_with(&s, qemu_lives, &r, &e), 0);
		assert_int_equal(s.given_back, 1 + refuses);
		assert_false(s.waits);
	}
}

#define SHUTDOWN(guest, reason)	"{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": " guest ", \"reason\": \"" reason "\"}}\n"
#define EVENT(name)		"{\"event\": \"" name "\"}\n"

static void a_guest_whose_qemu_was_killed(void **state)
{
	static const char *const says[] = {
		"", EVENT("STOP"), EVENT("SHUTDOWN"), SHUTDOWN("false", "host-signal"), SHUTDOWN("false", "host-qmp-quit"),
		SHUTDOWN("true", "guest-panic"), SHUTDOWN("true", "guest-shutdown") EVENT("RESET") EVENT("RESUME"),
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(says) / sizeof(says[0]); i++) {
		struct scene s = { .qemu_says = says[i / 2], .hears = i % 2, .late = !i };
		struct err e = { 0 };
		struct receiver r;

		s.lacks = i % 3 == 2;
		assert_true(end_with(&s, qemu_ends, &r, &e) < 0);
		assert_int_equal(e.exit, GW_VM_GONE);
		assert_non_null(strstr(e.text, ": the guest is lost"));
		assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_ABORT));
		assert_int_equal(s.status, GW_GUEST_LOST);
		assert_true(r.lost);
		/* So it does not wait for the sender's question. */
		assert_int_equal(r.sender, SENDER_KNOWS);
	}
}

/* It had all of its RAM, or needs no more: so it lacks nothing. */
static void a_guest_that_has_powered_itself_off(void **state)
{
	static const char *const says[] = {
		SHUTDOWN("true", "guest-shutdown"), EVENT("RESUME") SHUTDOWN("true", "guest-reset") EVENT("STOP"),
		/* -no-shutdown: whoever started QEMU ends it. */
		SHUTDOWN("true", "guest-shutdown") EVENT("STOP") SHUTDOWN("false", "host-signal"),
	};

	(void)state;
	for (size_t i = 0; i < 4 * sizeof(says) / sizeof(says[0]); i++) {
		struct scene s = { .qemu_says = says[i / 4], .hears = i % 2, .lacks = i & 2 };
		struct err e = { 0 };
		struct receiver r;

		/* Where RAM is missing nobody asks QEMU for anything. */
		s.hears &= !s.lacks;
		assert_int_equal(end_with(&s, qemu_ends, &r, &e), 0);
		assert_int_equal(e.exit, GW_OK);
		assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_COMPLETE));
		assert_true(r.ended && r.whole && !r.lost && !postcopy_lacks_ram(&r));
		assert_int_equal(r.sender, SENDER_KNOWS);
	}
}

/* receive --recover, whose QEMU answers as soon as it has the page that it waited for: what it says then counts. */
static void one_that_took_over_hears_it(void **state)
{
	(void)state;
	for (unsigned int lacks = 0; lacks < 2; lacks++) {
		struct scene s = {
			.qemu_says = SHUTDOWN("true", "guest-shutdown"), .takes_over = true, .silent = true, .hears = true, .lacks = lacks,
		};
		struct err e = { 0 };
		struct receiver r;

		assert_int_equal(end_with(&s, qemu_ends, &r, &e), 0);
		assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_COMPLETE));
		assert_true(r.ended && !r.lost);
	}
}

static void qemu_dies(struct peer *p)
{
	const struct scene *s = p->arg;

	peer_nap(1500);
	kill(s->qemu, SIGKILL);
}

/* And one that never heard QEMU says that it does not know: neither that the guest is lost, nor that all is well. */
static void one_that_heard_nothing_does_not_know(void **state)
{
	(void)state;
	for (unsigned int lacks = 0; lacks < 2; lacks++) {
		struct scene s = { .takes_over = true, .silent = true, .lacks = lacks };
		struct err e = { 0 };
		struct receiver r;

		assert_true(end_with(&s, qemu_dies, &r, &e) < 0);
		assert_int_equal(e.exit, GW_VM_GONE);
		assert_non_null(strstr(e.text, "cannot be known"));
		assert_null(strstr(e.text, ": the guest is lost"));
		assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_ABORT));
		assert_int_equal(s.status, GW_GUEST_LOST);
		assert_true(r.lost && !r.ended);
	}
}

/* A monitor that was lost in between has not told of all: what is asked last counts. */
static void a_guest_that_begins_anew_has_not_ended(void **state)
{
	static const struct {
		const char *status;
		bool ran, off;
	} each[] = { { "shutdown", false, true }, { "paused", false, true }, { "running", true, false }, { "paused", true, false } };
	struct receiver r = { .ran = false };

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		postcopy_saw(&r, each[i].status);
		assert_int_equal(r.ran, each[i].ran);
		assert_int_equal(r.off, each[i].off);
	}
}

static void qemu_runs(struct peer *p)
{
	peer_negotiate(p);
	peer_line(p);
	peer_reply(p, "return", "{\"status\": \"running\"}");
	peer_nap(300);
	kill(((const struct scene *)p->arg)->qemu, SIGKILL);
}

/* That its guest ran when it was heard first, and said nothing of an end since, is proof again. */
static void one_that_saw_the_guest_run_knows(void **state)
{
	struct scene s = { .takes_over = true, .silent = true, .lacks = true };
	struct err e = { 0 };
	struct receiver r;

	(void)state;
	assert_true(end_with(&s, qemu_runs, &r, &e) < 0);
	assert_non_null(strstr(e.text, ": the guest is lost"));
	assert_true(r.ran && r.lost);
}

/* The receiver before has noted that all is there: what becomes of QEMU later takes nothing away. */
static void one_that_knows_of_a_whole_guest(void **state)
{
	struct scene s = { .takes_over = true, .silent = true, .whole = true };
	struct err e = { 0 };
	struct receiver r;

	(void)state;
	assert_int_equal(end_with(&s, qemu_dies, &r, &e), 0);
	assert_int_equal(e.exit, GW_OK);
	assert_string_equal(wire_type_name(s.said), wire_type_name(WIRE_COMPLETE));
	assert_true(r.whole && !r.lost && !r.ended);
}

/* Another QEMU listens where ours did. */
static void the_words_of_another_qemu_are_not_taken(void **state)
{
	struct scene s = { .qemu_says = SHUTDOWN("true", "guest-shutdown"), .takes_over = true, .silent = true, .lacks = true, .other = true };
	struct err e = { 0 };
	struct receiver r;

	(void)state;
	assert_true(end_with(&s, qemu_ends, &r, &e) < 0);
	assert_non_null(strstr(e.text, "cannot be known"));
	assert_false(r.off || r.ended);
}

/* Nobody is there to be told: who asks hears that the guest has all. */
static void the_last_page_comes_when_the_link_is_lost(void **state)
{
	(void)state;
	for (last_comes = ENDING; last_comes <= WAITING; last_comes++) {
		struct scene s = { .owes = true };
		struct err e = { 0 };
		struct receiver r;

		waits = 0;
		assert_int_equal(end_with(&s, qemu_lives, &r, &e), 0);
		assert_int_equal(e.exit, GW_OK);
		assert_int_equal(waits, last_comes == WAITING);
		assert_false(postcopy_lacks_ram(&r) || r.lost || s.waits);
		assert_int_equal(r.sender, SENDER_MAY_NOT_KNOW);
	}
	last_comes = NEVER;
}

static void it_does_not_come(void **state)
{
	struct scene s = { .owes = true };
	struct err e = { 0 };
	struct receiver r;

	(void)state;
	waits = 0;
	assert_true(end_with(&s, qemu_lives, &r, &e) < 0);
	assert_int_equal(e.exit, GW_INCOMPLETE);
	assert_int_equal(waits, 1);
	assert_true(postcopy_lacks_ram(&r));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guest_that_is_whole),
		cmocka_unit_test(a_qemu_that_is_never_reached),
		cmocka_unit_test(a_qemu_that_has_its_settings),
		cmocka_unit_test(a_guest_whose_qemu_was_killed),
		cmocka_unit_test(a_guest_that_has_powered_itself_off),
		cmocka_unit_test(one_that_took_over_hears_it),
		cmocka_unit_test(one_that_heard_nothing_does_not_know),
		cmocka_unit_test(a_guest_that_begins_anew_has_not_ended),
		cmocka_unit_test(one_that_saw_the_guest_run_knows),
		cmocka_unit_test(one_that_knows_of_a_whole_guest),
		cmocka_unit_test(the_words_of_another_qemu_are_not_taken),
		cmocka_unit_test(the_last_page_comes_when_the_link_is_lost),
		cmocka_unit_test(it_does_not_come),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
