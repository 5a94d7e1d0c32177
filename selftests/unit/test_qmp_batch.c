// SPDX-License-Identifier: GPL-2.0-only
/* Many commands under way at a time, against scripted peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "qmp/qmp.h"
#include "qmp_peer.h"

#define N	70u	/* more than are under way at a time */

struct talk {
	struct peer peer;
	struct qmp *q;
	struct err e;
	struct qmp_batch b[N];
};

static void begin(struct talk *t, peer_script *script)
{
	memset(t, 0, sizeof(*t));
	assert_int_equal(peer_start(&t->peer, script, NULL, 4), 0);
	assert_int_equal(qmp_open(t->peer.path, 1000, &t->q, &t->e), 0);
	for (unsigned int i = 0; i < N; i++)
		t->b[i] = (struct qmp_batch) { .command = "qom-get", .args = i % 2 ? json_pack("{s:i}", "number", i) : NULL };
}

static void end(struct talk *t)
{
	for (unsigned int i = 0; i < N; i++) {
		assert_null(t->b[i].args);
		json_decref(t->b[i].ret);
	}
	qmp_close(t->q);
	peer_stop(&t->peer);
	assert_string_equal(t->peer.missed, "");
}

/* The number of the command is part of each answer; an event and a refusal stand in between. */
static void answering_peer(struct peer *p)
{
	char value[40];

	peer_negotiate(p);
	for (unsigned int i = 0; i < N; i++) {
		peer_hear(p, "qom-get");
		if (i == 20)
			peer_say(p, "{\"event\": \"STOP\"}\n");
		snprintf(value, sizeof(value), "%u", i);
		peer_reply(p, i == 33 ? "error" : "return", i == 33 ? "{\"class\": \"GenericError\", \"desc\": \"no\"}" : value);
	}
	peer_hear(p, "query-status");
	peer_reply(p, "return", "{}");
}

static void test_answers(void **state)
{
	struct qmp_event ev;
	struct talk t;

	(void)state;
	begin(&t, answering_peer);
	assert_int_equal(qmp_call_all(t.q, t.b, N, &t.e), 0);
	for (unsigned int i = 0; i < N; i++) {
		if (i == 33)
			assert_null(t.b[i].ret);
		else
			assert_int_equal(json_integer_value(t.b[i].ret), i);
	}
	assert_int_equal(qmp_event(t.q, 0, &ev, &t.e), 1);
	assert_string_equal(ev.name, "STOP");
	assert_true(qmp_answered(t.q));
	assert_int_equal(qmp_call(t.q, "query-status", NULL, NULL, &t.e), 0);
	end(&t);
}

/* Dies after some answers: what came is there, and the rest is not waited for. */
/* It reads on, as a socket that is closed with bytes unread resets the connection, answers and all. */
static void dying_peer(struct peer *p)
{
	char unread[4096];

	peer_negotiate(p);
	for (unsigned int i = 0; i < 5; i++) {
		peer_hear(p, "qom-get");
		peer_reply(p, "return", "1");
	}
	shutdown(p->fd, SHUT_WR);
	while (read(p->fd, unread, sizeof(unread)) > 0)
		;
}

static void test_end(void **state)
{
	struct talk t;

	(void)state;
	begin(&t, dying_peer);
	assert_true(qmp_call_all(t.q, t.b, N, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_VM_GONE);
	assert_int_equal(json_integer_value(t.b[0].ret), 1);
	assert_null(t.b[N - 1].ret);
	end(&t);
}

/* Answers one command twice, and another never. */
static void doubling_peer(struct peer *p)
{
	peer_negotiate(p);
	for (unsigned int i = 0; i < 32; i++) {
		peer_hear(p, "qom-get");
		if (i != 3)
			peer_reply(p, "return", "[7]");
		if (i == 2)
			peer_reply(p, "return", "[8]");
	}
}

static void test_twice(void **state)
{
	struct talk t;

	(void)state;
	begin(&t, doubling_peer);
	t.b[2].must = true;
	assert_int_equal(qmp_call_all(t.q, t.b, 32, &t.e), 0);
	assert_int_equal(json_integer_value(json_array_get(t.b[2].ret, 0)), 7);
	assert_null(t.b[3].ret);
	for (unsigned int i = 32; i < N; i++) {
		json_decref(t.b[i].args);
		t.b[i].args = NULL;
	}
	end(&t);
}

/* Not so if it was to be answered. */
static void test_twice_and_must(void **state)
{
	struct talk t;

	(void)state;
	begin(&t, doubling_peer);
	t.b[3].must = true;
	assert_true(qmp_call_all(t.q, t.b, N, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_NOT_QEMU);
	assert_null(t.b[3].ret);
	end(&t);
}

/* Refuses the second and the third. */
static void refusing_peer(struct peer *p)
{
	static const char *const answers[] = {
		"1", "{\"class\": \"GenericError\", \"desc\": \"not now\"}", "{\"class\": \"GenericError\", \"desc\": \"nor this\"}", "4",
	};

	peer_negotiate(p);
	for (unsigned int i = 0; i < 4; i++) {
		peer_hear(p, "qom-get");
		peer_reply(p, i == 1 || i == 2 ? "error" : "return", answers[i]);
	}
	peer_hear(p, "query-status");
	peer_reply(p, "return", "{}");
}

static void test_one_that_must_not_be_refused(void **state)
{
	static const bool must[][4] = { { false }, { true, false, false, true }, { true, true, true, true }, { false, false, true } };
	static const char *const says[] = { NULL, NULL, "not now", "nor this" };
	struct talk t;

	(void)state;
	for (unsigned int c = 0; c < 4; c++) {
		int r;

		begin(&t, refusing_peer);
		for (unsigned int i = 0; i < N; i++) {
			if (i < 4) {
				t.b[i].must = must[c][i];
				continue;
			}
			json_decref(t.b[i].args);
			t.b[i].args = NULL;
		}
		r = qmp_call_all(t.q, t.b, 4, &t.e);
		assert_int_equal(r, says[c] ? -EREMOTEIO : 0);
		assert_int_equal(t.e.exit, says[c] ? GW_QMP : GW_OK);
		if (says[c])
			assert_non_null(strstr(t.e.text, says[c]));
		else
			assert_int_equal(json_integer_value(t.b[3].ret), 4);
		/* All have been answered. */
		assert_true(qmp_answered(t.q));
		t.e = (struct err) { 0 };
		assert_int_equal(qmp_call(t.q, "query-status", NULL, NULL, &t.e), 0);
		end(&t);
	}
}

static void silent_peer(struct peer *p)
{
	peer_negotiate(p);
	for (unsigned int i = 0; i < 32; i++)
		peer_hear(p, "qom-get");
	peer_nap(1300);
}

static void test_silence(void **state)
{
	struct talk t;

	(void)state;
	begin(&t, silent_peer);
	assert_true(qmp_call_all(t.q, t.b, N, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_TIMEOUT);
	end(&t);
}

static void greeting_peer(struct peer *p)
{
	peer_negotiate(p);
}

static void test_none(void **state)
{
	struct talk t;

	(void)state;
	begin(&t, greeting_peer);
	assert_int_equal(qmp_call_all(t.q, t.b, 0, &t.e), 0);
	for (unsigned int i = 0; i < N; i++) {
		json_decref(t.b[i].args);
		t.b[i].args = NULL;
	}
	end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_end),
		cmocka_unit_test(test_twice),
		cmocka_unit_test(test_twice_and_must),
		cmocka_unit_test(test_one_that_must_not_be_refused),
		cmocka_unit_test(test_silence),
		cmocka_unit_test(test_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
