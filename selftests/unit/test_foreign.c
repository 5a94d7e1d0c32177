// SPDX-License-Identifier: GPL-2.0-only
/* A migration of QEMU's own beside ours: how long it is waited for, and what becomes of one that came too late. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "foreign_script.h"
#include "net/sock.h"

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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(it_is_waited_for),
	cmocka_unit_test(until_somebody_has_enough),
	cmocka_unit_test(a_qemu_that_does_not_answer),
	cmocka_unit_test(one_that_overlaps_is_ended),
	cmocka_unit_test(one_that_would_lose_what_was_cleared),
	cmocka_unit_test(an_answer_that_comes_late),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
