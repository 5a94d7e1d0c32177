// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guardian of a sender that is killed: before the commit point it undoes what the sender's journal has, behind it only
 * settings; and it goes on until that is done, or QEMU is gone. The sender is a child of the test; the test inherits the guardian from it, and so sees how it ends.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "txn/guardian.h"
#include "qmp_peer.h"

#define PATIENCE_MS	10000u

enum act { NOTHING, STANDS_DOWN, STANDS_UP, UNDOES, DISMISSES, MOVES, HANDS_OVER };

/**
 * struct scene
 * @control: the sender's socket, as far as the guardian knows: a file
 * @guardian: its process
 * @qemu: a process that lives as long as QEMU does
 * @said: what it writes to stderr
 * @session: a pipe's end, in place of the module's session; -1: there is none
 * @state: the migration's in QEMU; @guest: the VM's
 * @heard: all commands, in their order; one that is asked again and again stands there once
 */
struct scene {
	struct peer peer;
	char control[96];
	pid_t sender, guardian, qemu;
	int said, session;
	const char *state, *guest;
	char heard[4096];
};

static void note_command(struct scene *s, const char *command, size_t len)
{
	size_t had = strlen(s->heard);

	if (had > len && !strncmp(s->heard + had - len - 1, command, len))
		return;
	snprintf(s->heard + had, sizeof(s->heard) - had, "%.*s ", (int)len, command);
}

/* QEMU, whose guest stands still in the middle of a migration until it is told to go on. */
static void source_vm(struct peer *p)
{
	struct scene *s = (struct scene *)((char *)p - offsetof(struct scene, peer));
	char migration[64], guest[64];

	peer_negotiate(p);
	while (peer_line(p)) {
		char *command = strstr(p->line, "\"execute\":\"");

		if (!command)
			continue;
		command += strlen("\"execute\":\"");
		note_command(s, command, strcspn(command, "\""));
		if (!strncmp(command, "migrate_cancel", 14)) {
			s->state = "cancelled";
			s->guest = "running";	/* QEMU does that by itself */
		}
		snprintf(migration, sizeof(migration), "{\"status\": \"%s\"}", s->state);
		snprintf(guest, sizeof(guest), "{\"status\": \"%s\"}", s->guest);
		peer_reply(p, "return", !strncmp(command, "query-migrate\"", 14) ? migration :
			   !strncmp(command, "query-status", 12) ? guest :
			   !strncmp(command, "query-fdsets", 12) ? "[]" : "{}");
	}
}

/* Its own process: a migration that has begun, and its guardian. */
static void sender(struct scene *s, enum act act, int ready)
{
	struct guardian g = { .pipe = -1 };
	struct journal j = { .pipe = -1 };
	struct ward w = {
		.qmp_path = s->peer.path, .pidfd = (int)syscall(SYS_pidfd_open, s->qemu, 0), .pid = s->qemu, .vm_fd = -1, .session = s->session,
		.control = s->control, .lock = "", .timeout_ms = 400,
	};
	struct err e = { 0 };
	int r;

	dup2(s->said, STDERR_FILENO);
	r = journal_open(&j, &e);
	if (!r)
		r = guardian_start(&g, &w, &j, &e);
	if (!r)
		r = journal_command(&j, "migrate-set-parameters", json_pack("{s:i}", "max-bandwidth", 5), true, &e);
	if (!r)
		r = journal_migrate(&j, true, &e);
	if (r || write(ready, &g.pid, sizeof(g.pid)) != sizeof(g.pid))
		_exit(1);
	if (act == STANDS_DOWN || act == STANDS_UP || act == MOVES)
		guardian_stand_down(&g);
	if (act == STANDS_UP)
		guardian_stand_up(&g);
	if (act == UNDOES)
		guardian_undone(&g);
	if (act == DISMISSES)
		guardian_dismiss(&g);
	if ((act == HANDS_OVER || act == MOVES) && !guardian_take_over(&g, 20000))
		_exit(1);
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

static void start_sender(struct scene *s, enum act act)
{
	int ready[2];
	char done;

	assert_return_code(pipe2(ready, O_CLOEXEC), errno);
	s->sender = fork();
	assert_return_code(s->sender, errno);
	if (!s->sender)
		sender(s, act, ready[1]);
	close(ready[1]);
	assert_int_equal(read(ready[0], &s->guardian, sizeof(s->guardian)), sizeof(s->guardian));
	assert_int_equal(read(ready[0], &done, 1), 1);
	close(ready[0]);
}

static void kill_sender(struct scene *s)
{
	assert_return_code(kill(s->sender, SIGKILL), errno);
	assert_int_equal(waitpid(s->sender, NULL, 0), s->sender);
	s->sender = 0;
}

/* It has ended, and as it should. */
static void assert_guardian_ends(struct scene *s)
{
	unsigned int ms;
	int status;
	pid_t pid = 0;

	for (ms = 0; !pid && ms < PATIENCE_MS; ms += 10) {
		pid = waitpid(s->guardian, &status, WNOHANG);
		if (!pid)
			peer_nap(10);
	}
	assert_int_equal(pid, s->guardian);
	s->guardian = 0;
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
}

static bool has_said(struct scene *s, const char *what)
{
	char text[1024] = "";

	assert_true(pread(s->said, text, sizeof(text) - 1, 0) >= 0);
	return strstr(text, what);
}

static void assert_said(struct scene *s, const char *what)
{
	assert_true(has_said(s, what));
}

/* Nobody has connected: also one that has left again would wait to be accepted. */
static void assert_nobody_came(struct scene *s)
{
	struct pollfd pfd = { .fd = s->peer.listener, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, 0), 0);
}

