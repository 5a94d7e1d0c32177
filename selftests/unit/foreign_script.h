/* SPDX-License-Identifier: GPL-2.0-only */
/* A QEMU that answers query-migrate by a script, and what is said of its migration. Include after cmocka.h. */
#ifndef GODWIT_FOREIGN_SCRIPT_H
#define GODWIT_FOREIGN_SCRIPT_H

#include <sys/mman.h>
#include <sys/syscall.h>

#include "qmp_peer.h"
#include "txn/foreign.h"

/* One answer of query-migrate; total: -1: it does not say. The last one is given again and again. */
struct answer {
	const char *status;
	long long total;
};

static struct {
	const struct answer *answers;
	unsigned int at, cancelled;
	bool silent;
} qemu;

static void script(struct peer *p)
{
	peer_negotiate(p);
	while (peer_line(p)) {
		const struct answer *a = &qemu.answers[qemu.at];
		char text[128];

		if (qemu.silent)
			continue;
		if (strstr(p->line, "migrate_cancel")) {
			qemu.cancelled++;
			peer_reply(p, "return", "{}");
			continue;
		}
		if (a->total < 0)
			snprintf(text, sizeof(text), "{\"status\": \"%s\"}", a->status);
		else
			snprintf(text, sizeof(text), "{\"status\": \"%s\", \"total-time\": %lld}", a->status, a->total);
		qemu.at += a[1].status != NULL;
		peer_reply(p, "return", text);
	}
}

static struct peer peer;
static struct foreign begin(const struct answer *answers)
{
	struct foreign f = { .pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), .timeout_ms = 2000 };
	struct err e = { 0 };

	memset(&qemu, 0, sizeof(qemu));
	qemu.answers = answers;
	assert_int_equal(peer_start(&peer, script, NULL, 1), 0);
	assert_int_equal(qmp_open(peer.path, 2000, &f.qmp, &e), 0);
	return f;
}

static void end(struct foreign *f)
{
	qmp_close(f->qmp);
	close(f->pidfd);
	peer_stop(&peer);
}

static unsigned int patience;
static bool enough(void)
{
	return !patience--;
}

static int said_fd, stderr_fd;

/* From here on what is said is kept. */
static void listen_to_it(void)
{
	fflush(stderr);
	stderr_fd = dup(STDERR_FILENO);
	said_fd = memfd_create("said", MFD_CLOEXEC);
	dup2(said_fd, STDERR_FILENO);
}

static bool was_said(const char *what)
{
	char text[4096] = "";

	fflush(stderr);
	assert_true(pread(said_fd, text, sizeof(text) - 1, 0) >= 0);
	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
	close(said_fd);
	return strstr(text, what);
}

#endif
