// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/ask.h"
#include "migrate/control.h"

#define QUERY_MS	2000
#define ANSWER_MS	60000	/* a cancellation may have to wait for QEMU */

/**
 * struct found
 * @path: of the last one that fits
 * @list: all that fit, for the message
 * @silent: one that did not answer
 */
struct found {
	unsigned int nr;
	char path[256];
	char list[600];
	char silent[256];
};

static int no_answer(const char *path, int err, struct err *e)
{
	switch (err) {
	case EINTR:
		return stop_err(e);
	case ETIMEDOUT:
		return err_set(e, GW_TIMEOUT, err, "%s: the sender does not answer: it may be waiting for QEMU; try again, or send it SIGINT",
			       path);
	case ECONNRESET:
		return err_set(e, GW_NO_MIGRATION, err, "%s: the migration ended without an answer: look at what \"godwit send\" said", path);
	default:
		return err_set(e, GW_NO_MIGRATION, err, "%s: %s: is \"godwit send\" running, and may you (root, or its user) speak to it?",
			       path, strerror(err));
	}
}

/* An "error" of the sender becomes ours. */
static int take_answer(const char *path, const char *line, json_t **ret, struct err *e)
{
	json_auto_t *j = json_loads(line, 0, NULL);
	const json_t *error = json_object_get(j, "error");
	const char *text = json_string_value(json_object_get(error, "message"));
	json_int_t exit = json_integer_value(json_object_get(error, "exit"));

	*ret = json_incref(json_object_get(j, "return"));
	if (*ret)
		return 0;
	if (!text || exit <= GW_OK || exit >= GW_EXITS)
		return err_set(e, GW_NO_MIGRATION, EPROTO, "%s: what answers there is no \"godwit send\" of this version", path);
	return err_set(e, (enum gw_exit)exit, EINVAL, "%s", text);
}

static int ask_at(const char *path, const char *what, json_t *args, unsigned int ms, json_t **ret, struct err *e)
{
	json_auto_t *j = json_pack("{s:s, s:o*}", "execute", what, "arguments", args);
	char answer[LOCAL_LINE], *line = j ? json_dumps(j, JSON_COMPACT) : NULL;
	int r;

	*ret = NULL;
	if (!line)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = local_ask(path, line, answer, deadline_ms(ms));
	free(line);
	return r ? no_answer(path, -r, e) : take_answer(path, answer, ret, e);
}

static bool fits(const struct ask_which *which, const char *qmp_path, const json_t *query)
{
	const char *qmp = json_string_value(json_object_get(query, "qmp"));

	if (which->vm_pid && json_integer_value(json_object_get(query, "vm")) != which->vm_pid)
		return false;
	return !qmp_path || (qmp && !strcmp(qmp, qmp_path));
}

static void look_at(const struct ask_which *which, const char *qmp_path, const char *path, struct found *f)
{
	json_auto_t *query = NULL;
	struct err e = { 0 };
	size_t len = strlen(f->list);

	if (ask_at(path, "query", NULL, QUERY_MS, &query, &e)) {
		if (e.exit == GW_TIMEOUT)
			snprintf(f->silent, sizeof(f->silent), "%s", path);
		return;
	}
	if (!fits(which, qmp_path, query))
		return;
	f->nr++;
	snprintf(f->path, sizeof(f->path), "%s", path);
	snprintf(f->list + len, sizeof(f->list) - len, "%s--pid %lld (%s, to %s)", len ? ", " : "",
		 (long long)json_integer_value(json_object_get(query, "vm")),
		 json_string_value(json_object_get(query, "qmp")), json_string_value(json_object_get(query, "to")));
}

static int find(const struct ask_which *which, struct found *f, struct err *e)
{
	char real[PATH_MAX];
	const char *qmp_path = which->qmp_path && realpath(which->qmp_path, real) ? real : which->qmp_path;
	glob_t g;

	if (!glob(CONTROL_DIR "/*.sock", 0, NULL, &g))
		for (size_t i = 0; i < g.gl_pathc; i++)
			look_at(which, qmp_path, g.gl_pathv[i], f);
	globfree(&g);
	if (f->nr == 1)
		return 0;
	if (f->nr)
		return err_set(e, GW_NO_MIGRATION, EEXIST, "%u migrations are under way, say which: %s", f->nr, f->list);
	if (*f->silent)
		return no_answer(f->silent, ETIMEDOUT, e);
	return err_set(e, GW_NO_MIGRATION, ENOENT, "no %smigration is under way from here (" CONTROL_DIR " has none that may be spoken to; --control names one elsewhere)",
		       which->vm_pid || which->qmp_path ? "such " : "");
}

int ask(const struct ask_which *which, const char *what, json_t *args, json_t **ret, struct err *e)
{
	struct found f = { 0 };
	int r = which->control ? 0 : find(which, &f, e);

	*ret = NULL;
	if (r)
		json_decref(args);
	return r ? r : ask_at(which->control ? which->control : f.path, what, args, ANSWER_MS, ret, e);
}
