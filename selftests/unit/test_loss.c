// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver gives up behind RESUMED, which the sender has not read: it looks for the reason of a failure, and drops what is
 * before that. If the guest has run at the destination it must not go on at the source, whose RAM is older than its disks. Nor
 * when that is said after the link was lost, in answer to RECOVER.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "answering.h"
#include "base/clock.h"

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
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = COMMIT_SENT, .ch = l->ch, .note = RECORD_NONE,
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

/* In RUNS the link was lost, and the sender looks for its receiver. */
static void recover_without(int pidfd, struct answering *a, bool paused, struct err *e)
{
	static struct report report;
	const struct sender_options o = { .recover_s = 20, .timeout_ms = 5000, .addr = a->path, .engine = engine };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = pidfd, .vm_fd = -1, .nblocks = 1, .blocks = { { .name = "ram", .pages = 1 } } },
		.migration = { .stream = -1 }, .owing = OWING_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_RUNS, .note = RECORD_NONE,
	};
	pthread_t thread;

	answering_begin(a, &thread);
	report.guest_was_paused = paused;
	/* What is reported is the connection that there is now, which has no TLS. */
	report.encrypted = true;
	s.owing.collected = true;
	undone = UNDO_ALL;
	err_set(e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	assert_int_not_equal(sender_settle(&s, -ECONNRESET, e), 0);
	/* Whatever was said: it runs there, or did, and never again here. */
	assert_int_equal(s.commit, COMMIT_RUNS);
	assert_int_equal(undone, UNDO_SETTINGS);
	answering_end(a, &thread);
	assert_int_equal(a->asked, WIRE_RECOVER);
	assert_false(report.encrypted);
	report.guest_was_paused = false;
}

static void recover_from(struct answering *a, bool paused, struct err *e)
{
	recover_without(-1, a, paused, e);
}

static void a_loss_is_told_when_the_link_is_back(void **state)
{
	struct answering a = { .closes = 2, .status = GW_GUEST_LOST };
	struct err e = { 0 };

	(void)state;
	recover_from(&a, false, &e);
	assert_int_equal(e.exit, GW_GUEST_LOST);
	assert_non_null(strstr(e.text, "do not continue this QEMU"));
	assert_non_null(strstr(e.text, "start it anew from its disks"));
}

static void a_paused_guest_is_not_said_to_have_run(void **state)
{
	struct answering a = { .status = GW_GUEST_LOST };
	struct err e = { 0 };

	(void)state;
	recover_from(&a, true, &e);
	assert_int_equal(e.exit, GW_GUEST_LOST);
	assert_non_null(strstr(e.text, "`cont` brings it back"));
}

int __real_hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e);
int __wrap_hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e);

/* When each question was to be over, and how long each answer might take. */
static uint64_t until_ns[8];
static unsigned int waited_ms[8], hellos;

int __wrap_hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e)
{
	if (hellos < 8) {
		until_ns[hellos] = peer->until_ns;
		waited_ms[hellos++] = peer->timeout_ms;
	}
	return __real_hello(peer, out, agreed, e);
}

/* In SENT something fails, and the verdict says the loss. No answer to RECOVER does: it is not asked, or nobody is there any more. */
static void a_verdict_says_it(struct link *l, unsigned int recover_s, enum gw_exit failed)
{
	static struct report report;
	struct answering a = {
		.leaves = true, .says = { .type = WIRE_VERDICT, .arg = COMMIT_RUNS, .flags = WIRE_OWING | WIRE_LOST, .length = 8 },
	};
	const struct sender_options o = { .timeout_ms = 5000, .engine = engine, .addr = a.path, .recover_s = recover_s };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = -1, .vm_fd = -1, .nblocks = 1, .blocks = { { .name = "ram", .pages = 1 } } },
		.migration = { .stream = -1 }, .owing = OWING_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_SENT, .note = RECORD_NONE, .verdicts = true, .ch = l->ch,
	};
	pthread_t thread;

	answering_begin(&a, &thread);
	s.owing.collected = true;
	undone = UNDO_ALL;
	hellos = 0;
	err_set(&l->e, failed, ECONNRESET, "it broke");
	assert_int_not_equal(sender_settle(&s, -ECONNRESET, &l->e), 0);
	l->ch = s.ch;
	answering_end(&a, &thread);
	assert_int_equal(s.commit, COMMIT_RUNS);
	assert_int_equal(undone, UNDO_SETTINGS);
	assert_int_equal(a.asked, WIRE_ASK);
	assert_int_equal(l->e.exit, GW_GUEST_LOST);
	assert_non_null(strstr(l->e.text, "it broke"));
	assert_non_null(strstr(l->e.text, "do not continue this QEMU"));
}

