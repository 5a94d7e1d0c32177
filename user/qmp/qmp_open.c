// SPDX-License-Identifier: GPL-2.0-only
/* Connecting and the greeting: most mistakes on the command line show here. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/text.h"
#include "net/unix.h"
#include "qmp/qmp_internal.h"

static int qmp_no_greeting(const char *path, struct err *e)
{
	return err_set(e, GW_TIMEOUT, ETIMEDOUT,
		       "%s: connected, but no QMP greeting: a QMP socket serves one client at a time, and another client may hold it: close that client, or give QEMU a second -qmp; or QEMU hangs, or its process is stopped (kill -CONT)",
		       path);
}

static int qmp_no_socket(const char *path, int err, struct err *e)
{
	switch (err) {
	case EAGAIN:	/* the queue is full of other clients */
		return stop_requested() ? stop_err(e) : qmp_no_greeting(path, e);
	case ENOENT:
		return err_set(e, GW_NO_SOCKET, err,
			       "%s: no such socket: start QEMU with -qmp unix:%s,server=on,wait=off",
			       path, path);
	case ECONNREFUSED:
		return err_set(e, GW_NO_SOCKET, err,
			       "%s: no process listens on this socket: QEMU has exited, or this is not the socket of its -qmp option",
			       path);
	case EACCES:
	case EPERM:
		return err_set(e, GW_NO_SOCKET, err,
			       "%s: %s: run godwit as root, or as the user that runs QEMU", path,
			       strerror(err));
	case ENAMETOOLONG:
		return err_set(e, GW_NO_SOCKET, err,
			       "%s: the path is too long for a socket (107 bytes): change directory and use a relative path",
			       path);
	default:
		return err_set(e, GW_NO_SOCKET, err,
			       "%s: cannot connect: %s: is this the socket of QEMU's -qmp option?",
			       path, strerror(err));
	}
}

/* Shows the first bytes that came instead of a greeting. */
static int qmp_not_qmp(struct qmp *q, const char *path, struct err *e)
{
	const struct qmp_stream *s = &q->stream;
	size_t len = s->end - s->start < 40 ? s->end - s->start : 40;
	char raw[41], shown[41];

	memcpy(raw, s->buf + s->start, len);
	raw[len] = '\0';
	return err_set(e, GW_NOT_QEMU, EPROTO,
		       "%s: the socket does not speak QMP, it sent \"%s\"%s: give the socket of QEMU's -qmp option",
		       path, one_line(shown, sizeof(shown), raw),
		       strncmp(raw, "QEMU ", 5) ? "" : " (the human monitor of -monitor)");
}

static bool qmp_set_version(struct qmp *q, json_t *greeting)
{
	json_int_t major, minor, micro;

	if (json_unpack(greeting, "{s:{s:{s:{s:I, s:I, s:I}}}}", "QMP", "version", "qemu",
			"major", &major, "minor", &minor, "micro", &micro))
		return false;
	if (major < 0 || major > 999 || minor < 0 || minor > 99 || micro < 0 || micro > 99)
		return false;
	q->version = (unsigned int)(major * 10000 + minor * 100 + micro);
	return true;
}

static int qmp_greet(struct qmp *q, const char *path, uint64_t deadline, struct err *e)
{
	json_auto_t *greeting = NULL;
	int r;

	q->stream.heed_stop = true;
	r = qmp_stream_next(&q->stream, deadline, &greeting);
	q->stream.heed_stop = false;
	switch (r) {
	case 0:
		break;
	case -EINTR:
		return stop_err(e);
	case -ETIMEDOUT:
		return qmp_no_greeting(path, e);
	case -EPROTO:
		return qmp_not_qmp(q, path, e);
	case -ECONNRESET:
		return err_set(e, GW_NOT_QEMU, EPROTO,
			       "%s: closed without a QMP greeting: is this the socket of QEMU's -qmp option, and does QEMU still run?",
			       path);
	default:
		return qmp_fail(q, r, path, e);
	}
	if (!qmp_set_version(q, greeting))
		return err_set(e, GW_NOT_QEMU, EPROTO,
			       "%s: the greeting is not QEMU's: give the socket of its -qmp option",
			       path);
	return qmp_call(q, "qmp_capabilities", NULL, NULL, e);
}

void qmp_set_timeout(struct qmp *q, unsigned int ms)
{
	q->timeout_ms = ms;
}

/* By its path only if its socket is not known, or nothing listens there any more. */
static int qmp_connect(const struct qmp_place *at, uint64_t deadline)
{
	int fd = sock_unix_connect_held(at->socket, deadline);

	return fd >= 0 || fd == -EAGAIN ? fd : sock_unix_connect_until(at->path, deadline);
}

/* Before a word is exchanged: a QEMU serves one client at a time, and this one is another's. */
static int qmp_check_peer(const struct qmp *q, const struct qmp_place *at, struct err *e)
{
	if (!at->vmm || q->peer == at->vmm)
		return 0;
	return err_set(e, GW_NO_SOCKET, ESTALE,
		       "%s: process %d listens there now, and not process %d: it is left alone",
		       at->path, (int)q->peer, (int)at->vmm);
}

int qmp_open_at(const struct qmp_place *at, unsigned int timeout_ms, struct qmp **out,
		struct err *e)
{
	uint64_t deadline = deadline_ms(timeout_ms);
	struct qmp *q = calloc(1, sizeof(*q));
	int r;

	*out = NULL;
	if (!q)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	q->timeout_ms = timeout_ms;
	q->socket = -1;
	q->stream.fd = qmp_connect(at, deadline);
	if (q->stream.fd < 0) {
		r = qmp_no_socket(at->path, -q->stream.fd, e);
	} else {
		q->peer = sock_unix_peer(q->stream.fd);
		r = qmp_check_peer(q, at, e);
		if (!r)
			r = qmp_greet(q, at->path, deadline, e);
	}
	if (r)
		qmp_close(q);
	else
		*out = q;
	return r;
}

int qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e)
{
	struct qmp_place at = { .path = path, .socket = sock_unix_hold(path) };
	int r = qmp_open_at(&at, timeout_ms, out, e);

	if (r)
		qmp_place_forget(&at);
	else
		(*out)->socket = at.socket;
	return r;
}

struct qmp_place qmp_place(const struct qmp *q, const char *path, pid_t vmm)
{
	return (struct qmp_place) {
		.path = path, .vmm = q->peer == vmm ? vmm : 0,
		.socket = q->socket < 0 ? -1 : fcntl(q->socket, F_DUPFD_CLOEXEC, 0),
	};
}

void qmp_place_forget(struct qmp_place *at)
{
	if (at->socket >= 0)
		close(at->socket);
	at->socket = -1;
}

bool qmp_place_is_taken(const struct qmp_place *at)
{
	struct stat was, is;

	return at->socket >= 0 && !fstat(at->socket, &was) && !stat(at->path, &is) &&
	       (was.st_ino != is.st_ino || was.st_dev != is.st_dev);
}
