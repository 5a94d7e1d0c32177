// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"
#include "source/source.h"
#include "txn/foreign.h"
#include "txn/guardian.h"
#include "txn/record.h"
#include "vmm/proc_io.h"

/* What the sender may say besides records; a pipe that closes without DISMISS means that it died, or cannot go on. */
#define STAND_DOWN	"sent\n"
#define STAND_UP	"dead\n"
#define UNDONE		"undone\n"
#define HANDS_OVER	"yours\n"
#define DISMISS		"dismiss\n"

#define AGAIN_MS	500	/* between two tries */
#define KEPT		4u	/* descriptors, besides those that are held */

/* Sorted; -1: one less. */
static void keep_only(const int *fds, unsigned int n)
{
	int from = STDERR_FILENO + 1;

	for (unsigned int i = 0; i < n; i++) {
		if (fds[i] > from)
			syscall(SYS_close_range, from, fds[i] - 1, 0);
		if (fds[i] >= from)
			from = fds[i] + 1;
	}
	syscall(SYS_close_range, from, ~0U, 0);
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

enum farewell { DIED, DISMISSED, HANDED_OVER };

/* All that the sender says, into the journal. */
static enum farewell listen_to_sender(int fd, struct journal *j, enum undo_what *what)
{
	FILE *f = fdopen(fd, "re");
	enum farewell how = DIED;
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	*what = UNDO_ALL;
	while (f && (n = getline(&line, &cap, f)) > 0) {
		if (!strcmp(line, STAND_DOWN))
			*what = UNDO_SETTINGS;
		else if (!strcmp(line, STAND_UP))
			*what = UNDO_ALL;
		else if (!strcmp(line, UNDONE))
			json_array_clear(j->records);
		else if (!strcmp(line, DISMISS))
			how = DISMISSED;
		else if (!strcmp(line, HANDS_OVER))
			how = HANDED_OVER;
		else if (line[n - 1] == '\n')	/* else it died over it, before it did what it says */
			journal_load(j, line);
	}
	free(line);
	return how;
}

/* Another client may hold the monitor, for long: nobody else will do this, so there is no last try while QEMU lives. */
static void undo(const struct ward *w, struct journal *j, enum undo_what what, enum farewell how)
{
	bool told = false;

	/* A sender that lives has said itself how its migration ended. */
	if (what == UNDO_SETTINGS && how == DIED)
		fprintf(stderr, "godwit: the sender died when the destination could run already: \"godwit resolve\" finds out where the guest runs\n");
	for (;;) {
		struct qmp *q = NULL;
		struct err e = { 0 };
		int r = qmp_open(w->qmp_path, w->timeout_ms, &q, &e);

		if (!r)
			r = journal_undo(j, q, what, &e);
		qmp_close(q);
		if (!r && what == UNDO_ALL && !j->left) {
			record_unlink_vm(RECORD_DIR, "doubt", w->pid);
			fprintf(stderr, "godwit: without its sender: the source VM is as it was before\n");
		} else if (!r && what == UNDO_SETTINGS) {
			fprintf(stderr, "godwit: without its sender: QEMU's settings are as they were before\n");
		}
		if (!r)
			return;
		if (proc_ended(w->pidfd)) {
			fprintf(stderr, "godwit: the source QEMU has gone: there is nothing to put back\n");
			return;
		}
		if (!told)
			fprintf(stderr, "godwit: without its sender: the source VM could not be put back yet: %s; trying on\n", e.text);
		told = true;
		nap_ms(AGAIN_MS);
	}
}

/* As the sender does at its end (sender_let_go()). */
static void let_go(const struct ward *w, enum undo_what what, bool quiet)
{
	struct foreign f = {
		.qmp_path = w->qmp_path, .pidfd = w->pidfd, .timeout_ms = w->timeout_ms,
		.quiet = quiet,
	};

	if (w->session < 0)
		return;
	foreign_wait(&f, NULL);
	close(w->session);
	source_kmod_hurry(w->vm_fd);
	if (what == UNDO_ALL)
		foreign_end_overlap(&f, now_ns());
}

static void be_guardian(int pipe, const struct ward *w)
{
	int keep[KEPT + GUARDIAN_HELD_MAX] = { pipe, w->pidfd, w->vm_fd, w->session };
	unsigned int n = KEPT;
	struct journal j = { .pipe = -1 };
	struct err e = { 0 };
	enum undo_what what;
	enum farewell how;
	bool left;

	/* Out of the terminal's process group: Ctrl-C is for the sender. So is the control socket, which is closed here. */
	setsid();
	stop_look(NULL, NULL);
	stop_ignore();
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	prctl(PR_SET_NAME, "godwit-guardian");
	/* Also the QMP connection: QEMU serves the next client when the last copy is closed. */
	while (n < KEPT + w->nheld && n < sizeof(keep) / sizeof(keep[0])) {
		keep[n] = w->held[n - KEPT];
		n++;
	}
	qsort(keep, n, sizeof(keep[0]), by_number);
	keep_only(keep, n);
	if (journal_open(&j, &e))
		_exit(1);
	how = listen_to_sender(pipe, &j, &what);
	if (how != DISMISSED) {
		if (*w->control)
			unlink(w->control);
		/* Else the sender has done that itself, and waited until it could wait no more. */
		left = json_array_size(j.records);
		if (left)
			undo(w, &j, what, how);
		let_go(w, what, !left);
		if (*w->lock)
			unlink(w->lock);
	}
	_exit(0);
}

int guardian_start(struct guardian *g, const struct ward *w, struct journal *j, struct err *e)
{
	int pipefd[2];

	if (pipe2(pipefd, O_CLOEXEC) < 0)
		return err_set(e, GW_INTERNAL, errno, "pipe: %s", strerror(errno));
	g->pid = fork();
	if (g->pid < 0) {
		close(pipefd[0]);
		close(pipefd[1]);
		return err_set(e, GW_INTERNAL, errno, "fork: %s", strerror(errno));
	}
	if (g->pid == 0)
		be_guardian(pipefd[0], w);
	close(pipefd[0]);
	g->pipe = j->pipe = pipefd[1];
	return 0;
}

static void say(const struct guardian *g, const char *what)
{
	if (g->pipe < 0)
		return;
	while (write(g->pipe, what, strlen(what)) < 0 && errno == EINTR)
		;
}

void guardian_stand_down(struct guardian *g)
{
	say(g, STAND_DOWN);
}

void guardian_stand_up(struct guardian *g)
{
	say(g, STAND_UP);
}

void guardian_undone(struct guardian *g)
{
	say(g, UNDONE);
}

static void hang_up(struct guardian *g)
{
	if (g->pipe >= 0)
		close(g->pipe);
	g->pipe = -1;
}

void guardian_dismiss(struct guardian *g)
{
	say(g, DISMISS);
	hang_up(g);
	if (g->pid > 0)
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	g->pid = 0;
}

bool guardian_take_over(struct guardian *g, unsigned int ms)
{
	uint64_t deadline = deadline_ms(ms);
	pid_t pid;

	say(g, HANDS_OVER);
	hang_up(g);
	while (!(pid = waitpid(g->pid, NULL, WNOHANG)) && now_ns() < deadline)
		nap_ms(10);
	g->pid = 0;
	g->at_work = !pid;
	return pid != 0;
}
