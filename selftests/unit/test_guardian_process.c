// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guardian as a process: what it holds and for how long, and what reaches it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "guardian_scene.h"

/* As a pipe says that its last writer has gone. */
static bool is_closed(int reader)
{
	struct pollfd pfd = { .fd = reader, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1 && pfd.revents & POLLHUP;
}

/*
 * A client has begun a migration of QEMU's own: the session, and so the dirty log that it needs,
 * outlives the sender until that has ended.
 */
static void the_session_stays_while_qemu_migrates(void **state)
{
	struct scene *s = *state;
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	s->session = ends[1];
	start_sender(s, UNDOES);
	close(ends[1]);
	s->state = "active";
	s->guest = "running";
	kill_sender(s);
	for (int i = 0; i < 3; i++) {
		serve_one(s);
		assert_false(is_closed(ends[0]));
	}
	s->state = "completed";
	serve_one(s);
	serve_one(s);	/* is there one that began as the log went off? */
	assert_guardian_ends(s);
	assert_true(is_closed(ends[0]));
	close(ends[0]);
	assert_false(has_said(s, "QEMU has a migration"));	/* the sender had */
	assert_string_equal(s->heard, "query-migrate ");
}

/*
 * That migration has been under way for longer than it is since the sender cleared the log, or
 * died in a clear.
 */
static void one_that_would_lose_writes_is_cancelled(void **state)
{
	struct scene *s = *state;
	int ends[2], other;

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	s->session = ends[1];
	s->lease = lease_new();
	lease_renew(s->lease);
	assert_true(lease_begin(s->lease));
	start_sender(s, UNDOES);
	close(ends[1]);
	s->state = "active";
	s->total_ms = 5000;
	s->guest = "running";
	other = take_path(s);	/* and a migration of that one's is none of ours */
	kill_sender(s);
	serve_one(s);
	assert_false(is_closed(ends[0]));
	serve_one(s);	/* migrate_cancel */
	for (int i = 0; i < 3; i++)
		serve_one(s);
	assert_guardian_ends(s);
	assert_true(is_closed(ends[0]));
	close(ends[0]);
	assert_said(s, "cancelled a migration of QEMU's own");
	assert_string_equal(s->heard, "query-migrate migrate_cancel query-migrate ");
	assert_none_came(other);
	close(other);
	lease_free(s->lease);
}

/* Who answers at its path then has a migration of its own. */
static void what_answers_when_qemu_has_exited_is_not_asked(void **state)
{
	struct scene *s = *state;
	int ends[2];

	assert_return_code(pipe2(ends, O_CLOEXEC), errno);
	s->session = ends[1];
	s->at.vmm = 0;
	start_sender(s, UNDOES);
	close(ends[1]);
	s->state = "active";
	end_qemu(s);
	kill_sender(s);
	assert_guardian_ends(s);
	what_it_heard(s);
	assert_true(is_closed(ends[0]));
	close(ends[0]);
	assert_string_equal(s->heard, "");
}

/* The sender goes on; its guardian has gone before it does. */
static void one_that_is_dismissed_has_ended(void **state)
{
	struct scene *s = *state;

	start_sender(s, DISMISSES);
	assert_int_equal(kill(s->guardian, 0), -1);
	assert_int_equal(errno, ESRCH);
	s->guardian = 0;
	kill_sender(s);
	assert_none_came(s->peer.listener);
}

static void signals_are_for_the_sender(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct scene *s = *state;

	start_sender(s, NOTHING);
	for (unsigned int ms = 0; getsid(s->guardian) != s->guardian && ms < PATIENCE_MS; ms += 10)
		peer_nap(10);
	assert_int_equal(getsid(s->guardian), s->guardian);
	peer_nap(50);		/* between its session and its signals */
	for (unsigned int i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		assert_return_code(kill(s->guardian, signals[i]), errno);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_said(s, "as it was before");
}

/* Besides the standard ones: a pipe, a pidfd, a socket that is held, and others. */
static void count_fds(const struct scene *s, unsigned int *pipes, unsigned int *pidfds, unsigned int *held,
		      unsigned int *others)
{
	char path[320], to[64];
	struct dirent *d;
	DIR *dir;

	*pipes = *pidfds = *held = *others = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", s->guardian);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		ssize_t n;

		if (*d->d_name == '.' || atoi(d->d_name) <= STDERR_FILENO)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", s->guardian, d->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		++*(strstr(to, "pipe:") ? pipes : strstr(to, "pidfd") ? pidfds : !strcmp(to, s->at.path) ? held : others);
	}
	if (dir)
		closedir(dir);
}

/* The sender has its listener, a file and two pipes by then. */
static void it_holds_its_pipe_its_pidfd_and_its_place(void **state)
{
	struct scene *s = *state;
	unsigned int pipes, pidfds, held, others, ms = 0;
	int more[2], low = dup(STDIN_FILENO);

	assert_return_code(pipe2(more, O_CLOEXEC), errno);
	start_sender(s, NOTHING);
	close(more[0]);
	close(more[1]);
	close(low);
	do {
		count_fds(s, &pipes, &pidfds, &held, &others);
		peer_nap(10);
	} while ((pipes > 1 || others) && (ms += 10) < PATIENCE_MS);
	assert_int_equal(pipes, 1);
	assert_int_equal(pidfds, 1);
	assert_int_equal(held, 1);
	assert_int_equal(others, 0);
	kill_sender(s);
	assert_guardian_ends(s);
}

#define TEST(fn, setup)	cmocka_unit_test_setup_teardown(fn, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(the_session_stays_while_qemu_migrates, with_nobody),
	TEST(one_that_would_lose_writes_is_cancelled, with_nobody),
	TEST(what_answers_when_qemu_has_exited_is_not_asked, with_qemu),
	TEST(one_that_is_dismissed_has_ended, with_nobody),
	TEST(signals_are_for_the_sender, with_qemu),
	TEST(it_holds_its_pipe_its_pidfd_and_its_place, with_qemu),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
