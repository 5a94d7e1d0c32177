// SPDX-License-Identifier: GPL-2.0-only
/*
 * A link that is lost in post-copy again and again, and comes back each time: both ends go on for as long as RAM comes, and give up
 * --recover-timeout after the first loss since.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "peer/hello.h"
#include "peer/owed_frames.h"
#include "qmp_peer.h"
#include "receive/receiver_internal.h"
#include "send/sender_internal.h"

#define RECOVER_S	300u
#define SECOND		1000000000ull
#define PAGES		4096u

uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);
int __wrap_hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e);
int __wrap_connect_open_streams(struct sender *s, const uint8_t *ready, unsigned int n, struct err *e);
int __wrap_owing_begin(struct sender *s, struct err *e);

static uint64_t passed_ns;

uint64_t __wrap_now_ns(void)
{
	return __real_now_ns() + passed_ns;
}

static uint64_t waits_until;

int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	(void)r, (void)serve, (void)e;
	waits_until = until;
	return 0;
}

static void link_breaks(struct err *e)
{
	*e = (struct err) { 0 };
	err_set(e, GW_LINK_LOST, ECONNRESET, "the connection to the other host broke");
}

/* For how long it waits, in s, when the link is lost and so much is owed. */
static uint64_t receiver_waits(struct receiver *r, uint64_t left)
{
	struct err e;

	link_breaks(&e);
	atomic_store(&r->postcopy.lazy.owed.left, left);
	waits_until = 0;
	assert_true(recover(r, -ECONNRESET, &e) < 0);
	assert_int_equal(e.exit, GW_LINK_LOST);
	assert_non_null(strstr(e.text, "has brought no RAM"));
	return waits_until > now_ns() ? (waits_until - now_ns() + SECOND / 2) / SECOND : 0;
}

static void the_receiver(void **state)
{
	const struct receiver_options o = { .recover_s = RECOVER_S };
	struct receiver r = { .o = &o, .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE, .commit = COMMIT_RUNS };

	(void)state;
	assert_int_equal(receiver_waits(&r, 100), RECOVER_S);
	passed_ns += 100 * SECOND;
	assert_int_equal(receiver_waits(&r, 100), RECOVER_S - 100);
	passed_ns += 100 * SECOND;
	/* A single unit has come. */
	assert_int_equal(receiver_waits(&r, 99), RECOVER_S);
	passed_ns += 299 * SECOND;
	assert_int_equal(receiver_waits(&r, 99), 1);
	passed_ns += 2 * SECOND;
	assert_int_equal(receiver_waits(&r, 99), 0);
}

/* What the receiver names, and the socket that it says that to. */
static uint64_t names;
static int peer = -1;

static int say_frame(void *arg, const struct wire_header *h, const void *body, struct err *e)
{
	uint8_t head[WIRE_HEADER];

	(void)arg, (void)e;
	wire_put_header(head, h);
	assert_int_equal(send(peer, head, sizeof(head), 0), sizeof(head));
	assert_int_equal(send(peer, body, h->length, 0), h->length);
	return 0;
}

static void receiver_answers(void)
{
	const struct wire_header units = { .type = WIRE_POSTCOPY_ASK, .arg = 1, .length = WIRE_UNIT };
	const struct wire_header go_on = { .type = WIRE_RECOVER, .arg = 1, .length = WIRE_SECRET };
	const struct frame_out to = { .send = say_frame };
	const uint64_t pages = PAGES;
	const uint32_t unit = 1;
	uint8_t body[WIRE_SECRET] = { 0 };
	struct err e = { 0 };
	struct owed owed;
	uint64_t sum;

	wire_put_units(body, &unit, 1);
	say_frame(NULL, &units, body, &e);
	assert_int_equal(owed_init(&owed, &pages, &unit, 1, &e), 0);
	assert_int_equal(owed_add(&owed, 0, 0, names), 0);
	assert_int_equal(owed_frames_send(&owed, &to, &sum, &e), 0);
	assert_int_equal(sum, names);
	owed_free(&owed);
	say_frame(NULL, &go_on, body, &e);
}

