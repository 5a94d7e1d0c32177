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

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "dirty/source.h"
#include "proc/proc_io.h"
#include "txn/foreign.h"
#include "txn/guardian.h"
#include "txn/record.h"

/*
 * What the sender may write besides records. A pipe that closes without DISMISS means that the
 * sender died, or cannot go on.
 */
#define STAND_DOWN	"sent\n"
#define STAND_UP	"dead\n"
#define UNDONE		"undone\n"
#define HANDS_OVER	"yours\n"
#define DISMISS		"dismiss\n"

#define AGAIN_MS	500	/* between two tries */
#define LEFT		3	/* its exit status: see struct journal */
#define KEPT		5u	/* descriptors, besides those of the ward */

/* fds: sorted; -1 stands for a descriptor that does not exist. */
static void guardian_close_others(const int *fds, unsigned int n)
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

static int guardian_fd_order(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

enum sender_end { SENDER_DIED, SENDER_DISMISSES, SENDER_HANDS_OVER };

/* Takes all that the sender writes into the journal, until the pipe closes. */
static enum sender_end guardian_read(int fd, struct journal *j, enum undo_what *what)
{
	FILE *f = fdopen(fd, "re");
	enum sender_end end = SENDER_DIED;
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
			end = SENDER_DISMISSES;
		else if (!strcmp(line, HANDS_OVER))
			end = SENDER_HANDS_OVER;
		else if (line[n - 1] == '\n')	/* else it died in this, before the action */
			journal_load(j, line);
	}
	free(line);
	return end;
}

/* @failed, @taken: that was said. */
struct guardian_words {
	bool failed;
	bool taken;
};

/*
 * An operator may start another QEMU by the same script while this one hangs. Behind the commit
 * point the first may have RAM that its guest still needs: nobody is told to end it.
 */
static void guardian_report(const struct ward *w, enum undo_what what, const struct err *e,
			    struct guardian_words *said)
{
	if (!said->failed)
		say("guardian: cannot roll the source VM back yet (process %d): %s; trying again",
			(int)w->pid, e->text);
	said->failed = true;
	/* Of a relay, or in another pid namespace, it need not be another QEMU's. */
	if (said->taken || !w->at.vmm || !qmp_place_is_taken(&w->at))
		return;
	said->taken = true;
	say("guardian: another program has the socket %s by now, and is left alone; the source VM is still process %d, %s",
		w->at.path, (int)w->pid,
		what == UNDO_SETTINGS ? "whose settings are put back as soon as it answers" :
		"whose guest goes on as soon as it answers: end that process (kill -9) if it must not, or never will");
}

/*
 * Another client may hold the monitor for long. No other process will do this work, so while QEMU
 * lives the guardian goes on trying.
 */
static void guardian_undo(const struct ward *w, struct journal *j, enum undo_what what,
			  enum sender_end end)
{
	struct guardian_words said = { 0 };

	/* A sender that lives has reported itself how its migration ended. */
	if (what == UNDO_SETTINGS && end == SENDER_DIED)
		say("the sender died after the commit point: \"godwit resolve\" finds out where the guest runs");
	for (;;) {
		struct qmp *q = NULL;
		struct err e = { 0 };
		int r = qmp_open_at(&w->at, w->timeout_ms, &q, &e);

		/* If it has exited, another QEMU may answer at its path. */
		if (!r)
			r = proc_ended(w->pidfd) ? -ESRCH : journal_undo(j, q, what, &e);
		qmp_close(q);
		/* Nothing is left to resolve, also where the guest is left as it stands. */
		if (!r && what == UNDO_ALL)
			record_unlink_vm(RECORD_DIR, "doubt", w->pid);
		if (!r && what == UNDO_ALL && !j->left)
			say("guardian: rolled back: the source VM is as it was before");
		else if (!r && what == UNDO_SETTINGS)
			say("guardian: QEMU's settings are as they were before");
		if (!r)
			return;
		if (proc_ended(w->pidfd)) {
			say("guardian: the source QEMU has exited: nothing to roll back");
			return;
		}
		guardian_report(w, what, &e, &said);
		nap_ms(AGAIN_MS);
	}
}

