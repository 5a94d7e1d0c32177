// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each command carries a number as "id". A reply with an older number is the late answer to a
 * command that timed out, and is dropped; a newer number, or none, is a protocol error. After the
 * socket closed or sent something malformed, every call fails at once; qmp_event() still returns
 * the events that were read before.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "net/sock.h"
#include "qmp/qmp_internal.h"

static bool qmp_ended_midway(const struct qmp *q)
{
	return q->stream.start != q->stream.end;
}

int qmp_fail(struct qmp *q, int r, const char *what, struct err *e)
{
	if (r == -ETIMEDOUT)
		return err_set(e, GW_TIMEOUT, ETIMEDOUT,
			       "%s: QEMU did not reply for %u ms: its main loop hangs (storage that does not answer?): try again when QEMU replies",
			       what, q->timeout_ms);
	q->broken = r;
	if (r == -ENOMEM)
		return err_set(e, GW_INTERNAL, ENOMEM, "%s: out of memory", what);
	if (r == -EPROTO)
		return err_set(e, GW_NOT_QEMU, EPROTO,
			       "%s: the QMP socket sent %s: is the socket QEMU's, without a proxy in between?",
			       what, q->stream.complaint);
	return err_set(e, GW_VM_GONE, -r,
		       "%s: QEMU closed its QMP socket%s: if it has exited, its own messages say why", what,
		       qmp_ended_midway(q) ? " in the middle of a message" : "");
}

static int qmp_malformed(struct qmp *q, const char *complaint, const char *what, struct err *e)
{
	q->stream.complaint = complaint;
	return qmp_fail(q, -EPROTO, what, e);
}

static int qmp_keep_event(struct qmp *q, json_t *msg, const char *what, struct err *e)
{
	int r = qmp_events_add(&q->events, msg, q->stream.line_bytes);

	if (r == -EPROTO)
		return qmp_malformed(q, "a malformed event", what, e);
	return r ? qmp_fail(q, r, what, e) : 0;
}

/* The command as one line, for free(); NULL: out of memory. args: stolen. */
static char *qmp_command_line(unsigned int id, const char *command, json_t *args, size_t *len)
{
	json_auto_t *msg = json_pack("{s:s, s:I}", "execute", command, "id", (json_int_t)id);
	char *text;

	/* json_pack() would take a missing value for an error. */
	if (args && json_object_set_new(msg, "arguments", args))
		return NULL;
	text = json_dumps(msg, JSON_COMPACT);
	if (!text)
		return NULL;
	*len = strlen(text) + 1;
	text[*len - 1] = '\n';	/* in place of the NUL */
	return text;
}

/*
 * A command cannot be sent. What QEMU has said before it closed its socket is there still, and may
 * be RESUME or SHUTDOWN: qmp_event() returns it.
 */
static void qmp_read_last(struct qmp *q, const char *command, uint64_t deadline)
{
	struct err ignored = { 0 };
	json_t *msg;
	int r = 0;

	while (!r && now_ns() < deadline && !(r = qmp_stream_next(&q->stream, 0, &msg))) {
		if (qmp_is_event(msg))
			r = qmp_keep_event(q, msg, command, &ignored);
		else
			json_decref(msg);
	}
	/* It is not known what comes behind that. */
	if (r == -EPROTO || r == -ENOMEM)
		q->broken = r;
}

static int qmp_send_command(struct qmp *q, const char *command, json_t *args, int fd,
			    uint64_t deadline, struct err *e)
{
	char *text;
	size_t len;
	int r;

	q->begun = NULL;
	if (q->broken) {
		json_decref(args);
		return qmp_fail(q, q->broken, command, e);
	}
	text = qmp_command_line(q->id + 1, command, args, &len);
	if (!text)
		return err_set(e, GW_INTERNAL, ENOMEM, "%s: out of memory", command);
	r = fd < 0 ? sock_send(q->stream.fd, text, len, deadline) :
		     sock_send_fd(q->stream.fd, text, len, fd, deadline);
	free(text);
	if (!r) {
		q->id++;
		q->owed++;
		return 0;
	}
	r = qmp_fail(q, r, command, e);
	q->broken = r;		/* on a timeout, too: half a command has been sent */
	qmp_read_last(q, command, deadline);
	return r;
}

