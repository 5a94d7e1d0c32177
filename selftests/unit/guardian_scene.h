/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender that dies, and its guardian. The sender is a child of the test; the test inherits the
 * guardian from it, and so sees how it ends. Include after cmocka.h.
 */
#ifndef GODWIT_GUARDIAN_SCENE_H
#define GODWIT_GUARDIAN_SCENE_H

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "net/unix.h"
#include "qmp_peer.h"
#include "txn/guardian.h"

#define PATIENCE_MS	10000u

enum act { NOTHING, STANDS_DOWN, STANDS_UP, UNDOES, DISMISSES, MOVES, HANDS_OVER };

/**
 * struct scene
 * @control: the sender's socket, as far as the guardian knows: a file
 * @at: QEMU's monitor, where the test listens in QEMU's name
 * @guardian: its process
 * @qemu: a process that lives as long as QEMU does
 * @said: what it writes to stderr
 * @session: a pipe's end, in place of the module's session; -1: there is none
 * @lease: under which the sender has cleared the log; NULL: none
 * @state: the migration's in QEMU, which has been under way for @total_ms; @guest: the VM's
 * @heard: all commands, in their order; one that is asked again and again stands there once
 */
struct scene {
	struct peer peer;
	struct qmp_place at;
	char control[96];
	pid_t sender, guardian, qemu;
	int said, session;
	bool leaves;	/* the guardian: the guest as it stands */
	struct lease *lease;
	const char *state, *guest;
	unsigned int total_ms;
	char heard[4096];
};

static inline void note_command(struct scene *s, const char *command, size_t len)
{
	size_t had = strlen(s->heard);

	if (had > len && !strncmp(s->heard + had - len - 1, command, len))
		return;
	snprintf(s->heard + had, sizeof(s->heard) - had, "%.*s ", (int)len, command);
}

/* QEMU, whose guest stands still in the middle of a migration until it is told to go on. */
static inline void source_vm(struct peer *p)
{
	struct scene *s = (struct scene *)((char *)p - offsetof(struct scene, peer));
	char migration[96], guest[64];

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
		snprintf(migration, sizeof(migration), "{\"status\": \"%s\", \"total-time\": %u}", s->state, s->total_ms);
		snprintf(guest, sizeof(guest), "{\"status\": \"%s\"}", s->guest);
		peer_reply(p, "return", !strncmp(command, "query-migrate\"", 14) ? migration :
			   !strncmp(command, "query-status", 12) ? guest :
			   !strncmp(command, "query-fdsets", 12) ? "[]" : "{}");
	}
}

/* Its own process: a migration that has begun, and its guardian. */
static inline void sender(struct scene *s, enum act act, int ready)
{
	struct guardian g = { .pipe = -1 };
	struct journal j = { .pipe = -1 };
	struct ward w = {
		.at = s->at,
		.pidfd = (int)syscall(SYS_pidfd_open, s->qemu, 0),
		.pid = s->qemu,
		.vm_fd = -1,
		.session = s->session,
		.lease = s->lease,
		.control = s->control,
		.lock = "",
		.timeout_ms = 400,
	};
	struct err e = { 0 };
	int r;

	dup2(s->said, STDERR_FILENO);
	r = journal_open(&j, &e);
	if (!r)
		r = guardian_start(&g, &w, &j, &e);
	if (!r)
		r = journal_command(&j, "migrate-set-parameters",
				    json_pack("{s:i}", "max-bandwidth", 5), true, &e);
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

static inline void start_sender(struct scene *s, enum act act)
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

static inline void kill_sender(struct scene *s)
{
	assert_return_code(kill(s->sender, SIGKILL), errno);
	assert_int_equal(waitpid(s->sender, NULL, 0), s->sender);
	s->sender = 0;
}

/* It has ended, and as it should. */
static inline void assert_guardian_ends(struct scene *s)
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
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), s->leaves ? 3 : 0);
}

static inline bool has_said(struct scene *s, const char *what)
{
	char text[1024] = "";

	assert_true(pread(s->said, text, sizeof(text) - 1, 0) >= 0);
	return strstr(text, what);
}

static inline void assert_said(struct scene *s, const char *what)
{
	assert_true(has_said(s, what));
}

/* The next client comes. */
static inline void serve_one(struct scene *s)
{
	struct timeval silence = { .tv_usec = 300000 };
	struct pollfd pfd = { .fd = s->peer.listener, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, PATIENCE_MS), 1);
	s->peer.fd = accept4(s->peer.listener, NULL, NULL, SOCK_CLOEXEC);
	/* It may have given up, and be there still. */
	setsockopt(s->peer.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence));
	source_vm(&s->peer);
	close(s->peer.fd);
}

/* No client has connected: also one that has left again would wait to be accepted. */
static inline void assert_none_came(int listener)
{
	struct pollfd pfd = { .fd = listener, .events = POLLIN };

	assert_int_equal(poll(&pfd, 1, 0), 0);
}

/* What another QEMU does that is started with the same path. Return: its socket, which listens. */
static inline int take_path(const struct scene *s)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(sun.sun_path, s->peer.path);
	assert_return_code(unlink(s->peer.path), errno);
	assert_return_code(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), errno);
	assert_return_code(listen(fd, 4), errno);
	return fd;
}

static inline void end_qemu(struct scene *s)
{
	if (s->qemu > 0) {
		kill(s->qemu, SIGKILL);
		waitpid(s->qemu, NULL, 0);
	}
	s->qemu = 0;
}

static inline struct scene *scene(peer_script *script)
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
	s->at = (struct qmp_place) { .path = s->peer.path, .socket = sock_unix_hold(s->peer.path), .vmm = getpid() };
	assert_true(s->at.socket >= 0);
	snprintf(s->control, sizeof(s->control), "%s/control", s->peer.dir);
	fd = open(s->control, O_CREAT | O_CLOEXEC | O_WRONLY, 0600);
	assert_return_code(fd, errno);
	close(fd);
	return s;
}

static inline int with_qemu(void **state)
{
	return !(*state = scene(source_vm));
}

static inline int with_nobody(void **state)
{
	return !(*state = scene(NULL));
}

static inline int teardown(void **state)
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
	qmp_place_forget(&s->at);
	close(s->said);
	free(s);
	return 0;
}

static inline void what_it_heard(struct scene *s)
{
	pthread_join(s->peer.thread, NULL);
	s->peer.script = NULL;
	assert_string_equal(s->peer.missed, "");
}

#endif