static void a_loss_is_told_by_the_verdict(void **state)
{
	a_verdict_says_it(*state, 0, GW_LINK_LOST);
}

static void a_loss_is_told_where_the_link_is_not_to_blame(void **state)
{
	a_verdict_says_it(*state, 20, GW_BAD_PEER);
}

/* At once: nobody is waited for. */
static void a_loss_is_told_though_nobody_is_left(void **state)
{
	a_verdict_says_it(*state, 20, GW_LINK_LOST);
	assert_int_equal(hellos, 2);
}

/* A receiver that gives up for another reason, even the death of a QEMU, has not said that the guest is lost. */
static void another_reason_is_no_loss(void **state)
{
	const uint32_t reasons[] = { GW_BUSY, GW_VM_GONE, GW_INCOMPLETE };

	(void)state;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		struct answering a = { .status = reasons[i] };
		struct err e = { 0 };

		recover_from(&a, false, &e);
		assert_int_equal(e.exit, GW_INCOMPLETE);
		assert_non_null(strstr(e.text, "do not continue it"));
	}
}

/* A QEMU that has exited. */
static int gone_qemu(void)
{
	const pid_t gone = fork();
	int pidfd;

	if (!gone)
		_exit(0);
	pidfd = (int)syscall(SYS_pidfd_open, gone, 0);
	assert_true(pidfd >= 0);
	assert_int_equal(waitpid(gone, NULL, 0), gone);
	return pidfd;
}

/* Its RAM is in files that this process has open: nothing but another connection is needed to send it. */
static void ram_stays_without_its_qemu(void **state)
{
	struct answering a = { .closes = 2, .status = GW_GUEST_LOST };
	const int pidfd = gone_qemu();
	struct err e = { 0 };

	(void)state;
	recover_without(pidfd, &a, false, &e);
	assert_int_equal(e.exit, GW_GUEST_LOST);
	close(pidfd);
}

/* Nobody is there, and RAM that was in the process has gone with it. */
static void private_ram_goes_with_its_qemu(void **state)
{
	static struct report report;
	const struct sender_options o = { .recover_s = 60, .timeout_ms = 5000, .addr = "unix:/nowhere/at/all", .engine = engine };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = gone_qemu(), .vm_fd = -1, .nblocks = 1, .blocks = { { .pages = 1, .hva = 4096 } } },
		.migration = { .stream = -1 }, .owing = OWING_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_RUNS, .note = RECORD_NONE,
	};
	const uint64_t began_ns = now_ns();
	struct err e = { 0 };

	(void)state;
	s.owing.collected = true;
	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	assert_int_not_equal(sender_settle(&s, -ECONNRESET, &e), 0);
	assert_int_equal(e.exit, GW_INCOMPLETE);
	assert_non_null(strstr(e.text, "The source QEMU has exited"));
	assert_true(now_ns() - began_ns < 30000000000ull);
	close(s.vm.pidfd);
}

