// SPDX-License-Identifier: GPL-2.0-only
/* The QMP client against scripted peers: good, slow and broken ones. For first contact and bounds see test_qmp_limits.c. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "devstate/migration.h"
#include "qmp/qmp.h"
#include "qmp/qmp_internal.h"
#include "qmp_peer.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define TIMEOUT_MS	200

struct talk {
	struct peer peer;
	struct qmp *q;
	struct err e;
};

static void begin_slow(struct talk *t, peer_script *script, const void *arg, unsigned int timeout_ms)
{
	memset(&t->e, 0, sizeof(t->e));
	assert_int_equal(peer_start(&t->peer, script, arg, 4), 0);
	assert_int_equal(qmp_open(t->peer.path, timeout_ms, &t->q, &t->e), 0);
}

static void begin(struct talk *t, peer_script *script, const void *arg)
{
	begin_slow(t, script, arg, 2000);
}

static void end(struct talk *t)
{
	qmp_close(t->q);
	peer_stop(&t->peer);
	assert_string_equal(t->peer.missed, "");
}

static void expect_event(struct talk *t, const char *name)
{
	struct qmp_event ev = { 0 };

	assert_int_equal(qmp_event(t->q, deadline_ms(2000), &ev, &t->e), 1);
	assert_string_equal(ev.name, name);
}

static void good_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "{\"execute\":\"migrate\",\"id\":2,\"arguments\":{\"uri\":\"fd:x\"}}");
	peer_say(p, "{\"timestamp\": {\"seconds\": 1700000000, \"microseconds\": 250001}, \"event\": \"STOP\"}\r\n");
	peer_say(p, "{\"event\": \"MIGRATION\", \"data\": {\"status\": \"active\"}, "
		    "\"timestamp\": {\"seconds\": -1, \"microseconds\": -1}}\r\n");
	peer_reply(p, "return", "{\"answer\": 42}");
	peer_hear(p, "\"execute\":\"cont\",\"id\":3}");
	peer_reply(p, "return", "{}");
}

static void test_call_and_events(void **state)
{
	json_t *ret = NULL;
	struct qmp_event ev;
	struct talk t;

	(void)state;
	begin(&t, good_peer, NULL);
	assert_int_equal(qmp_call(t.q, "migrate", json_pack("{s:s}", "uri", "fd:x"), &ret, &t.e), 0);
	assert_int_equal(json_integer_value(json_object_get(ret, "answer")), 42);
	json_decref(ret);
	assert_int_equal(qmp_call(t.q, "cont", NULL, NULL, &t.e), 0);

	assert_int_equal(qmp_event(t.q, 0, &ev, &t.e), 1);
	assert_string_equal(ev.name, "STOP");
	assert_null(ev.data);
	assert_int_equal(ev.realtime_ns, 1700000000250001000ull);
	assert_int_equal(qmp_event(t.q, 0, &ev, &t.e), 1);
	assert_string_equal(ev.name, "MIGRATION");
	assert_string_equal(json_string_value(json_object_get(ev.data, "status")), "active");
	assert_int_equal(ev.realtime_ns, 0);
	end(&t);
}

static void refusing_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "migrate");
	peer_reply(p, "error", "{\"class\": \"GenericError\", \"desc\": \"State blocked\\nby\\tvfio\"}");
	peer_hear(p, "migrate");
	peer_reply(p, "error", "[1, 2]");
	peer_hear(p, "migrate");
	peer_say(p, "{\"error\": {\"class\": \"GenericError\", \"desc\": \"JSON parse error\"}}\n");
	peer_hear(p, "cont");
	peer_reply(p, "return", "{}");
}

static void test_refusals(void **state)
{
	static const char *const texts[] = {
		"QEMU refused \"migrate\": State blocked by vfio (GenericError)",
		"QEMU refused \"migrate\": QEMU does not say why (no class)",
		"QEMU refused \"migrate\": JSON parse error (GenericError)",
	};
	json_t *ret = (json_t *)&texts;
	struct talk t;

	(void)state;
	begin(&t, refusing_peer, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct err e = { 0 };

		assert_int_equal(qmp_call(t.q, "migrate", NULL, &ret, &e), -EREMOTEIO);
		assert_int_equal(e.exit, GW_QMP);
		assert_string_equal(e.text, texts[i]);
		assert_null(ret);
	}
	assert_int_equal(qmp_call(t.q, "cont", NULL, NULL, &t.e), 0);
	end(&t);
}

static void dripping_peer(struct peer *p)
{
	static const char reply[] = "\r\n {\"return\": {\"text\": \"a\\nb\"}, \"id\": 2}\r\n\r\n";

	peer_negotiate(p);
	peer_hear(p, "stop");
	for (size_t i = 0; i < sizeof(reply) - 1; i++) {
		peer_write(p, reply + i, 1);
		peer_nap(1);
	}
	peer_hear(p, "cont");
	peer_say(p, "{\"event\": \"A\"}\n{\"event\": \"B\"}\n{\"return\": {}, \"id\": 3}\n{\"event\": \"C\"}\n{\"ev");
	peer_nap(50);
	peer_say(p, "ent\": \"D\"}\n");
}

static void test_split_and_merged(void **state)
{
	json_t *ret = NULL;
	struct talk t;

	(void)state;
	begin(&t, dripping_peer, NULL);
	assert_int_equal(qmp_call(t.q, "stop", NULL, &ret, &t.e), 0);
	assert_string_equal(json_string_value(json_object_get(ret, "text")), "a\nb");
	json_decref(ret);
	assert_int_equal(qmp_call(t.q, "cont", NULL, NULL, &t.e), 0);
	expect_event(&t, "A");
	expect_event(&t, "B");
	expect_event(&t, "C");
	expect_event(&t, "D");
	end(&t);
}

static void big_number_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "query-migrate");
	peer_reply(p, "return", "{\"remaining\": 18446744073709551615, \"n\": 3}");
}

static void test_unsigned_64_bits(void **state)
{
	json_t *ret = NULL;
	struct talk t;

	(void)state;
	begin(&t, big_number_peer, NULL);
	assert_int_equal(qmp_call(t.q, "query-migrate", NULL, &ret, &t.e), 0);
	assert_true(json_number_value(json_object_get(ret, "remaining")) > 1.8e19);
	json_decref(ret);
	end(&t);
}

static void fd_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "\"execute\":\"getfd\",\"id\":2,\"arguments\":{\"fdname\":\"godwit\"}}");
	if (write(p->passed_fd, "hello", 5) != 5)
		snprintf(p->missed, sizeof(p->missed), "no descriptor came");
	peer_reply(p, "return", "{}");
	peer_hear(p, "cont");
	peer_reply(p, "return", "{}");
}

static void test_getfd(void **state)
{
	struct talk t;
	char buf[8] = "";
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	begin(&t, fd_peer, NULL);
	assert_int_equal(qmp_call_fd(t.q, "getfd", json_pack("{s:s}", "fdname", "godwit"), fds[1], NULL, &t.e), 0);
	assert_int_equal(qmp_call(t.q, "cont", NULL, NULL, &t.e), 0);
	assert_int_equal(close(fds[1]), 0);	/* ours is still ours */
	assert_int_equal(read(fds[0], buf, sizeof(buf)), 5);
	assert_string_equal(buf, "hello");
	end(&t);
	assert_int_equal(read(fds[0], buf, sizeof(buf)), 0);	/* no copy is left open */
	close(fds[0]);
}

