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
	s->leaves = true;
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
	while (!strstr(s->heard, "migrate-set-parameters"))
		serve_one(s);
	assert_guardian_ends(s);
	assert_said(s, "as it was before");
	assert_non_null(strstr(s->heard, ENDS_IT "migrate-set-parameters "));
}

/* QEMU hangs, and another one is started by the same script: that one's guest is none of the guardian's. */
static void another_qemu_has_its_path(void **state)
{
	struct scene *s = *state;
	int other;

	start_sender(s, NOTHING);
	other = take_path(s);
	kill_sender(s);
	for (unsigned int ms = 0; !has_said(s, "another program has the socket") && ms < PATIENCE_MS; ms += 10)
		peer_nap(10);
	assert_said(s, "end that process");
	assert_int_equal(waitpid(s->guardian, NULL, WNOHANG), 0);
	while (!strstr(s->heard, "migrate-set-parameters"))
		serve_one(s);
	assert_guardian_ends(s);
	assert_said(s, "as it was before");
	assert_non_null(strstr(s->heard, ENDS_IT "migrate-set-parameters "));
	assert_none_came(other);
	close(other);
}

/* The guest may need RAM that is only there: to end that QEMU is no advice. */
static void nor_is_the_first_to_be_ended_behind_the_commit_point(void **state)
{
	struct scene *s = *state;
	int other;

	start_sender(s, STANDS_DOWN);
	other = take_path(s);
	kill_sender(s);
	for (unsigned int ms = 0; !has_said(s, "another program has the socket") && ms < PATIENCE_MS; ms += 10)
		peer_nap(10);
	assert_said(s, "whose settings are put back as soon as it answers");
	assert_false(has_said(s, "end that process"));
	while (!strstr(s->heard, "migrate-set-parameters"))
		serve_one(s);
	assert_guardian_ends(s);
	assert_none_came(other);
	close(other);
}

/* It listens where the other one did, and hears no word. */
static void stranger(const struct scene *s, int ready)
{
	char byte;
	int fd = take_path(s), client;
	bool silent = write(ready, "", 1) == 1;

	client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	silent = client >= 0 && read(client, &byte, 1) == 0 && silent;
	_exit(silent ? 0 : 1);
}

/* The first one lives, and does not listen any more: it cannot be reached, and the other is not it. */
static void another_qemu_has_its_path_and_its_clients(void **state)
{
	struct scene *s = *state;
	int ready[2], status;
	pid_t other;
	char byte;

	assert_return_code(pipe2(ready, O_CLOEXEC), errno);
	start_sender(s, NOTHING);
	other = fork();
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		stranger(s, ready[1]);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	shutdown(s->peer.listener, SHUT_RDWR);
	kill_sender(s);
	assert_int_equal(waitpid(other, &status, 0), other);
	assert_int_equal(status, 0);
	for (unsigned int ms = 0; !has_said(s, "another program has the socket") && ms < PATIENCE_MS; ms += 10)
		peer_nap(10);
	assert_said(s, "listens there now");
	assert_said(s, "another program has the socket");
	assert_false(has_said(s, "as it was before"));
	end_qemu(s);
	assert_guardian_ends(s);
	assert_said(s, "nothing to roll back");
}

/* A relay that outlives QEMU, or one in another pid namespace: only that QEMU has exited tells them apart. */
static void what_answers_when_qemu_has_exited_is_another(void **state)
{
	struct scene *s = *state;

	s->at.vmm = 0;
	start_sender(s, NOTHING);
	end_qemu(s);
	kill_sender(s);
	assert_guardian_ends(s);
	what_it_heard(s);
	assert_string_equal(s->heard, "");
	assert_said(s, "nothing to roll back");
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

/* How it ended is what the sender reports. */
static void a_sender_knows_how_it_ended(void **state)
{
	static const struct {
		int exits, dies;
		bool done, left, died;
	} each[] = {
		{ 0, 0, true, false, false }, { 3, 0, true, true, false }, { 1, 0, false, false, true }, { 0, SIGKILL, false, false, true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct guardian g = { .pid = fork(), .pipe = -1 };

		if (!g.pid) {
			if (each[i].dies)
				raise(each[i].dies);
			_exit(each[i].exits);
		}
		assert_int_equal(guardian_take_over(&g, 20000), each[i].done);
		assert_int_equal(g.left, each[i].left);
		assert_int_equal(g.died, each[i].died);
		assert_false(g.at_work);
	}
}

#define TEST(fn, setup)	cmocka_unit_test_setup_teardown(fn, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(a_sender_that_dies_is_put_back, with_qemu),
	TEST(a_guest_that_is_left_is_no_success, with_qemu),
	TEST(a_monitor_that_is_taken_is_waited_for, with_nobody),
	TEST(another_qemu_has_its_path, with_nobody),
	TEST(nor_is_the_first_to_be_ended_behind_the_commit_point, with_nobody),
	TEST(another_qemu_has_its_path_and_its_clients, with_nobody),
	TEST(what_answers_when_qemu_has_exited_is_another, with_qemu),
	TEST(a_vm_that_is_gone_is_reported, with_nobody),
	TEST(behind_the_commit_point_it_only_puts_settings_back, with_qemu),
	TEST(a_sender_that_lives_has_not_died, with_qemu),
	TEST(behind_its_proof_it_puts_all_back, with_qemu),
	TEST(a_sender_that_cannot_hands_over, with_qemu),
	cmocka_unit_test(a_sender_knows_how_it_ended),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
