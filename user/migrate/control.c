// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/stop.h"
#include "migrate/control.h"

int control_open(struct control *c, const char *path, struct err *e)
{
	char own[64];
	int r;

	snprintf(own, sizeof(own), CONTROL_DIR "/%d.sock", (int)getpid());
	if (!path && mkdir(CONTROL_DIR, 0700) < 0 && errno != EEXIST)
		r = -errno;
	else
		r = local_listen(&c->local, path ? path : own);
	if (r && path)
		return err_set(e, GW_USAGE, -r, "--control %s: %s: give the name of a new socket, at most 107 bytes, in a directory that can be written to",
			       path, strerror(-r));
	if (r)
		fprintf(stderr, "godwit: no socket %s (%s): \"godwit cancel\" and \"godwit set\" will not find this migration; --control PATH puts it elsewhere\n",
			own, strerror(-r));
	return 0;
}

/* Takes what over. */
static void say(char *answer, const char *kind, json_t *what)
{
	json_auto_t *j = json_pack("{s:o}", kind, what);
	size_t len = j ? json_dumpb(j, answer, LOCAL_LINE - 1, JSON_COMPACT) : 0;

	if (!len || len > LOCAL_LINE - 1)
		len = (size_t)snprintf(answer, LOCAL_LINE, "{\"error\":{\"exit\":%d,\"message\":\"no room for the answer\"}}",
				       GW_INTERNAL);
	answer[len] = '\0';
}

static void say_error(char *answer, const struct err *e)
{
	say(answer, "error", json_pack("{s:i, s:s}", "exit", (int)e->exit, "message", e->text));
}

static bool query(struct control *c, char *answer)
{
	say(answer, "return", json_pack("{s:i, s:i, s:s, s:s, s:s, s:i, s:o}", "pid", (int)getpid(), "vm", (int)c->vm_pid,
					"qmp", c->qmp_path, "to", c->addr, "phase", c->report->phase,
					"round", (int)c->report->round, "limits", limits_to_json(c->limits)));
	return true;
}

static bool set(struct control *c, const json_t *args, char *answer)
{
	struct err e = { 0 };

	if (limits_from_json(c->limits, args, &e)) {
		say_error(answer, &e);
		return true;
	}
	pace_set(c->pace, (uint64_t)c->limits->bandwidth_mib << 20);
	say(answer, "return", limits_to_json(c->limits));
	return true;
}

/* Answered at the end by control_close(), unless it is too late. */
static bool cancel(char *answer)
{
	struct err e = { 0 };

	if (stop_request(STOP_COMMAND))
		return false;
	err_set(&e, GW_NO_MIGRATION, EALREADY, "too late: the device state is on its way, only the destination can run the guest now");
	say_error(answer, &e);
	return true;
}

bool control_answer(void *arg, const char *line, char answer[LOCAL_LINE])
{
	json_auto_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
	const char *what = json_string_value(json_object_get(j, "execute"));
	struct control *c = arg;
	struct err e = { 0 };

	if (what && !strcmp(what, "query"))
		return query(c, answer);
	if (what && !strcmp(what, "set"))
		return set(c, json_object_get(j, "arguments"), answer);
	if (what && !strcmp(what, "cancel"))
		return cancel(answer);
	err_set(&e, GW_USAGE, EINVAL, "one line of JSON is wanted: {\"execute\": \"query\"}, or \"set\" with \"arguments\", or \"cancel\"");
	say_error(answer, &e);
	return true;
}

void control_serve(struct control *c)
{
	local_step(&c->local, control_answer, c);
}

void control_close(struct control *c, const struct err *outcome)
{
	char answer[LOCAL_LINE];

	if (c->local.lfd < 0)
		return;
	/* Who asked just now is heard, too. */
	control_serve(c);
	say(answer, "return", json_pack("{s:i, s:s, s:s}", "exit", (int)outcome->exit, "status", gw_exit_name(outcome->exit),
					"message", outcome->text));
	local_tell(&c->local, answer);
	local_close(&c->local);
}
