// SPDX-License-Identifier: GPL-2.0-only
/* PINGs that are sent at once: whatever order their PONGs come in, and whatever a peer makes of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "peer/hello.h"

#define AHEAD_NS	5000000000ll	/* the peer's clock */

struct pings {
	struct hello_asked asked;
	struct hello_pong best;
};

static void ask(struct link *l, struct pings *p)
{
	*p = (struct pings) { .best.rtt_ns = UINT64_MAX };
	assert_int_equal(hello_ask_clocks(l->ch, &p->asked, &l->e), 0);
	assert_int_equal(p->asked.n, HELLO_AT_ONCE);
	/* All of them are here before any is answered, and none says 0. */
	for (uint32_t i = 1; i <= HELLO_AT_ONCE; i++) {
		uint8_t frame[WIRE_HEADER + 8];
		struct wire_header h;

		assert_int_equal(recv(l->peer, frame, sizeof(frame), MSG_WAITALL), sizeof(frame));
		assert_int_equal(wire_get_header(frame, &h), 0);
		assert_int_equal(h.type, WIRE_PING);
		assert_int_equal(h.arg, i);
	}
}

/* The answer to number serial, and what is made of it. */
static int hear(struct link *l, struct pings *p, uint32_t serial)
{
	struct wire_header h = { .type = WIRE_PONG, .arg = serial, .length = 8 };
	uint8_t frame[WIRE_HEADER + 8];

	wire_put_header(frame, &h);
	wire_put_u64(frame + WIRE_HEADER, realtime_ns() + AHEAD_NS);
	assert_int_equal(write(l->peer, frame, sizeof(frame)), sizeof(frame));
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	assert_int_equal(h.type, WIRE_PONG);
	return hello_take_pong(l->ch, &h, &p->asked, &p->best, &l->e);
}

static void assert_clock(const struct pings *p)
{
	const int64_t off_ns = p->best.offset_ns - AHEAD_NS;

	assert_int_equal(p->asked.n, 0);
	assert_true(p->best.rtt_ns < UINT64_MAX);
	/* What it may be off by. */
	assert_true(2 * (off_ns < 0 ? -off_ns : off_ns) <= (int64_t)p->best.rtt_ns + 1000);
}

static void in_either_order(void **state)
{
	struct link *l = *state;
	struct pings p;

	for (uint32_t first = 1; first <= 2; first++) {
		uint64_t rtt_ns;

		ask(l, &p);
		assert_int_equal(hear(l, &p, first), 0);
		assert_int_equal(p.asked.n, 1);
		rtt_ns = p.best.rtt_ns;
		/* It comes late, so that of the other counts. */
		nap_ms(20);
		assert_int_equal(hear(l, &p, 3 - first), 0);
		assert_int_equal(p.best.rtt_ns, rtt_ns);
		assert_clock(&p);
	}
}

static void one_without_a_ping(void **state)
{
	static const uint32_t wrong[] = { 0, 1, 3, UINT32_MAX };
	struct link *l = *state;
	struct pings p;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ask(l, &p);
		assert_int_equal(hear(l, &p, 1), 0);
		assert_int_equal(hear(l, &p, wrong[i]), -EPROTO);
		assert_int_equal(l->e.exit, GW_BAD_PEER);
		l->e = (struct err) { 0 };
	}
}

static void long_links(void **state)
{
	(void)state;
	assert_false(hello_is_long(0));
	assert_false(hello_is_long(1 * MS));
	assert_true(hello_is_long(20 * MS));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(in_either_order, setup, teardown),
	cmocka_unit_test_setup_teardown(one_without_a_ping, setup, teardown),
	cmocka_unit_test(long_links),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