static int qmp_refused(const char *command, const json_t *error, struct err *e)
{
	const char *class = json_string_value(json_object_get(error, "class"));
	const char *desc = json_string_value(json_object_get(error, "desc"));
	char text[512], short_class[64];

	return err_set(e, GW_QMP, EREMOTEIO, "QEMU refused \"%s\": %s (%s)", command,
		       one_line(text, sizeof(text), desc ? desc : "QEMU does not say why"),
		       one_line(short_class, sizeof(short_class), class ? class : "no class"));
}

/*
 * Which of the commands with ids from first on does msg answer? Counted from 1; 0: an older
 * command; -EPROTO: none.
 */
static int qmp_which_reply(struct qmp *q, unsigned int first, const json_t *msg)
{
	const json_t *id = json_object_get(msg, "id");
	const json_t *ret = json_object_get(msg, "return"), *error = json_object_get(msg, "error");
	double n = json_number_value(id);

	if (!ret == !error || !q->owed)
		return -EPROTO;
	q->owed--;
	/* An error without id: QEMU could not parse the command that was sent last. */
	if (!id && error)
		return (int)(q->id - first) + 1;
	if (!json_is_number(id) || !(n >= 1 && n <= q->id))
		return -EPROTO;
	return n < first ? 0 : (int)(n - first) + 1;
}

/*
 * The next reply to one of the commands with ids from first on. Events that come before go to the
 * queue, late replies to older commands are dropped. Return: which command, from 1, or -errno.
 */
static int qmp_wait_reply(struct qmp *q, unsigned int first, const char *command, uint64_t deadline,
			  json_t **reply, struct err *e)
{
	do {
		json_t *msg;
		int r = qmp_stream_next(&q->stream, deadline, &msg);

		if (r)
			return qmp_fail(q, r, command, e);
		if (qmp_is_event(msg)) {
			r = qmp_keep_event(q, msg, command, e);
			if (r)
				return r;
			continue;
		}
		r = qmp_which_reply(q, first, msg);
		if (r > 0) {
			*reply = msg;
			return r;
		}
		json_decref(msg);
		if (r < 0)
			return qmp_malformed(q, "a reply to no command", command, e);
	} while (now_ns() < deadline);	/* a flood of events must not extend the wait */
	return qmp_fail(q, -ETIMEDOUT, command, e);
}

int qmp_call_fd(struct qmp *q, const char *command, json_t *args, int fd, json_t **ret,
		struct err *e)
{
	uint64_t deadline = deadline_ms(q->timeout_ms);
	json_auto_t *reply = NULL;
	const json_t *error;
	int r;

	if (ret)
		*ret = NULL;
	r = qmp_send_command(q, command, args, fd, deadline, e);
	if (!r)
		r = qmp_wait_reply(q, q->id, command, deadline, &reply, e);
	if (r < 0)
		return r;
	error = json_object_get(reply, "error");
	if (error)
		return qmp_refused(command, error, e);
	if (ret)
		*ret = json_incref(json_object_get(reply, "return"));
	return 0;
}

static int qmp_take_one(struct qmp_batch *b, const json_t *reply, struct err *e)
{
	const json_t *error = json_object_get(reply, "error");

	if (!b->ret)
		b->ret = json_incref(json_object_get(reply, "return"));
	return error && b->must ? qmp_refused(b->command, error, e) : 0;
}

/* Sends n commands, then reads their n replies; QEMU replies in order, if it replies at all. */
static int qmp_call_some(struct qmp *q, struct qmp_batch *b, size_t n, struct err *e)
{
	unsigned int first = q->id + 1;
	int r = 0, refused = 0;

	for (size_t i = 0; i < n; i++) {
		json_t *args = b[i].args;

		b[i].args = NULL;
		if (!r)
			r = qmp_send_command(q, b[i].command, args, -1, deadline_ms(q->timeout_ms),
					     e);
		else
			json_decref(args);
	}
	for (size_t left = n; !r && left; left--) {
		json_auto_t *reply = NULL;
		int which = qmp_wait_reply(q, first, b[n - left].command,
					   deadline_ms(q->timeout_ms), &reply, e);

		if (which < 0)
			r = which;
		else if (!refused)
			refused = qmp_take_one(&b[which - 1], reply, e);
	}
	/* Of two replies to one command the second took another's turn. */
	for (size_t i = 0; !r && !refused && i < n; i++)
		if (b[i].must && !b[i].ret)
			r = qmp_malformed(q, "no reply to a command", b[i].command, e);
	return refused ? refused : r;
}

