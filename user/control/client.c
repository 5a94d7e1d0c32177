// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/stop.h"
#include "base/text.h"
#include "control/client.h"
#include "control/server.h"

#define QUERY_MS	2000
#define ANSWER_MS	60000	/* a cancel may have to wait for QEMU */

/**
 * struct found - the migrations that match
 * @path: the socket of the last one
 * @list: all of them, for the message
 * @silent: the socket of a sender that did not answer
 */
struct found {
	unsigned int nr;
	char path[256];
	char list[600];
	char silent[256];
};

static int client_no_answer(const char *path, int err, struct err *e)
{
	switch (err) {
	case EINTR:
		return stop_err(e);
	case ETIMEDOUT:
		return err_set(e, GW_TIMEOUT, err, "%s: the sender does not answer, and may be waiting for QEMU: try again, or send it SIGINT",
			       path);
	case ECONNRESET:
		return err_set(e, GW_NO_MIGRATION, err, "%s: the migration ended and the sender sent no answer: see the output of \"godwit send\"",
			       path);
	default:
		return err_set(e, GW_NO_MIGRATION, err, "%s: %s: make sure that \"godwit send\" runs, and be root or its user",
			       path, strerror(err));
	}
}

/* The sender's "error" becomes *e. */
static int client_take_answer(const char *path, const char *line, json_t **ret, struct err *e)
{
	json_auto_t *j = json_loads(line, 0, NULL);
	const json_t *error = json_object_get(j, "error");
	const char *text = json_string_value(json_object_get(error, "message"));
	json_int_t exit = json_integer_value(json_object_get(error, "exit"));

	*ret = json_incref(json_object_get(j, "return"));
	if (*ret)
		return 0;
	if (!text || exit <= GW_OK || exit >= GW_EXITS)
		return err_set(e, GW_NO_MIGRATION, EPROTO, "%s: the process that answers is no \"godwit send\" of this version",
			       path);
	return err_set(e, (enum gw_exit)exit, EINVAL, "%s", text);
}

static int client_ask_at(const char *path, const char *what, json_t *args, unsigned int ms,
			 json_t **ret, struct err *e)
{
	json_auto_t *j = json_pack("{s:s, s:o*}", "execute", what, "arguments", args);
	char answer[LINE_SOCKET_LINE], *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
	int r;

	*ret = NULL;
	if (!line)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = line_socket_ask(path, line, answer, deadline_ms(ms));
	free(line);
	return r ? client_no_answer(path, -r, e) : client_take_answer(path, answer, ret, e);
}

static bool client_fits(const struct control_which *which, const char *qmp_path,
			const json_t *query)
{
	char buf[PATH_MAX];
	const char *qmp = path_from_json(json_object_get(query, "qmp"), buf, sizeof(buf));

	if (which->vm_pid && json_integer_value(json_object_get(query, "vm")) != which->vm_pid)
		return false;
	return !qmp_path || (qmp && !strcmp(qmp, qmp_path));
}

static void client_query(const struct control_which *which, const char *qmp_path, const char *path,
			 struct found *f)
{
	char buf[PATH_MAX], shown[PATH_MAX];
	json_auto_t *query = NULL;
	struct err e = { 0 };
	const char *qmp;
	size_t len = strlen(f->list);

	if (client_ask_at(path, "query", NULL, QUERY_MS, &query, &e)) {
		if (e.exit == GW_TIMEOUT)
			snprintf(f->silent, sizeof(f->silent), "%s", path);
		return;
	}
	if (!client_fits(which, qmp_path, query))
		return;
	f->nr++;
	qmp = path_from_json(json_object_get(query, "qmp"), buf, sizeof(buf));
	snprintf(f->path, sizeof(f->path), "%s", path);
	snprintf(f->list + len, sizeof(f->list) - len, "%s--pid %lld (%s, to %s)", len ? ", " : "",
		 (long long)json_integer_value(json_object_get(query, "vm")),
		 one_line(shown, sizeof(shown), qmp ? qmp : "?"),
		 json_string_value(json_object_get(query, "to")));
}

static int client_find(const struct control_which *which, struct found *f, struct err *e)
{
	char real[PATH_MAX];
	bool resolved = which->qmp_path && realpath(which->qmp_path, real);
	const char *qmp_path = resolved ? real : which->qmp_path;
	glob_t g;

	if (!glob(CONTROL_DIR "/*.sock", 0, NULL, &g))
		for (size_t i = 0; i < g.gl_pathc; i++)
			client_query(which, qmp_path, g.gl_pathv[i], f);
	globfree(&g);
	if (f->nr == 1)
		return 0;
	if (f->nr)
		return err_set(e, GW_NO_MIGRATION, EEXIST, "%u migrations are under way, select one: %s", f->nr,
			       f->list);
	if (*f->silent)
		return client_no_answer(f->silent, ETIMEDOUT, e);
	return err_set(e, GW_NO_MIGRATION, ENOENT, "no %smigration is under way from this host: no socket in " CONTROL_DIR " answers for one; give --control PATH if its socket is elsewhere",
		       which->vm_pid || which->qmp_path ? "such " : "");
}

int control_ask(const struct control_which *which, const char *what, json_t *args, json_t **ret,
		struct err *e)
{
	struct found f = { 0 };
	int r = which->control ? 0 : client_find(which, &f, e);

	*ret = NULL;
	if (!r)
		return client_ask_at(which->control ? which->control : f.path, what, args,
				     ANSWER_MS, ret, e);
	json_decref(args);
	return r;
}
