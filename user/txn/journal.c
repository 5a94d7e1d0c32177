// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "txn/journal_internal.h"

int journal_open(struct journal *j, struct err *e)
{
	j->records = json_array();
	return j->records ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

void journal_close(struct journal *j)
{
	json_decref(j->records);
	j->records = NULL;
}

#define REFUSED	"refused\n"

/*
 * Less than PIPE_BUF is written whole or not at all. A kill may cut a longer record, and an action
 * whose record is cut was not done yet.
 */
static int journal_write_all(int pipe, const char *line, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(pipe, line + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

static int journal_send(const struct journal *j, json_t *record, struct err *e)
{
	char *line = json_dumps(record, JSON_COMPACT);
	size_t len;
	int r;

	if (!line)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	len = strlen(line);
	line[len++] = '\n';	/* in place of the NUL */
	r = journal_write_all(j->pipe, line, len);
	free(line);
	return r ? err_set(e, GW_INTERNAL, -r,
			   "the guardian has exited (%s): without it a sender that is killed would leave the guest stopped",
			   strerror(-r)) : 0;
}

static int journal_put(struct journal *j, json_t *record, struct err *e)
{
	if (!record || json_array_append(j->records, record)) {
		json_decref(record);
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	json_decref(record);
	return j->pipe < 0 ? 0 : journal_send(j, record, e);
}

int journal_command(struct journal *j, const char *execute, json_t *args, bool setting,
		    struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:s, s:o, s:b}", "undo", "command",
					"execute", execute, "arguments", args,
					"setting", setting), e);
}

int journal_mark(struct journal *j, const char *token, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:s}", "undo", "mark", "token", token), e);
}

int journal_migrate(struct journal *j, bool running, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:b, s:I}", "undo", "migrate", "running", running,
					"began", (json_int_t)now_ns()), e);
}

int journal_accepted(struct journal *j, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:I}", "more", "accepted", "at",
					(json_int_t)now_ns()), e);
}

void journal_drop_last(struct journal *j)
{
	if (json_array_size(j->records))
		json_array_remove(j->records, json_array_size(j->records) - 1);
}

void journal_refused(struct journal *j)
{
	journal_drop_last(j);
	if (j->pipe >= 0)
		journal_write_all(j->pipe, REFUSED, strlen(REFUSED));
}

int journal_continue(struct journal *j, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:I}", "more", "continue", "since",
					(json_int_t)now_ns()), e);
}

json_t *journal_identity(const struct migration_status *m)
{
	return json_pack("{s:I, s:I, s:I}", "total-ms", (json_int_t)m->total_ms,
			 "downtime-ms", (json_int_t)m->downtime_ms, "bytes", (json_int_t)m->bytes);
}

int journal_completed(struct journal *j, struct qmp *q, bool running, struct err *e)
{
	struct migration_status m;
	int r = migration_query(q, &m, e);

	return r ? r : journal_put(j, json_pack("{s:s, s:o, s:b}", "more", "completed", "identity",
						journal_identity(&m), "running", running), e);
}

/* The last one counts: a sender makes one journal, and completes one migration at most. */
static const json_t *journal_find_identity(const json_t *records)
{
	const json_t *found = NULL, *record;
	size_t i;

	json_array_foreach(records, i, record) {
		const char *more = json_string_value(json_object_get(record, "more"));

		if (more && !strcmp(more, "completed"))
			found = json_object_get(record, "identity");
	}
	return found;
}

bool journal_may_be_the_one(const json_t *records, const struct migration_status *m)
{
	const json_t *then = journal_find_identity(records);
	json_auto_t *now = journal_identity(m);

	/*
	 * Some QEMUs (7.2) say "completed" just before they know how long it took: they may have
	 * been asked in between.
	 */
	if (then && json_integer_value(json_object_get(then, "total-ms")) <= 0)
		return json_equal(json_object_get(then, "bytes"), json_object_get(now, "bytes"));
	return !then || json_equal(then, now);
}

int journal_links(struct journal *j, json_t *links, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:o}", "undo", "links", "links", links), e);
}

int journal_stop(struct journal *j, const struct migration_status *last, struct err *e)
{
	return journal_put(j, json_pack("{s:s, s:s, s:o}", "undo", "stop", "last", last->status,
					"identity", journal_identity(last)), e);
}

int journal_save(struct journal *j, struct err *e)
{
	return journal_put(j, json_pack("{s:s}", "undo", "saved"), e);
}

int journal_load(struct journal *j, const char *line)
{
	json_t *record;

	if (!strcmp(line, REFUSED)) {
		journal_drop_last(j);
		return 0;
	}
	record = json_loads(line, 0, NULL);
	return record ? json_array_append_new(j->records, record) : -1;
}