/* In PREPARED the link was lost where no round can go on. keeps: the receiver was told to wait. said: it has given up itself. */
static void give_up_at_distance(struct link *l, struct answering *a, pthread_t *thread, bool keeps, bool said, uint64_t rtt_ns)
{
	static struct report report;
	const struct sender_options o = { .timeout_ms = 5000, .engine = engine };
	struct sender s = {
		.o = &o, .report = &report, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .owing = OWING_NONE,
		.journal = { .pipe = -1 }, .guardian = { .pipe = -1 }, .commit = COMMIT_PREPARED, .verdicts = true, .keeps = keeps, .ch = l->ch,
		.rtt_ns = rtt_ns,
	};

	answering_begin(a, thread);
	strcpy(s.peer, a->path);
	if (said) {
		give_up_behind_resumed(l->peer, GW_VM_GONE);
		channel_last_words(s.ch, 1000, &l->e);
	} else {
		close(l->peer);
		l->peer = -1;
		err_set(&l->e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	}
	undone = UNDO_SETTINGS;
	assert_int_not_equal(sender_settle(&s, -ECONNRESET, &l->e), 0);
	l->ch = s.ch;
	assert_int_equal(s.commit, COMMIT_DEAD);
	assert_int_equal(undone, UNDO_ALL);
	if (!thread) {
		/* Nobody has come. */
		struct pollfd p = { .fd = a->fd, .events = POLLIN };

		assert_int_equal(poll(&p, 1, 0), 0);
	}
	answering_end(a, thread);
}

static void give_up_prepared(struct link *l, struct answering *a, pthread_t *thread, bool keeps, bool said)
{
	give_up_at_distance(l, a, thread, keeps, said, 0);
}

/* Else it would wait for all of --reconnect. The guest goes on here before. */
static void a_receiver_that_waits_is_told(void **state)
{
	struct answering a = { .closes = 1 };
	pthread_t thread;

	hellos = 0;
	give_up_prepared(*state, &a, &thread, true, false);
	assert_int_equal(a.asked, WIRE_ASK);
	/* Our end waits for both tries: there is one end to them. */
	assert_int_equal(hellos, 2);
	assert_in_range(until_ns[0], 1, now_ns() + 3000000000ull);
	assert_int_equal(until_ns[1], until_ns[0]);
	assert_int_equal(a.undone, UNDO_ALL);
}

/* With TLS an answer takes four round trips, the connection included. */
static void a_distant_receiver_is_told(void **state)
{
	const uint64_t rtt_ns = 1000000000, began_ns = now_ns();
	struct answering a = { .closes = 0 };
	pthread_t thread;

	hellos = 0;
	give_up_at_distance(*state, &a, &thread, true, false, rtt_ns);
	assert_int_equal(a.asked, WIRE_ASK);
	assert_int_equal(hellos, 1);
	assert_in_range(until_ns[0], began_ns + 20 * rtt_ns, now_ns() + 23 * rtt_ns);
	assert_int_equal(waited_ms[0], 21000);
}

static void one_that_does_not_wait_is_left_alone(void **state)
{
	struct answering a = { .status = 0 };

	give_up_prepared(*state, &a, NULL, false, false);
}

static void one_that_has_given_up_is_left_alone(void **state)
{
	struct answering a = { .status = 0 };

	give_up_prepared(*state, &a, NULL, true, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_guest_that_ran_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(a_guest_that_never_ran_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(without_postcopy_nothing_is_lost, setup, teardown),
		cmocka_unit_test(a_loss_is_told_when_the_link_is_back),
		cmocka_unit_test(a_paused_guest_is_not_said_to_have_run),
		cmocka_unit_test(ram_stays_without_its_qemu),
		cmocka_unit_test(private_ram_goes_with_its_qemu),
		cmocka_unit_test_setup_teardown(a_loss_is_told_by_the_verdict, setup, teardown),
		cmocka_unit_test_setup_teardown(a_loss_is_told_where_the_link_is_not_to_blame, setup, teardown),
		cmocka_unit_test_setup_teardown(a_loss_is_told_though_nobody_is_left, setup, teardown),
		cmocka_unit_test(another_reason_is_no_loss),
		cmocka_unit_test_setup_teardown(a_receiver_that_waits_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(a_distant_receiver_is_told, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_does_not_wait_is_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_has_given_up_is_left_alone, setup, teardown),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