/* As the sender does at its end (sender_end_session()). */
static void guardian_end_session(const struct ward *w, enum undo_what what, bool quiet,
				 uint64_t cleared_ns)
{
	struct foreign f = {
		.at = &w->at, .pidfd = w->pidfd, .timeout_ms = w->timeout_ms,
		.quiet = quiet, .cleared_ns = what == UNDO_ALL ? cleared_ns : 0,
	};

	if (w->session < 0)
		return;
	foreign_wait(&f, NULL);
	close(w->session);
	source_kmod_hurry(w->vm_fd);
	if (what == UNDO_ALL)
		foreign_end_overlap(&f, now_ns());
}

static void guardian_main(int pipe, const struct ward *w)
{
	int keep[KEPT + GUARDIAN_HELD_MAX] = {
		pipe, w->pidfd, w->vm_fd, w->session, w->at.socket,
	};
	unsigned int n = KEPT;
	struct journal j = { .pipe = -1 };
	struct err e = { 0 };
	enum undo_what what;
	enum sender_end end;
	uint64_t cleared_ns = 0;
	bool left;

	/*
	 * Out of the terminal's process group: Ctrl-C is for the sender. The control socket is the
	 * sender's as well, and is closed here.
	 */
	setsid();
	stop_set_hook(NULL, NULL);
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
	qsort(keep, n, sizeof(keep[0]), guardian_fd_order);
	guardian_close_others(keep, n);
	if (journal_open(&j, &e))
		_exit(1);
	end = guardian_read(pipe, &j, &what);
	if (w->lease)
		cleared_ns = lease_cleared_ns(w->lease);
	if (end != SENDER_DISMISSES) {
		if (*w->control)
			unlink(w->control);
		/*
		 * Without records: the sender has undone them itself, has reported that it waits
		 * for QEMU's own migration, and has left the wait to its guardian.
		 */
		left = json_array_size(j.records);
		if (left)
			guardian_undo(w, &j, what, end);
		guardian_end_session(w, what, !left, cleared_ns);
		if (*w->lock)
			unlink(w->lock);
	}
	_exit(j.left ? LEFT : 0);
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
		guardian_main(pipefd[0], w);
	close(pipefd[0]);
	g->pipe = j->pipe = pipefd[1];
	return 0;
}

static void guardian_say(const struct guardian *g, const char *what)
{
	if (g->pipe < 0)
		return;
	while (write(g->pipe, what, strlen(what)) < 0 && errno == EINTR)
		;
}

void guardian_stand_down(struct guardian *g)
{
	guardian_say(g, STAND_DOWN);
}

void guardian_stand_up(struct guardian *g)
{
	guardian_say(g, STAND_UP);
}

void guardian_undone(struct guardian *g)
{
	guardian_say(g, UNDONE);
}

static void guardian_close_pipe(struct guardian *g)
{
	if (g->pipe >= 0)
		close(g->pipe);
	g->pipe = -1;
}

void guardian_dismiss(struct guardian *g)
{
	guardian_say(g, DISMISS);
	guardian_close_pipe(g);
	if (g->pid > 0)
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	g->pid = 0;
}

bool guardian_take_over(struct guardian *g, unsigned int ms)
{
	uint64_t deadline = deadline_ms(ms);
	int status = 0;
	pid_t pid;

	guardian_say(g, HANDS_OVER);
	guardian_close_pipe(g);
	while (!(pid = waitpid(g->pid, &status, WNOHANG)) && now_ns() < deadline)
		nap_ms(10);
	g->pid = 0;
	g->at_work = !pid;
	g->left = pid && WIFEXITED(status) && WEXITSTATUS(status) == LEFT;
	g->died = pid && status && !g->left;
	return pid && !g->died;
}
