// SPDX-License-Identifier: GPL-2.0-only
/* What QEMU says last, before it closes its monitor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "qmp_peer.h"

static void shutdown_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_nap(50);
	peer_say(p, "{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": false}}\n");
}

static void test_end_after_event(void **state)
{
	struct err e = { 0 };
	struct qmp_event ev;
	struct qmp *q;
	struct peer p;

	(void)state;
	assert_int_equal(peer_start(&p, shutdown_peer, NULL, 4), 0);
	assert_int_equal(qmp_open(p.path, 2000, &q, &e), 0);
	assert_int_equal(qmp_event(q, 0, &ev, &e), 0);
	assert_int_equal(qmp_event(q, deadline_ms(10), &ev, &e), 0);
	assert_int_equal(qmp_event(q, deadline_ms(2000), &ev, &e), 1);
	assert_string_equal(ev.name, "SHUTDOWN");
	assert_int_equal(qmp_event(q, deadline_ms(2000), &ev, &e), -ECONNRESET);
	assert_int_equal(e.exit, GW_VM_GONE);
	qmp_close(q);
	peer_stop(&p);
}

static void leaving_peer(struct peer *p)
{
	peer_negotiate(p);
	peer_say(p, p->arg);
}

/* It is gone when the command is sent: what it said last, which nobody has read by then, is not lost. */
static void test_end_before_command(void **state)
{
	static const struct {
		const char *says;
		int r;
	} each[] = {
		{ "{\"event\": \"STOP\"}\n{\"event\": \"SHUTDOWN\"}\n", -ECONNRESET },
		{ "{\"event\": \"STOP\"}\n{\"event\": \"SHUTDOWN\"}\nx", -EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct err e = { 0 };
		struct qmp_event ev;
		struct qmp *q;
		struct peer p;

		assert_int_equal(peer_start(&p, leaving_peer, each[i].says, 4), 0);
		assert_int_equal(qmp_open(p.path, 2000, &q, &e), 0);
		pthread_join(p.thread, NULL);
		p.script = NULL;	/* joined */
		assert_true(qmp_call(q, "stop", NULL, NULL, &e) < 0);
		assert_int_equal(e.exit, GW_VM_GONE);
		assert_int_equal(qmp_event(q, 0, &ev, &e), 1);
		assert_string_equal(ev.name, "STOP");
		assert_int_equal(qmp_event(q, 0, &ev, &e), 1);
		assert_string_equal(ev.name, "SHUTDOWN");
		e = (struct err) { 0 };
		assert_int_equal(qmp_event(q, 0, &ev, &e), each[i].r);
		assert_int_equal(e.exit, each[i].r == -EPROTO ? GW_NOT_QEMU : GW_VM_GONE);
		qmp_close(q);
		peer_stop(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_end_after_event),
		cmocka_unit_test(test_end_before_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