/* Says its text to the first command and goes when the client does. */
static void saying_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "stop");
	peer_say(p, p->arg);
	peer_line(p);
}

static void test_nonsense(void **state)
{
	static const char *const says[] = {
		"garbage\n", "garbage", "[1]\n", "\"text\"\n", "{\"return\": {}, \"id\": 2\n", "{}\n", "{\"return\": {}, \"id\": 2} x\n",
		"{\"return\": {}}\n", "{\"return\": {}, \"id\": 3}\n", "{\"return\": {}, \"id\": 0}\n", "{\"return\": {}, \"id\": \"2\"}\n",
		"{\"return\": {}, \"id\": -1}\n", "{\"return\": {}, \"id\": 1.5, \"error\": {}}\n",
		"{\"return\": {}, \"error\": {}, \"id\": 2}\n", "{\"id\": 2}\n", "{\"error\": {}, \"id\": 9}\n",
		"{\"event\": 5}\n", "{\"event\": \"X\", \"data\": 5}\n", "{\"event\": {}}\n", "{\"event\": \"\xff\"}\n",
		"{\"return\": {}, \"id\": 1}\n{\"return\": {}, \"id\": 1}\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(says); i++) {
		struct err again = { 0 };
		struct qmp_event ev;
		struct talk t;

		begin(&t, saying_peer, says[i]);
		assert_int_equal(qmp_call(t.q, "stop", NULL, NULL, &t.e), -EPROTO);
		assert_int_equal(t.e.exit, GW_NOT_QEMU);
		assert_null(strchr(t.e.text, '\n'));
		/* The connection is of no use any more, and says so at once. */
		assert_int_equal(qmp_call(t.q, "cont", json_object(), NULL, &again), -EPROTO);
		assert_int_equal(again.exit, GW_NOT_QEMU);
		assert_int_equal(qmp_event(t.q, 0, &ev, &again), -EPROTO);
		end(&t);
	}
}

