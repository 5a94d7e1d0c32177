// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/stop.h"
#include "migrate/guardian.h"
#include "vmm/saved.h"

/* What the sender may say; a closed pipe without STAND_DOWN or DISMISS means that it died. */
enum { STAND_DOWN = 's', DISMISS = 'd' };

static void close_all_but(int fd)
{
	if (fd > 3)
		syscall(SYS_close_range, 3, fd - 1, 0);
	syscall(SYS_close_range, fd + 1, ~0U, 0);
}

static bool sender_died(int fd)
{
	char c;
	ssize_t n;

	while ((n = read(fd, &c, 1)) < 0 && errno == EINTR)
		;
	return n == 0;
}

static void put_back(const char *qmp_path, unsigned int timeout_ms, struct migration m)
{
	struct err e = { 0 };

	m.stream = -1;
	m.qmp = NULL;
	if (qmp_open(qmp_path, timeout_ms, &m.qmp, &e) || migration_rollback(&m, &e))
		fprintf(stderr, "godwit: the sender died, and the source VM could not be put back: %s\n", e.text);
	else
		fprintf(stderr, "godwit: the sender died; the source VM runs as before\n");
	if (m.qmp)
		saved_forget(m.qmp);
	qmp_close(m.qmp);
}

int guardian_start(struct guardian *g, const char *qmp_path, const char *control, unsigned int timeout_ms,
		   const struct migration *m, struct err *e)
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
	if (g->pid == 0) {
		/* Out of the terminal's process group: Ctrl-C is for the sender. So is the control socket, which is closed here. */
		setsid();
		stop_look(NULL, NULL);
		stop_ignore();
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		prctl(PR_SET_NAME, "godwit-guardian");
		/* Also the QMP connection: QEMU serves the next client when the last copy is closed. */
		close_all_but(pipefd[0]);
		if (sender_died(pipefd[0])) {
			if (*control)
				unlink(control);
			put_back(qmp_path, timeout_ms, *m);
		}
		_exit(0);
	}
	close(pipefd[0]);
	g->pipe = pipefd[1];
	return 0;
}

static void say(struct guardian *g, char c)
{
	if (g->pipe < 0)
		return;
	while (write(g->pipe, &c, 1) < 0 && errno == EINTR)
		;
	close(g->pipe);
	g->pipe = -1;
}

void guardian_stand_down(struct guardian *g)
{
	say(g, STAND_DOWN);
}

void guardian_dismiss(struct guardian *g)
{
	say(g, DISMISS);
	if (g->pid > 0)
		while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
			;
	g->pid = 0;
}
