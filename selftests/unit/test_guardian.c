// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guardian of a sender that is killed: before the commit point it undoes what the sender's
 * journal has, behind it only settings; and it goes on until that is done, or QEMU is gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "guardian_scene.h"

#define ENDS_IT "query-migrate migrate_cancel query-migrate query-status "

static void a_sender_that_dies_is_put_back(void **state)
{
	struct scene *s = *state;

	start_sender(s, NOTHING);
	kill_sender(s);
	assert_guardian_ends(s);
	what_it_heard(s);
	assert_string_equal(s->heard, ENDS_IT "migrate-set-parameters ");
	assert_said(s, "as it was before");
	assert_int_equal(access(s->control, F_OK), -1);
}

/* It cannot know whose migration that was: it is not as it was before. */
static void a_guest_that_is_left_is_no_success(void **state)
{
	struct scene *s = *state;

	s->state = "completed";
	s->guest = "postmigrate";
	start_sender(s, NOTHING);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_said(s, "may not be godwit's");
	assert_false(has_said(s, "as it was before"));
}

/* The monitor is another client's for a while: it tries again. */
static void a_monitor_that_is_taken_is_waited_for(void **state)
{
	struct scene *s = *state;

	start_sender(s, NOTHING);
	kill_sender(s);
	peer_nap(1200);
	assert_int_equal(waitpid(s->guardian, NULL, WNOHANG), 0);
	assert_said(s, "trying again");
	while (!strstr(s->heard, "migrate-set-parameters")) {
		struct timeval silence = { .tv_usec = 300000 };

		s->peer.fd = accept4(s->peer.listener, NULL, NULL, SOCK_CLOEXEC);
		setsockopt(s->peer.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
		source_vm(&s->peer);
		close(s->peer.fd);
	}
	assert_guardian_ends(s);
	assert_said(s, "as it was before");
	assert_non_null(strstr(s->heard, ENDS_IT "migrate-set-parameters "));
}

/* QEMU is gone as well: it says that it could do nothing. */
static void a_vm_that_is_gone_is_reported(void **state)
{
	struct scene *s = *state;

	start_sender(s, NOTHING);
	unlink(s->peer.path);
	end_qemu(s);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_said(s, "nothing to roll back");
	assert_int_equal(access(s->control, F_OK), -1);
}

static void behind_the_commit_point_it_only_puts_settings_back(void **state)
{
	struct scene *s = *state;

	start_sender(s, STANDS_DOWN);
	kill_sender(s);
	assert_guardian_ends(s);
	what_it_heard(s);
	assert_string_equal(s->heard, "migrate-set-parameters ");
	assert_said(s, "the sender died");
	assert_said(s, "settings are as they were");
}

/* The guest has moved, and only settings could not be undone: the sender lives, and has reported it. */
static void a_sender_that_lives_has_not_died(void **state)
{
	struct scene *s = *state;

	start_sender(s, MOVES);
	s->guardian = 0;	/* the sender has waited for it */
	what_it_heard(s);
	assert_string_equal(s->heard, "migrate-set-parameters ");
	assert_false(has_said(s, "the sender died"));
	assert_said(s, "settings are as they were");
	kill_sender(s);
}

/* The receiver has said that the guest does not run there, and then the sender died. */
static void behind_its_proof_it_puts_all_back(void **state)
{
	struct scene *s = *state;

	start_sender(s, STANDS_UP);
	kill_sender(s);
	assert_guardian_ends(s);
	what_it_heard(s);
	assert_string_equal(s->heard, ENDS_IT "migrate-set-parameters ");
}

static void a_sender_that_cannot_hands_over(void **state)
{
	struct scene *s = *state;

	start_sender(s, HANDS_OVER);
	s->guardian = 0;	/* the sender has waited for it */
	what_it_heard(s);
	assert_string_equal(s->heard, ENDS_IT "migrate-set-parameters ");
	kill_sender(s);
}

#define TEST(fn, setup)	cmocka_unit_test_setup_teardown(fn, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(a_sender_that_dies_is_put_back, with_qemu),
	TEST(a_guest_that_is_left_is_no_success, with_qemu),
	TEST(a_monitor_that_is_taken_is_waited_for, with_nobody),
	TEST(a_vm_that_is_gone_is_reported, with_nobody),
	TEST(behind_the_commit_point_it_only_puts_settings_back, with_qemu),
	TEST(a_sender_that_lives_has_not_died, with_qemu),
	TEST(behind_its_proof_it_puts_all_back, with_qemu),
	TEST(a_sender_that_cannot_hands_over, with_qemu),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