#define QMP_BATCH	32u	/* commands at a time: their text fits a socket buffer */

int qmp_call_all(struct qmp *q, struct qmp_batch *b, size_t n, struct err *e)
{
	int r = 0;

	for (size_t i = 0; i < n; i++)
		b[i].ret = NULL;
	for (size_t i = 0; i < n; i += QMP_BATCH) {
		size_t some = n - i < QMP_BATCH ? n - i : QMP_BATCH;

		if (!r)
			r = qmp_call_some(q, b + i, some, e);
		for (size_t j = i; r && j < i + some; j++) {
			json_decref(b[j].args);
			b[j].args = NULL;
		}
	}
	return r;
}

int qmp_begin(struct qmp *q, const char *command, json_t *args, struct err *e)
{
	int r = qmp_send_command(q, command, args, -1, deadline_ms(q->timeout_ms), e);

	if (!r)
		q->begun = command;
	return r;
}

int qmp_take_reply(struct qmp *q, json_t **ret, struct err *e)
{
	for (;;) {
		json_auto_t *msg = NULL;
		int r = q->broken ? q->broken : qmp_stream_next(&q->stream, 0, &msg);

		if (r == -ETIMEDOUT && !q->broken)
			return 0;
		if (r)
			return qmp_fail(q, r, q->begun, e);
		if (qmp_is_event(msg)) {
			r = qmp_keep_event(q, json_incref(msg), q->begun, e);
			if (r)
				return r;
			continue;
		}
		r = qmp_which_reply(q, q->id, msg);
		if (r < 0)
			return qmp_malformed(q, "a reply to no command", q->begun, e);
		if (!r)
			continue;
		if (json_object_get(msg, "error"))
			return qmp_refused(q->begun, json_object_get(msg, "error"), e);
		*ret = json_incref(json_object_get(msg, "return"));
		return 1;
	}
}

bool qmp_answered(const struct qmp *q)
{
	return !q->owed;
}

int qmp_call(struct qmp *q, const char *command, json_t *args, json_t **ret, struct err *e)
{
	return qmp_call_fd(q, command, args, -1, ret, e);
}

int qmp_event(struct qmp *q, uint64_t deadline, struct qmp_event *ev, struct err *e)
{
	static const char what[] = "waiting for an event";

	while (!qmp_events_take(&q->events, ev)) {
		json_t *msg;
		int r = q->broken ? q->broken : qmp_stream_next(&q->stream, deadline, &msg);

		if (r == -ETIMEDOUT && !q->broken)
			return 0;
		if (r)
			return qmp_fail(q, r, what, e);
		if (qmp_is_event(msg)) {
			r = qmp_keep_event(q, msg, what, e);
			if (r)
				return r;
			continue;
		}
		r = qmp_which_reply(q, q->id, msg);	/* a late one, or that to qmp_begin() */
		if (r > 0 && q->begun && json_object_get(msg, "error"))
			r = qmp_refused(q->begun, json_object_get(msg, "error"), e);
		else if (r < 0)
			r = qmp_malformed(q, "a reply to no command", what, e);
		json_decref(msg);
		if (r < 0)
			return r;
	}
	return 1;
}

unsigned int qmp_version(const struct qmp *q)
{
	return q->version;
}

pid_t qmp_peer_pid(const struct qmp *q)
{
	return q->peer;
}

int qmp_fd(const struct qmp *q)
{
	return q->stream.fd;
}

void qmp_close(struct qmp *q)
{
	if (!q)
		return;
	if (q->stream.fd >= 0)
		close(q->stream.fd);
	if (q->socket >= 0)
		close(q->socket);
	qmp_stream_free(&q->stream);
	qmp_events_free(&q->events);
	free(q);
}

int qmp_monitor(struct qmp *q, const char *line, char **text, struct err *e)
{
	json_auto_t *ret = NULL;
	struct err own = { 0 };
	int r = qmp_call(q, "human-monitor-command", json_pack("{s:s}", "command-line", line), &ret,
			 &own);
	const char *output = json_string_value(ret);

	*text = NULL;
	if (r && own.exit != GW_QMP) {
		*e = own;
		return r;
	}
	if (!output)
		return 0;
	*text = strdup(output);
	return *text ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}
