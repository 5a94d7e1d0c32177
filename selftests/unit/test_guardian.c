// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guardian of a sender that is killed: before the commit point it puts the source VM back, behind it it keeps its hands
 * off. The sender is a child of the test; the test inherits the guardian from it, and so sees how it ends.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "migrate/guardian.h"
#include "qmp_peer.h"

#define PATIENCE_MS	10000u

enum act { NOTHING, STANDS_DOWN, DISMISSES };

/**
 * struct scene
 * @control: the sender's socket, as far as the guardian knows: a file
 * @guardian: its process
 * @said: what it writes to stderr
 * @state: the migration's in QEMU; @cancelled: it was asked to
 * @heard: all commands, in their order
 */
struct scene {
	struct peer peer;
	char control[96];
	pid_t sender, guardian;
	int said;
	const char *state;
	char heard[4096];
};

/* QEMU, whose guest stands still in the middle of a migration until it is told to go on. */
static void source_vm(struct peer *p)
{
	struct scene *s = (struct scene *)((char *)p - offsetof(struct scene, peer));
	char migration[64];

	peer_negotiate(p);
	while (peer_line(p)) {
		char *command = strstr(p->line, "\"execute\":\"");

		if (!command)
			continue;
		command += strlen("\"execute\":\"");
		strncat(s->heard, command, strcspn(command, "\""));
		strcat(s->heard, " ");
		if (!strncmp(command, "migrate_cancel", 14))
			s->state = "cancelled";
		snprintf(migration, sizeof(migration), "{\"status\": \"%s\"}", s->state);
		peer_reply(p, "return", !strncmp(command, "query-migrate\"", 14) ? migration :
			   !strncmp(command, "query-status", 12) ? "{\"status\": \"paused\"}" :
			   !strncmp(command, "query-fdsets", 12) ? "[]" : "{}");
	}
}

/* Its own process: a migration that has begun, and its guardian. */
static void sender(struct scene *s, enum act act, int ready)
{
	struct migration m = {
		.was_running = true,
		.stream = -1,
		.old_caps = json_array(),
		.old_params = json_pack("{s:i}", "max-bandwidth", 5),
	};
	struct guardian g = { .pipe = -1 };
	struct err e = { 0 };

	dup2(s->said, STDERR_FILENO);
	if (guardian_start(&g, s->peer.path, s->control, 2000, &m, &e))
		_exit(1);
	if (write(ready, &g.pid, sizeof(g.pid)) != sizeof(g.pid))
		_exit(1);
	if (act == STANDS_DOWN)
		guardian_stand_down(&g);
	if (act == DISMISSES)
		guardian_dismiss(&g);
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

static void assert_said(struct scene *s, const char *what)
{
	char text[1024] = "";

	assert_true(pread(s->said, text, sizeof(text) - 1, 0) >= 0);
	assert_non_null(strstr(text, what));
}

/* Nobody has connected: also one that has left again would wait to be accepted. */
static void assert_nobody_came(struct scene *s)
{
	struct pollfd pfd = { .fd = s->peer.listener, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, 0), 0);
}

static struct scene *scene(peer_script *script)
{
	struct scene *s = calloc(1, sizeof(*s));
	int fd;

	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	s->state = "pre-switchover";
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
	*state = scene(source_vm);
	return 0;
}

static int with_nobody(void **state)
{
	*state = scene(NULL);
	return 0;
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
	unlink(s->control);
	peer_stop(&s->peer);
	close(s->said);
	free(s);
	return 0;
}

static void a_sender_that_dies_is_put_back(void **state)
{
	struct scene *s = *state;

	start_sender(s, NOTHING);
	kill_sender(s);
	assert_guardian_ends(s);
	pthread_join(s->peer.thread, NULL);
	s->peer.script = NULL;
	assert_string_equal(s->peer.missed, "");
	assert_string_equal(s->heard, "query-migrate migrate_cancel query-migrate query-status cont "
				      "migrate-set-capabilities migrate-set-parameters query-fdsets ");
	assert_said(s, "the source VM runs as before");
	assert_int_equal(access(s->control, F_OK), -1);
}

/* QEMU is gone as well: it says that it could do nothing. */
static void a_vm_that_is_gone_is_reported(void **state)
{
	struct scene *s = *state;

	unlink(s->peer.path);
	start_sender(s, NOTHING);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_said(s, "could not be put back");
	assert_int_equal(access(s->control, F_OK), -1);
}

static void behind_the_commit_point_it_keeps_its_hands_off(void **state)
{
	struct scene *s = *state;

	start_sender(s, STANDS_DOWN);
	kill_sender(s);
	assert_guardian_ends(s);
	assert_nobody_came(s);
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
	assert_said(s, "the source VM runs as before");
}

/* Besides the standard ones: a pipe, and others. */
static void count_fds(pid_t pid, unsigned int *pipes, unsigned int *others)
{
	char path[320], to[64];
	struct dirent *d;
	DIR *dir;

	*pipes = *others = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		ssize_t n;

		if (*d->d_name == '.' || atoi(d->d_name) <= STDERR_FILENO)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, d->d_name);
		n = readlink(path, to, sizeof(to));
		++*(n > 5 && !memcmp(to, "pipe:", 5) ? pipes : others);
	}
	if (dir)
		closedir(dir);
}

/* The sender has its listener, a file and two pipes by then. */
static void it_holds_nothing_but_its_pipe(void **state)
{
	struct scene *s = *state;
	unsigned int pipes, others, ms = 0;
	int more[2], low = dup(STDIN_FILENO);

	assert_return_code(pipe2(more, O_CLOEXEC), errno);
	start_sender(s, NOTHING);
	close(more[0]);
	close(more[1]);
	close(low);
	do {
		count_fds(s->guardian, &pipes, &others);
		peer_nap(10);
	} while ((pipes > 1 || others) && (ms += 10) < PATIENCE_MS);
	assert_int_equal(pipes, 1);
	assert_int_equal(others, 0);
	kill_sender(s);
	assert_guardian_ends(s);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_sender_that_dies_is_put_back, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(a_vm_that_is_gone_is_reported, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(behind_the_commit_point_it_keeps_its_hands_off, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(one_that_is_dismissed_has_ended, with_nobody, teardown),
	cmocka_unit_test_setup_teardown(signals_are_for_the_sender, with_qemu, teardown),
	cmocka_unit_test_setup_teardown(it_holds_nothing_but_its_pipe, with_qemu, teardown),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