static void end_qemu(struct scene *s)
{
	if (s->qemu > 0) {
		kill(s->qemu, SIGKILL);
		waitpid(s->qemu, NULL, 0);
	}
	s->qemu = 0;
}

static struct scene *scene(peer_script *script)
{
	struct scene *s = calloc(1, sizeof(*s));
	int fd;

	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	s->state = "pre-switchover";
	s->guest = "finish-migrate";
	s->qemu = fork();
	if (!s->qemu) {
		pause();
		_exit(0);
	}
	s->session = -1;
	s->said = memfd_create("stderr", MFD_CLOEXEC);
	assert_int_equal(peer_start(&s->peer, script, NULL, 4), 0);
	snprintf(s->control, sizeof(s->control), "%s/control", s->peer.dir);
	fd = open(s->control, O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
	assert_return_code(fd, errno);
	close(fd);
	return s;
}

static int with_qemu(void **state)
{
	return !(*state = scene(source_vm));
}

static int with_nobody(void **state)
{
	return !(*state = scene(NULL));
}

static int teardown(void **state)
{
	struct scene *s = *state;

	if (s->sender)
		kill_sender(s);
	if (s->guardian > 0) {
		kill(s->guardian, SIGKILL);
		waitpid(s->guardian, NULL, 0);
	}
	end_qemu(s);
	unlink(s->control);
	peer_stop(&s->peer);
	close(s->said);
	free(s);
	return 0;
}

static void what_it_heard(struct scene *s)
{
	pthread_join(s->peer.thread, NULL);
	s->peer.script = NULL;
	assert_string_equal(s->peer.missed, "");
}

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

/* Nobody knows whose migration that was: it is not as it was before. */
static void a_guest_that_is_left_is_no_success(void **state)
{
	struct scene *s = *state;

	s->state = "completed";
	s->guest = "postmigrate";
	start_sender(s, NOTHING);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_said(s, "somebody else's");
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
	assert_said(s, "trying on");
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
	assert_said(s, "nothing to put back");
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

/* The guest has moved, and only settings could not be put back: the sender lives, and has said so. */
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

/* As a pipe says that its last writer has gone. */
static bool is_closed(int reader)
{
	struct pollfd pfd = { .fd = reader, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1 && pfd.revents & POLLHUP;
}

/* It asks for each time anew. */
static void next_connection(struct scene *s)
{
	s->peer.fd = accept4(s->peer.listener, NULL, NULL, SOCK_CLOEXEC);
	source_vm(&s->peer);
	close(s->peer.fd);
}

/*
 * Somebody has begun a migration of QEMU's own: the session, and so the dirty log that it needs, outlives the sender until that
 * has ended.
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
		next_connection(s);
		assert_false(is_closed(ends[0]));
	}
	s->state = "completed";
	next_connection(s);
	next_connection(s);	/* is there one that began as the log went off? */
	assert_guardian_ends(s);
	assert_true(is_closed(ends[0]));
	close(ends[0]);
	assert_false(has_said(s, "QEMU has a migration"));	/* the sender had */
	assert_string_equal(s->heard, "query-migrate ");
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
	assert_nobody_came(s);
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

/* Besides the standard ones: a pipe, a pidfd, and others. */
static void count_fds(pid_t pid, unsigned int *pipes, unsigned int *pidfds, unsigned int *others)
{
	char path[320], to[64];
	struct dirent *d;
	DIR *dir;

	*pipes = *pidfds = *others = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		ssize_t n;

		if (*d->d_name == '.' || atoi(d->d_name) <= STDERR_FILENO)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, d->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		++*(strstr(to, "pipe:") ? pipes : strstr(to, "pidfd") ? pidfds : others);
	}
	if (dir)
		closedir(dir);
}

/* The sender has its listener, a file and two pipes by then. */
static void it_holds_its_pipe_and_its_pidfd(void **state)
{
	struct scene *s = *state;
	unsigned int pipes, pidfds, others, ms = 0;
	int more[2], low = dup(STDIN_FILENO);

	assert_return_code(pipe2(more, O_CLOEXEC), errno);
	start_sender(s, NOTHING);
	close(more[0]);
	close(more[1]);
	close(low);
	do {
		count_fds(s->guardian, &pipes, &pidfds, &others);
		peer_nap(10);
	} while ((pipes > 1 || others) && (ms += 10) < PATIENCE_MS);
	assert_int_equal(pipes, 1);
	assert_int_equal(pidfds, 1);
	assert_int_equal(others, 0);
	kill_sender(s);
	assert_guardian_ends(s);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_sender_that_dies_is_put_back, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(a_guest_that_is_left_is_no_success, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(a_monitor_that_is_taken_is_waited_for, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(a_vm_that_is_gone_is_reported, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(behind_the_commit_point_it_only_puts_settings_back, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(a_sender_that_lives_has_not_died, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(behind_its_proof_it_puts_all_back, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(a_sender_that_cannot_hands_over, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(the_session_stays_while_qemu_migrates, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(one_that_is_dismissed_has_ended, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(signals_are_for_the_sender, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(it_holds_its_pipe_and_its_pidfd, with_qemu, teardown),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
