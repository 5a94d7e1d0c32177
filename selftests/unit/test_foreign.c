// SPDX-License-Identifier: GPL-2.0-only
/* A migration of QEMU's own beside ours: how long the dirty log stays on for it, and what becomes of one that came too late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/sock.h"
#include "qmp_peer.h"
#include "txn/foreign.h"

/* One answer of query-migrate; total: -1: it does not say. The last one is given again and again. */
struct answer {
	const char *status;
	long long total;
};

static struct {
	const struct answer *answers;
	unsigned int at, cancelled;
	bool silent;
} qemu;

static void script(struct peer *p)
{
	peer_negotiate(p);
	while (peer_line(p)) {
		const struct answer *a = &qemu.answers[qemu.at];
		char text[128];

		if (qemu.silent)
			continue;
		if (strstr(p->line, "migrate_cancel")) {
			qemu.cancelled++;
			peer_reply(p, "return", "{}");
			continue;
		}
		if (a->total < 0)
			snprintf(text, sizeof(text), "{\"status\": \"%s\"}", a->status);
		else
			snprintf(text, sizeof(text), "{\"status\": \"%s\", \"total-time\": %lld}", a->status, a->total);
		qemu.at += a[1].status != NULL;
		peer_reply(p, "return", text);
	}
}

static struct peer peer;
static struct foreign begin(const struct answer *answers)
{
	struct foreign f = { .qmp_path = peer.path, .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), .timeout_ms = 2000 };
	struct err e = { 0 };

	memset(&qemu, 0, sizeof(qemu));
	qemu.answers = answers;
	assert_int_equal(peer_start(&peer, script, NULL, 1), 0);
	assert_int_equal(qmp_open(peer.path, 2000, &f.qmp, &e), 0);
	f.qmp_path = NULL;
	return f;
}

static void end(struct foreign *f)
{
	qmp_close(f->qmp);
	close(f->pidfd);
	peer_stop(&peer);
}

static unsigned int patience;
static bool enough(void)
{
	return !patience--;
}

static void it_is_waited_for(void **state)
{
	static const struct answer answers[] = { { "setup", -1 }, { "active", 10 }, { "pre-switchover", 20 }, { "completed", 30 }, { NULL, 0 } };
	struct foreign f = begin(answers);

	(void)state;
	patience = 100;
	assert_true(foreign_wait(&f, enough));
	assert_int_equal(patience, 97);
	assert_int_equal(qemu.cancelled, 0);
	end(&f);
}

static void until_somebody_has_enough(void **state)
{
	static const struct answer answers[] = { { "active", 10 }, { NULL, 0 } };
	struct foreign f = begin(answers);

	(void)state;
	patience = 2;
	assert_false(foreign_wait(&f, enough));
	end(&f);
}