int __wrap_hello(const struct hello_peer *with, struct channel **out, uint64_t *agreed, struct err *e)
{
	int pair[2];

	(void)with;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (peer >= 0)
		close(peer);
	peer = pair[1];
	*agreed = WIRE_POSTCOPY;
	receiver_answers();
	return channel_new(pair[0], engine, 20000, out, e);
}

int __wrap_connect_open_streams(struct sender *s, const uint8_t *ready, unsigned int n, struct err *e)
{
	(void)s, (void)ready, (void)n, (void)e;
	return 0;
}

static unsigned int begun;

int __wrap_owing_begin(struct sender *s, struct err *e)
{
	(void)s, (void)e;
	begun++;
	return 0;
}

/* The link is lost, and the receiver that it finds again names so much. */
static int sender_recovers(struct sender *s, uint64_t left, struct err *e)
{
	link_breaks(e);
	names = left;
	return owing_recover(s, -ECONNRESET, e);
}

static void the_sender(void **state)
{
	const struct sender_options o = { .engine = engine, .streams = 1, .recover_s = RECOVER_S, .timeout_ms = 20000 };
	struct report report = { .streams = 1 };
	struct sender s = { .o = &o, .report = &report, .owing = OWING_NONE, .vm = { .pidfd = -1, .nblocks = 1 } };
	struct err e;

	(void)state;
	s.vm.blocks[0].pages = PAGES;
	assert_int_equal(sender_recovers(&s, 100, &e), 0);
	passed_ns += (RECOVER_S + 1) * SECOND;
	/* RAM came then, and another receiver has taken over, which names all that may be missing (on hugetlbfs: everything). */
	assert_int_equal(sender_recovers(&s, 4000, &e), 0);
	passed_ns += (RECOVER_S - 1) * SECOND;
	assert_int_equal(sender_recovers(&s, 100, &e), 0);
	passed_ns += (RECOVER_S + 1) * SECOND;
	/* Between the first loss and this one RAM has come, and so it does until the last one but two. */
	assert_int_equal(sender_recovers(&s, 99, &e), 0);
	passed_ns += 200 * SECOND;
	assert_int_equal(sender_recovers(&s, 98, &e), 0);
	passed_ns += (RECOVER_S - 1) * SECOND;
	assert_int_equal(sender_recovers(&s, 98, &e), 0);
	assert_int_equal(report.reconnects, 6);
	passed_ns += 2 * SECOND;
	assert_true(sender_recovers(&s, 98, &e) < 0);
	assert_int_equal(e.exit, GW_LINK_LOST);
	assert_non_null(strstr(e.text, "the link comes back, but for 300 s it has brought the receiver no RAM"));
	owing_free(&s);
	close(peer);
	peer = -1;
}

static void be_continued(struct peer *p)
{
	peer_negotiate(p);
	peer_say(p, "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 1}, \"event\": \"RESUME\"}\r\n");
	while (peer_line(p))
		peer_reply(p, "return", "{}");
}

/* Another client has continued the guest here while the link was away: no page of it may go any more. */
static void not_of_a_guest_that_has_run_here(void **state)
{
	const struct sender_options o = { .engine = engine, .streams = 1, .recover_s = RECOVER_S, .timeout_ms = 20000 };
	struct report report = { .streams = 1 };
	struct sender s = {
		.o = &o, .report = &report, .owing = OWING_NONE, .vm = { .pidfd = -1, .nblocks = 1 }, .commit = COMMIT_RUNS, .note = RECORD_NONE,
	};
	struct peer p;
	struct err e = { 0 };

	(void)state;
	begun = 0;
	s.vm.blocks[0].pages = PAGES;
	assert_int_equal(peer_start(&p, be_continued, NULL, 4), 0);
	assert_int_equal(qmp_open(p.path, 20000, &s.qmp, &e), 0);
	assert_int_equal(qmp_call(s.qmp, "query-version", NULL, NULL, &e), 0);
	assert_true(sender_recovers(&s, 100, &e) < 0);
	assert_non_null(strstr(e.text, "no more of it is sent"));
	assert_int_equal(begun, 0);
	owing_free(&s);
	qmp_close(s.qmp);
	peer_stop(&p);
	close(peer);
	peer = -1;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_receiver),
		cmocka_unit_test(the_sender),
		cmocka_unit_test(not_of_a_guest_that_has_run_here),
	};

	return RUN_WITH_ENGINES(tests);
}
