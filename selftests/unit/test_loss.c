// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver gives up behind RESUMED, which the sender has not read: it looks for the reason of a failure, and drops what is
 * before that. If the guest has run at the destination it must not go on at the source, whose RAM is older than its disks.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel_rig.h"
#include "send/sender_internal.h"

/* QEMU is not there: nothing is undone. */
int __wrap_journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e);

static enum undo_what undone;

int __wrap_journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e)
{
	(void)j, (void)q, (void)e;
	undone = what;
	return 0;
}

static void give_up_behind_resumed(int fd, uint32_t status)
{
	const struct wire_header resumed = { .type = WIRE_RESUMED, .length = 8 };
	const struct wire_header abort = { .type = WIRE_ABORT, .arg = status, .length = 4 };
	uint8_t bytes[2 * WIRE_HEADER + 8 + 4] = { 0 };

	wire_put_header(bytes, &resumed);
	wire_put_header(bytes + WIRE_HEADER + 8, &abort);
	memcpy(bytes + 2 * WIRE_HEADER + 8, "gone", 4);
	assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
}

/* In SENT something else fails, and the receiver's last words are looked for. */
static enum commit_state settle(struct link *l, uint32_t status, bool owing, int *r)
{
	static struct report report;
	static const struct sender_options o = { .recover_s = 0 };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .owing = OWING_NONE,
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = COMMIT_SENT, .ch = l->ch,
	};

	s.owing.collected = owing;
	give_up_behind_resumed(l->peer, status);
	channel_last_words(s.ch, 1000, &l->e);
	assert_true(channel_aborted(s.ch));
	*r = sender_settle(&s, -EIO, &l->e);
	l->ch = s.ch;
	return s.commit;
}

static void a_guest_that_ran_is_lost(void **state)
{
	struct link *l = *state;
	int r;

	undone = UNDO_ALL;
	assert_int_equal(settle(l, GW_GUEST_LOST, true, &r), COMMIT_RUNS);
	assert_int_not_equal(r, 0);
	assert_int_equal(l->e.exit, GW_GUEST_LOST);
	assert_non_null(strstr(l->e.text, "do not continue this QEMU"));
	assert_int_equal(undone, UNDO_SETTINGS);
}

/* The destination's QEMU is proven to have died before it ran the guest. */
static void a_guest_that_never_ran_goes_on(void **state)
{
	int r;

	undone = UNDO_SETTINGS;
	assert_int_equal(settle(*state, GW_VM_GONE, true, &r), COMMIT_DEAD);
	assert_int_not_equal(r, 0);
	assert_int_equal(undone, UNDO_ALL);
}

/* Of pages that are not owed none can be missing, whatever the receiver says. */
static void without_postcopy_nothing_is_lost(void **state)
{
	int r;

	assert_int_equal(settle(*state, GW_GUEST_LOST, false, &r), COMMIT_DEAD);
	assert_int_not_equal(r, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_guest_that_ran_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(a_guest_that_never_ran_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(without_postcopy_nothing_is_lost, setup, teardown),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
