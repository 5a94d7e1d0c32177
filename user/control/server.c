// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/say.h"
#include "base/stop.h"
#include "control/server.h"

int control_open(struct control *c, const char *path, struct err *e)
{
	char own[64];
	int r;

	snprintf(own, sizeof(own), CONTROL_DIR "/%d.sock", (int)getpid());
	if (!path && mkdir(CONTROL_DIR, 0700) < 0 && errno != EEXIST)
		r = -errno;
	else
		r = line_socket_listen(&c->socket, path ? path : own);
	if (r && path)
		return err_set(e, GW_USAGE, -r, "--control %s: %s: give the path of a new socket, of at most 107 bytes, in a directory that you can write to",
			       path, strerror(-r));
	if (r)
		say("cannot make the control socket %s (%s): \"godwit cancel\" and \"godwit set\" will not find this migration; give --control PATH to put the socket elsewhere",
			own, strerror(-r));
	return 0;
}

/* what: stolen */
static void server_answer(char *answer, const char *kind, json_t *what)
{
	json_auto_t *j = json_pack("{s:o}", kind, what);
	size_t len = j ? json_dumpb(j, answer, LINE_SOCKET_LINE - 1, JSON_COMPACT) : 0;

	if (!len || len > LINE_SOCKET_LINE - 1)
		len = (size_t)snprintf(answer, LINE_SOCKET_LINE,
				       "{\"error\":{\"exit\":%d,\"message\":\"the answer is too long\"}}",
				       GW_INTERNAL);
	answer[len] = '\0';
}

static void server_answer_error(char *answer, const struct err *e)
{
	server_answer(answer, "error",
		      json_pack("{s:i, s:o}", "exit", (int)e->exit, "message",
				text_to_json(e->text)));
}

static bool server_query(struct control *c, char *answer)
{
	server_answer(answer, "return",
		      json_pack("{s:i, s:i, s:o, s:o, s:s, s:i, s:o}", "pid", (int)getpid(),
				"vm", (int)c->vm_pid, "qmp", path_to_json(c->qmp_path),
				"to", text_to_json(c->addr),
				"phase", c->report->phase, "round", (int)c->report->round,
				"limits", limits_to_json(c->limits)));
	return true;
}

static int server_check_postcopy(const struct control *c, const struct limits *new, struct err *e)
{
	const struct err *why = c->no_postcopy;

	if (new->postcopy == c->limits->postcopy)
		return 0;
	/* The round may be cut already, and what is left of it would stop the guest for long. */
	if (c->limits->postcopy == POSTCOPY_NOW)
		return err_set(e, GW_VM_STATE, EALREADY, "too late: --postcopy now is being obeyed; \"godwit cancel\" ends the migration");
	if (strcmp(c->report->phase, "connect") && strcmp(c->report->phase, "pre-copy"))
		return err_set(e, GW_VM_STATE, EALREADY, "too late to change --postcopy: the switchover has begun");
	if (new->postcopy == POSTCOPY_OFF || !why->exit)
		return 0;
	return err_set(e, why->exit, EOPNOTSUPP, "no post-copy in this migration: %.900s", why->text);
}

static int server_check_throttle(const struct control *c, const struct limits *new, struct err *e)
{
	if (new->throttle == c->limits->throttle || !strcmp(c->report->phase, "connect") ||
	    !strcmp(c->report->phase, "pre-copy"))
		return 0;
	return err_set(e, GW_VM_STATE, EALREADY, "too late to change --throttle: the switchover has begun");
}

static bool server_set(struct control *c, const json_t *args, char *answer)
{
	struct limits new = *c->limits;
	struct err e = { 0 };
	int r = limits_from_json(&new, args, &e);

	/* Before it is known what the receiver offers, the sender itself will refuse. */
	if (!r && *c->features)
		r = codec_check(&new.compress, *c->features, &e);
	if (!r)
		r = server_check_postcopy(c, &new, &e);
	if (!r)
		r = server_check_throttle(c, &new, &e);
	if (r) {
		server_answer_error(answer, &e);
		return true;
	}
	*c->limits = new;
	atomic_store(c->compress, codec_wish_word(&new.compress));
	pace_set(c->pace, (uint64_t)c->limits->bandwidth_mib << 20);
	server_answer(answer, "return", limits_to_json(c->limits));
	return true;
}

/* control_close() answers at the end, unless it is too late to cancel. */
static bool server_cancel(const struct control *c, char *answer)
{
	const bool postcopy = !strcmp(c->report->phase, "post-copy");
	struct err e = { 0 };

	if (stop_request(STOP_COMMAND))
		return false;
	err_set(&e, GW_NO_MIGRATION, EALREADY, "too late to cancel: %s",
		postcopy ? "the guest runs at the destination, and lacks RAM that comes from here" :
		"the device state is on its way, and only the destination can run the guest");
	server_answer_error(answer, &e);
	return true;
}

bool control_answer(void *arg, const char *line, char answer[LINE_SOCKET_LINE])
{
	json_auto_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	const char *what = json_string_value(json_object_get(j, "execute"));
	struct control *c = arg;
	struct err e = { 0 };

	if (what && !strcmp(what, "query"))
		return server_query(c, answer);
	if (what && !strcmp(what, "set"))
		return server_set(c, json_object_get(j, "arguments"), answer);
	if (what && !strcmp(what, "cancel"))
		return server_cancel(c, answer);
	err_set(&e, GW_USAGE, EINVAL, "send one line of JSON: {\"execute\": \"query\"}, or \"set\" with \"arguments\", or \"cancel\"");
	server_answer_error(answer, &e);
	return true;
}

void control_serve(struct control *c)
{
	line_socket_step(&c->socket, control_answer, c);
}

void control_close(struct control *c, const struct err *outcome)
{
	char answer[LINE_SOCKET_LINE];

	if (c->socket.lfd < 0)
		return;
	/* Clients that have asked just now get the outcome, too. */
	control_serve(c);
	server_answer(answer, "return",
		      json_pack("{s:i, s:s, s:o}", "exit", (int)outcome->exit,
				"status", gw_exit_name(outcome->exit),
				"message", text_to_json(outcome->text)));
	line_socket_answer_all(&c->socket, answer);
	line_socket_close(&c->socket);
}