static void late_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "\"stop\"");
	peer_hear(p, "\"cont\"");
	peer_say(p, "{\"return\": {\"of\": \"stop\"}, \"id\": 2}\n");
	peer_reply(p, "return", "{\"of\": \"cont\"}");
	peer_hear(p, "\"system_reset\"");
	peer_line(p);
}

/* QEMU hung, and is back: what it answers then must not be taken for the answer to something else. */
static void test_late_reply(void **state)
{
	struct err e = { 0 }, e2 = { 0 };
	json_t *ret = NULL;
	uint64_t start;
	struct talk t;

	(void)state;
	begin_slow(&t, late_peer, NULL, TIMEOUT_MS);
	start = now_ns();
	assert_int_equal(qmp_call(t.q, "stop", NULL, &ret, &e), -ETIMEDOUT);
	assert_int_equal(e.exit, GW_TIMEOUT);
	assert_in_range(now_ns() - start, (TIMEOUT_MS - 1) * 1000000ull, (TIMEOUT_MS + 10000) * 1000000ull);
	assert_null(ret);
	assert_int_equal(qmp_call(t.q, "cont", NULL, &ret, &t.e), 0);
	assert_string_equal(json_string_value(json_object_get(ret, "of")), "cont");
	json_decref(ret);
	assert_int_equal(qmp_call(t.q, "system_reset", NULL, NULL, &e2), -ETIMEDOUT);
	end(&t);
}

static void late_reply_then_event_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_hear(p, "stop");
	peer_nap(TIMEOUT_MS + 50);
	peer_reply(p, "return", "{}");
	peer_say(p, "{\"event\": \"STOP\"}\n");
	peer_reply(p, "return", "{}");	/* no call waits for this one */
	peer_line(p);
}

static void test_event_behind_late_reply(void **state)
{
	struct err e = { 0 };
	struct qmp_event ev;
	struct talk t;

	(void)state;
	begin_slow(&t, late_reply_then_event_peer, NULL, TIMEOUT_MS);
	assert_int_equal(qmp_call(t.q, "stop", NULL, NULL, &e), -ETIMEDOUT);
	expect_event(&t, "STOP");
	assert_int_equal(qmp_event(t.q, deadline_ms(2000), &ev, &t.e), -EPROTO);
	assert_int_equal(t.e.exit, GW_NOT_QEMU);
	end(&t);
}

/* A QEMU that answers only when the test has read what it writes, holding its lock; and one that refuses after all. */
static void begun_peer(struct peer *p)
{
	char byte;

	peer_negotiate(p);
	for (int i = 0; i < 2; i++) {
		peer_hear(p, "migrate-continue");
		if (read(*(const int *)p->arg, &byte, 1) != 1)
			strcpy(p->missed, "the reader");
		if (i == 0)
			peer_reply(p, "return", "{}");
		else
			peer_reply(p, "error", "{\"class\": \"GenericError\", \"desc\": \"no\"}");
		peer_say(p, "{\"event\": \"STOP\"}\n");
	}
	peer_hear(p, "cont");
	peer_reply(p, "return", "{}");
}

static void test_begun(void **state)
{
	struct migration m = { .stream = -1 };
	struct err refusal = { 0 };
	struct qmp_event ev;
	int reader[2];
	struct talk t;

	(void)state;
	assert_int_equal(pipe(reader), 0);
	begin(&t, begun_peer, &reader[0]);
	m.qmp = t.q;
	assert_int_equal(migration_continue(&m, &t.e), 0);
	assert_int_equal(qmp_event(t.q, 0, &ev, &t.e), 0);
	assert_int_equal(write(reader[1], "", 1), 1);
	expect_event(&t, "STOP");

	assert_int_equal(migration_continue(&m, &t.e), 0);
	assert_int_equal(write(reader[1], "", 1), 1);
	assert_int_equal(qmp_event(t.q, deadline_ms(2000), &ev, &refusal), -EREMOTEIO);
	assert_int_equal(refusal.exit, GW_QMP);
	assert_string_equal(refusal.text, "QEMU refused \"migrate-continue\": no (GenericError)");
	/* The connection is as good as before. */
	expect_event(&t, "STOP");
	assert_int_equal(qmp_call(t.q, "cont", NULL, NULL, &t.e), 0);
	end(&t);
	close(reader[0]);
	close(reader[1]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_call_and_events),
	cmocka_unit_test(test_refusals),
	cmocka_unit_test(test_split_and_merged),
	cmocka_unit_test(test_unsigned_64_bits),
	cmocka_unit_test(test_getfd),
	cmocka_unit_test(test_nonsense),
	cmocka_unit_test(test_late_reply),
	cmocka_unit_test(test_event_behind_late_reply),
	cmocka_unit_test(test_begun),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
