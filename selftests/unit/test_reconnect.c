// SPDX-License-Identifier: GPL-2.0-only
/* The link is lost: does the receiver wait for its sender? Not if that has sent what it cannot send again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "receive/receiver_internal.h"

#define S	1000000000ull

/* An address where nobody comes. */
static void lose(bool precopied, bool state, enum receiver_state at, bool waits)
{
	const struct receiver_options o = { .listen = "unix:/nowhere" };
	struct receiver r = {
		.o = &o, .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE, .commit = COMMIT_PREPARED, .record = RECORD_NONE,
		.state = at, .keep_s = 1, .precopied = precopied,
	};
	uint64_t begin = now_ns();
	struct err e = { 0 };
	bool waited;

	device_state_init(&r.devstate);
	r.devstate.n = state;
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	assert_int_not_equal(reconnect(&r, -ECONNRESET, &e), 0);
	assert_int_equal(e.exit, GW_LINK_LOST);
	waited = strstr(e.text, "did not connect again within 1 s");
	assert_int_equal(waited, waits);
	assert_true(!waits || now_ns() - begin >= S);
	assert_false(r.waits);
	device_state_free(&r.devstate);
}

static void as_long_as_rounds_may_follow(void **state)
{
	(void)state;
	lose(false, false, RECEIVER_ROUNDS, true);
	lose(true, false, RECEIVER_SWITCHES, true);
	/* --pause: rounds follow the first part of QEMU's stream. */
	lose(false, true, RECEIVER_SWITCHES, true);
}

static void not_behind_them(void **state)
{
	(void)state;
	lose(true, true, RECEIVER_SWITCHES, false);
	lose(false, true, RECEIVER_HAS_RAM, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_long_as_rounds_may_follow),
		cmocka_unit_test(not_behind_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
