// SPDX-License-Identifier: GPL-2.0-only
/* QEMU's own measurements of the dirty rate: those by KVM's log end a migration, others do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "qmp/dirty_rate.h"
#include "qmp_peer.h"

#define SAYS(status, start, mode) \
	"{\"status\": \"" status "\", \"start-time\": " #start ", \"calc-time\": 1, \"sample-pages\": 512, \"mode\": \"" mode "\"}"
#define NEVER	SAYS("unstarted", 0, "page-sampling")

enum when { BEGIN, ROUND, STOPPED };

/* What we make of this answer, NULL: QEMU does not know the command. */
static enum gw_exit look(const char *answer, enum when when, struct dirty_rate *last)
{
	const struct peer_answer qemu[] = { { "query-dirty-rate", "", answer }, { NULL, NULL, NULL } };
	struct err e = { 0 };
	struct peer p;
	struct qmp *q = peer_qemu(&p, qemu, &e);
	int r;

	assert_non_null(q);
	r = when == BEGIN ? dirty_rate_begin(q, last, &e) : dirty_rate_check(q, last, when == STOPPED, &e);
	peer_qemu_end(&p, q);
	assert_int_equal(!r, e.exit == GW_OK);
	return e.exit;
}

static void test_begin(void **state)
{
	struct dirty_rate last;

	(void)state;
	assert_int_equal(look(NEVER, BEGIN, &last), GW_OK);
	assert_true(last.known);
	assert_int_equal(look(SAYS("measuring", 7, "page-sampling"), BEGIN, &last), GW_OK);
	assert_int_equal(look(SAYS("measured", 7, "dirty-bitmap"), BEGIN, &last), GW_OK);
	assert_int_equal(look(SAYS("measuring", 7, "dirty-bitmap"), BEGIN, &last), GW_VM_STATE);
	/* The command was heard, its thread has not begun. */
	assert_int_equal(look(SAYS("unstarted", 7, "dirty-bitmap"), BEGIN, &last), GW_VM_STATE);
}

static void test_rounds(void **state)
{
	struct dirty_rate last;

	(void)state;
	look(NEVER, BEGIN, &last);
	assert_int_equal(look(NEVER, ROUND, &last), GW_OK);
	assert_int_equal(look(SAYS("measuring", 7, "page-sampling"), ROUND, &last), GW_OK);
	assert_int_equal(look(SAYS("measured", 8, "page-sampling"), ROUND, &last), GW_OK);
	assert_int_equal(look(SAYS("unstarted", 9, "dirty-bitmap"), ROUND, &last), GW_VM_STATE);
	assert_int_equal(look(SAYS("measuring", 9, "dirty-bitmap"), ROUND, &last), GW_VM_STATE);
	assert_int_equal(look(SAYS("measured", 9, "dirty-bitmap"), ROUND, &last), GW_VM_STATE);
	/* The one that had ended when we began is known, and no other is. */
	look(SAYS("measured", 5, "dirty-bitmap"), BEGIN, &last);
	assert_int_equal(look(SAYS("measured", 5, "dirty-bitmap"), ROUND, &last), GW_OK);
	assert_int_equal(look(SAYS("measured", 6, "dirty-bitmap"), ROUND, &last), GW_VM_STATE);
	assert_int_equal(look(SAYS("unstarted", 5, "dirty-bitmap"), ROUND, &last), GW_VM_STATE);
}

/* What has begun since the look before may hide another one that was by the log. */
static void test_stopped(void **state)
{
	struct dirty_rate last;

	(void)state;
	look(SAYS("measured", 5, "dirty-bitmap"), BEGIN, &last);
	assert_int_equal(look(SAYS("measured", 5, "dirty-bitmap"), STOPPED, &last), GW_OK);
	assert_int_equal(look(SAYS("measuring", 6, "page-sampling"), STOPPED, &last), GW_VM_STATE);
	assert_int_equal(look(SAYS("measuring", 6, "page-sampling"), ROUND, &last), GW_OK);
	assert_int_equal(look(SAYS("measured", 6, "page-sampling"), STOPPED, &last), GW_OK);
	assert_int_equal(look(SAYS("measuring", 6, "dirty-bitmap"), STOPPED, &last), GW_VM_STATE);
}

static void test_old_qemu(void **state)
{
	static const char no_modes[] = "{\"status\": \"measured\", \"start-time\": 5, \"calc-time\": 1}";
	struct dirty_rate last;

	(void)state;
	assert_int_equal(look(NULL, BEGIN, &last), GW_OK);
	assert_int_equal(look(NULL, STOPPED, &last), GW_OK);
	assert_int_equal(look(no_modes, BEGIN, &last), GW_OK);
	assert_int_equal(look(no_modes, STOPPED, &last), GW_OK);
	assert_false(last.known);
	/* Shapes that QEMU does not send. */
	assert_int_equal(look("[]", BEGIN, &last), GW_OK);
	assert_int_equal(look("{\"status\": 1, \"mode\": {}, \"start-time\": \"x\"}", BEGIN, &last), GW_OK);
}

/* Another one that begins in the same second would look the same, so that second is waited for. */
static void test_same_second(void **state)
{
	struct dirty_rate last;
	uint64_t begin = now_ns();
	char text[200];

	(void)state;
	snprintf(text, sizeof(text), "{\"status\": \"measured\", \"start-time\": %llu, \"mode\": \"dirty-bitmap\"}",
		 (unsigned long long)(begin / 1000000000));
	assert_int_equal(look(text, BEGIN, &last), GW_OK);
	assert_true(now_ns() / 1000000000 > begin / 1000000000 + 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_begin),
	cmocka_unit_test(test_rounds),
	cmocka_unit_test(test_stopped),
	cmocka_unit_test(test_old_qemu),
	cmocka_unit_test(test_same_second),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
