// SPDX-License-Identifier: GPL-2.0-only
/* The lease to clear, as long as QEMU says that no migration of its own is under way beside ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "foreign_script.h"

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
	static const struct answer answers[] = { { "none", -1 }, { "cancelled", -1 }, { "running", 0 }, { "active", 5 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(may_clear(&w));
	/* As the guest runs, it has switched the log off again, which the module notices. */
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

/* QEMU puts off to switch the log off where the guest stands still: the module notices nothing. */
static void one_of_a_guest_that_stands_still(void **state)
{
	static const char *const ends[] = { "completed", "failed", "cancelled" },
		*const stands[] = { "paused", "suspended", "io-error", "watchdog", "finish-migrate", "running" };

	(void)state;
	for (unsigned int i = 0; i < 3 * 6; i++) {
		const char *vm = stands[i % 6];
		const struct answer answers[] = { { "none", -1 }, { ends[i / 6], -1 }, { vm, 0 }, { NULL, 0 } };
		struct foreign f = begin(answers);
		struct foreign_watch w = watch(&f);
		struct err e = { 0 };

		assert_int_equal(foreign_renew(&w, &e), 0);
		assert_false(foreign_may_hide(&w));
		if (i % 6 == 5) {
			assert_int_equal(foreign_renew(&w, &e), 0);
			assert_true(may_clear(&w));
		} else {
			assert_int_not_equal(foreign_renew(&w, &e), 0);
			assert_int_equal(e.exit, GW_VM_STATE);
			assert_non_null(strstr(e.text, "the guest stands still"));
			assert_non_null(strstr(e.text, vm));
			assert_false(may_clear(&w));
		}
		assert_int_equal(foreign_may_hide(&w), i >= 6);
		lease_free(w.lease);
		end(&f);
	}
}

/* What QEMU had before we asked first, and what it goes on to say of it. */
static void an_old_one_of_a_guest_that_stands_still(void **state)
{
	static const struct answer answers[] = { { "failed", -1 }, { "failed", -1 }, { "failed", -1 }, { NULL, 0 } };
	struct foreign f = begin(answers);
	struct foreign_watch w = watch(&f);
	struct err e = { 0 };

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(foreign_renew(&w, &e), 0);
	assert_true(may_clear(&w));
	assert_true(foreign_may_hide(&w));
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
	cmocka_unit_test(one_that_followed_ours),
	cmocka_unit_test(a_lease_is_renewed_while_none_is_under_way),
	cmocka_unit_test(it_is_cancelled_when_it_is_seen),
	cmocka_unit_test(one_that_came_and_went),
	cmocka_unit_test(one_of_a_guest_that_stands_still),
	cmocka_unit_test(an_old_one_of_a_guest_that_stands_still),
	cmocka_unit_test(one_that_nobody_saw),
	cmocka_unit_test(without_a_wait),
	cmocka_unit_test(an_old_answer),
	cmocka_unit_test(a_silent_qemu),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