/* A monitor that closes says nothing of the VM; that its process has ended does. */
static void a_qemu_that_does_not_answer(void **state)
{
	static const struct answer answers[] = { { "active", 10 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	pid_t gone = fork();

	(void)state;
	if (!gone)
		_exit(0);
	shutdown(qmp_fd(f.qmp), SHUT_RDWR);
	patience = 100;
	assert_false(foreign_wait(&f, enough));
	assert_int_equal(patience, 100);
	close(f.pidfd);
	f.pidfd = (int)syscall(SYS_pidfd_open, gone, 0);
	assert_int_equal(sock_wait(f.pidfd, POLLIN, deadline_ms(5000)), 0);
	assert_true(foreign_wait(&f, NULL));
	end(&f);
}

static unsigned int cancelled(const struct answer *answers, unsigned int off_ms_ago)
{
	struct foreign f = begin(answers);

	foreign_end_overlap(&f, now_ns() - off_ms_ago * 1000000ull);
	end(&f);
	return qemu.cancelled;
}

static void one_that_overlaps_is_ended(void **state)
{
	static const struct answer older[] = { { "active", 300 }, { NULL, 0 } },
		connects[] = { { "setup", -1 }, { "setup", -1 }, { "active", 300 }, { NULL, 0 } },
		ended[] = { { "completed", 300 }, { NULL, 0 } }, none[] = { { "none", -1 }, { NULL, 0 } };

	(void)state;
	assert_int_equal(cancelled(older, 100), 1);
	assert_int_equal(cancelled(connects, 10), 1);
	/* It found the log off, and has switched it on. */
	assert_int_equal(cancelled(older, 5000), 0);
	assert_int_equal(cancelled(ended, 100), 0);
	assert_int_equal(cancelled(none, 100), 0);
}

static int said_fd, stderr_fd;

/* From here on what is said is kept. */
static void listen_to_it(void)
{
	fflush(stderr);
	stderr_fd = dup(STDERR_FILENO);
	said_fd = memfd_create("said", MFD_CLOEXEC);
	dup2(said_fd, STDERR_FILENO);
}

static bool was_said(const char *what)
{
	char text[4096] = "";

	fflush(stderr);
	assert_true(pread(said_fd, text, sizeof(text) - 1, 0) >= 0);
	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
	close(said_fd);
	return strstr(text, what);
}

/* One that has run for 300 ms, and what was cleared so many ms ago. Was its loss reported? */
static unsigned int cancelled_while_waiting(unsigned int cleared_ms_ago, const char *status, const char *end_status, bool *loss)
{
	const struct answer answers[] = { { "setup", -1 }, { status, 300 }, { "cancelling", 310 }, { end_status, 320 }, { NULL, 0 } };
	struct foreign f = begin(answers);

	f.cleared_ns = now_ns() - cleared_ms_ago * 1000000ull;
	patience = 100;
	listen_to_it();
	assert_true(foreign_wait(&f, enough));
	*loss = was_said("may be missing there");
	end(&f);
	return qemu.cancelled;
}

/* QEMU's second answer takes its time, so that the migration seems to have begun earlier. */
static void an_answer_that_comes_late(void **state)
{
	const struct answer answers[] = { { "active", 10 }, { "active", 5000 }, { "completed", 5001 }, { NULL, 0 } };
	struct foreign f = begin(answers);

	(void)state;
	f.cleared_ns = now_ns() - 1000000000ull;
	patience = 100;
	listen_to_it();
	assert_true(foreign_wait(&f, enough));
	assert_false(was_said("may be missing there"));
	assert_int_equal(qemu.cancelled, 0);
	end(&f);
}

static void one_that_would_lose_what_was_cleared(void **state)
{
	bool loss;

	(void)state;
	assert_int_equal(cancelled_while_waiting(100, "active", "cancelled", &loss), 1);
	assert_false(loss);
	assert_int_equal(cancelled_while_waiting(5000, "active", "completed", &loss), 0);
	assert_false(loss);
	/* Too late. */
	assert_int_equal(cancelled_while_waiting(100, "active", "completed", &loss), 1);
	assert_true(loss);
	/* The guest runs there. */
	assert_int_equal(cancelled_while_waiting(100, "postcopy-active", "completed", &loss), 0);
	assert_true(loss);
}

static struct foreign_watch watch(const struct foreign *f)
{
	return (struct foreign_watch) { .qmp = f->qmp, .timeout_ms = 1000, .lease = lease_new() };
}

static bool may_clear(struct foreign_watch *w)
{
	bool may = lease_begin(w->lease);

	if (may)
		lease_end(w->lease);
	return may;
}

/* Ours was cancelled, and another has come and gone before we heard of either: it may lack what was cleared since. */
static void one_that_followed_ours(void **state)
{
	static const struct answer answers[] = { { "completed", 5 }, { NULL, 0 } };

	(void)state;
	for (unsigned int clears = 0; clears < 3; clears++) {
		struct foreign f = begin(answers);
		struct foreign_watch w = watch(&f);
		const uint64_t since_ns = now_ns();

		assert_false(may_clear(&w));
		/* Under the lease from before, after QEMU's events were read and before it is renewed. */
		if (clears == 2) {
			lease_renew(w.lease);
			assert_true(may_clear(&w));
		}
		foreign_ours_goes_on(&w, since_ns);
		if (clears == 1)
			assert_true(may_clear(&w));
		f.watch = &w;
		f.cleared_ns = lease_cleared_ns(w.lease);
		listen_to_it();
		assert_true(foreign_wait(&f, enough));
		assert_int_equal(was_said("may be missing there"), clears > 0);
		lease_free(w.lease);
		end(&f);
	}
}

static void a_lease_is_renewed_while_none_is_under_way(void **state)
{
	static const struct answer answers[] = { { "none", -1 }, { "cancelled", 10 }, { "active", 5 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(may_clear(&w));
	/* It has switched the log off again, which the module notices. */
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(may_clear(&w));
	peer_nap(50);
	/* Nothing was cleared since that one began. */
	assert_int_not_equal(foreign_renew(&w, &e), 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "another program migrates"));
	assert_int_equal(qemu.cancelled, 0);
	assert_false(may_clear(&w));
	lease_free(w.lease);
	end(&f);
}

/* At once: it must not complete first. */
static void it_is_cancelled_when_it_is_seen(void **state)
{
	static const struct answer answers[] = {
		{ "none", -1 }, { "setup", -1 }, { "setup", -1 }, { "active", 5000 }, { "cancelled", 5001 }, { NULL, 0 }
	};
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(may_clear(&w));
	assert_int_not_equal(foreign_renew(&w, &e), 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_int_equal(qemu.cancelled, 1);
	lease_free(w.lease);
	end(&f);
}

/* query-status of this QEMU says what query-migrate would. */
static void one_that_came_and_went(void **state)
{
	static const struct answer answers[] = {
		{ "completed", 10 }, { "completed", 10 }, { "completed", 11 }, { "running", 0 }, { "completed", 12 }, { "running", 0 },
		{ "completed", 13 }, { "postmigrate", 0 }, { NULL, 0 }
	};
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	assert_int_equal(foreign_renew(&w, &e), 0);	/* it was there before */
	assert_int_equal(foreign_renew(&w, &e), 0);
	listen_to_it();
	assert_int_equal(foreign_renew(&w, &e), 0);	/* a snapshot: the guest runs on here */
	assert_false(was_said("may be missing there"));
	assert_true(may_clear(&w));
	listen_to_it();
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(was_said("may be missing there"));
	assert_int_not_equal(foreign_renew(&w, &e), 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_false(may_clear(&w));
	lease_free(w.lease);
	end(&f);
}

/* It completed between the last answer and the end of ours. */
static void one_that_nobody_saw(void **state)
{
	static const struct answer answers[] = { { "none", -1 }, { "completed", 300 }, { NULL, 0 } };

	(void)state;
	for (int cleared = 0; cleared < 2; cleared++) {
		struct foreign f = begin(answers);
		struct foreign_watch w = watch(&f);
		struct err e = { 0 };

		assert_int_equal(foreign_renew(&w, &e), 0);
		if (cleared)
			assert_true(may_clear(&w));
		f.watch = &w;
		f.cleared_ns = lease_cleared_ns(w.lease);
		listen_to_it();
		assert_true(foreign_wait(&f, enough));
		assert_int_equal(was_said("may be missing there"), cleared);
		lease_free(w.lease);
		end(&f);
	}
}

/* The answer is looked at when it is there, and a QEMU that is slow keeps no caller waiting. */
static void without_a_wait(void **state)
{
	static const struct answer answers[] = { { "none", -1 }, { "none", -1 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };
	unsigned int ms;

	(void)state;
	for (int turn = 0; turn < 3; turn++) {
		uint64_t asked_ns = w.asked_ns;

		for (ms = 0; w.asked_ns == asked_ns && ms < 5000; ms++) {
			assert_int_equal(foreign_renew_soon(&w, &e), 0);
			peer_nap(1);
		}
		assert_true(may_clear(&w));
	}
	/* A call in between takes the reply away. */
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_int_equal(foreign_renew_soon(&w, &e), 0);
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_int_equal(foreign_renew_soon(&w, &e), 0);
	assert_true(w.asking);
	lease_free(w.lease);
	end(&f);
}

/* We did not look for it for as long as a lease lasts: another migration may have begun since. */
static void an_old_answer(void **state)
{
	static const struct answer answers[] = { { "none", -1 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	assert_int_equal(foreign_renew_soon(&w, &e), 0);
	peer_nap(LEASE_NS / 1000000 + 50);
	assert_int_equal(foreign_renew_soon(&w, &e), 0);
	assert_false(may_clear(&w));
	for (unsigned int ms = 0; !may_clear(&w) && ms < 5000; ms++) {
		peer_nap(1);
		assert_int_equal(foreign_renew_soon(&w, &e), 0);
	}
	assert_true(may_clear(&w));
	lease_free(w.lease);
	end(&f);
}

static void a_silent_qemu(void **state)
{
	static const struct answer answers[] = { { "none", -1 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	uint64_t begin_ns = now_ns();
	struct err e = { 0 };

	(void)state;
	qemu.silent = true;
	w.timeout_ms = 300;
	while (!foreign_renew_soon(&w, &e))
		peer_nap(10);
	assert_int_equal(e.exit, GW_TIMEOUT);
	assert_false(err_is_link(&e));	/* to connect again would not help */
	assert_true(now_ns() - begin_ns >= 300000000ull);
	assert_false(may_clear(&w));
	lease_free(w.lease);
	end(&f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(it_is_waited_for),
	cmocka_unit_test(until_somebody_has_enough),
	cmocka_unit_test(a_qemu_that_does_not_answer),
	cmocka_unit_test(one_that_overlaps_is_ended),
	cmocka_unit_test(one_that_would_lose_what_was_cleared),
	cmocka_unit_test(an_answer_that_comes_late),
	cmocka_unit_test(one_that_followed_ours),
	cmocka_unit_test(a_lease_is_renewed_while_none_is_under_way),
	cmocka_unit_test(it_is_cancelled_when_it_is_seen),
	cmocka_unit_test(one_that_came_and_went),
	cmocka_unit_test(one_that_nobody_saw),
	cmocka_unit_test(without_a_wait),
	cmocka_unit_test(an_old_answer),
	cmocka_unit_test(a_silent_qemu),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
