// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "devstate/migration.h"
#include "devstate/save.h"
#include "txn/journal.h"
#include "txn/mark.h"

#define NAP_MS		5
#define CANCEL_MS	30000	/* QEMU may have to give up a write first */
#define RESUME_MS	1000	/* a "failed" or "cancelled" QEMU lets the guest run by itself */
#define SLACK_NS	200000000ull	/* QEMU counts from CLOCK_REALTIME, and in ms */
#define UNANSWERED_NS	60000000000ull
#define SOON_NS		10000000000ull

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

static void journal_drop_last(struct journal *j)
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

/*
 * What QEMU reports of a migration at its end: a second migration of some 100 KiB hardly agrees
 * with the first in milliseconds and in bytes.
 */
static json_t *journal_identity(const struct migration_status *m)
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

int journal_stop(struct journal *j, struct err *e)
{
	return journal_put(j, json_pack("{s:s}", "undo", "stop"), e);
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

/* The record that adds this detail to record i, or NULL. */
static const json_t *journal_detail(const struct journal *j, size_t i, const char *what)
{
	const json_t *record;

	while ((record = json_array_get(j->records, ++i))) {
		const char *says = json_string_value(json_object_get(record, "more"));

		if (!says)
			return NULL;
		if (!strcmp(says, what))
			return record;
	}
	return NULL;
}

static uint64_t journal_ns(const json_t *record, const char *what)
{
	return (uint64_t)json_integer_value(json_object_get(record, what));
}

/*
 * Ours began between its record and QEMU's answer. Without an answer it may have begun later: QEMU
 * may have been blocked for as long as UNANSWERED_NS.
 */
static bool journal_is_ours(const struct journal *j, size_t i, const struct migration_status *m)
{
	const json_t *accepted = journal_detail(j, i, "accepted");
	uint64_t began = journal_ns(json_array_get(j->records, i), "began");
	uint64_t latest = accepted ? journal_ns(accepted, "at") : began + UNANSWERED_NS;
	uint64_t start = now_ns() - (uint64_t)m->total_ms * 1000000;

	return m->total_ms < 0 || (start + SLACK_NS >= began && start <= latest + SLACK_NS);
}

static int journal_end_migration(struct qmp *q, const struct journal *j, size_t i,
				 struct migration_status *m, struct err *e)
{
	uint64_t deadline = deadline_ms(CANCEL_MS);
	struct err ignored = { 0 };
	int r = migration_query(q, m, e);

	if (r || !m->under_way || !journal_is_ours(j, i, m))
		return r;
	qmp_call(q, "migrate_cancel", NULL, NULL, &ignored);
	while (!r && m->under_way && now_ns() < deadline) {
		nap_ms(NAP_MS);
		r = migration_query(q, m, e);
	}
	if (!r && m->under_way)
		return err_set(e, GW_TIMEOUT, ETIMEDOUT,
			       "QEMU does not end its migration (status \"%s\")", m->status);
	return r;
}

/*
 * A migration has completed, and the journal has no record that ours has: is it ours? Ours had
 * begun when QEMU accepted it, and was still under way when we let it continue, so it took no less
 * time than lies between the two. A foreign migration can have begun only after ours had ended,
 * hence after that moment, and does not complete so soon.
 */
static bool journal_may_be_ours(const struct journal *j, size_t i, const struct migration_status *m)
{
	const json_t *accepted = journal_detail(j, i, "accepted");
	const json_t *go_on = journal_detail(j, i, "continue");
	uint64_t stood_ns;

	if (!accepted || !go_on || now_ns() - journal_ns(go_on, "since") >= SOON_NS)
		return false;
	stood_ns = journal_ns(go_on, "since") - journal_ns(accepted, "at");
	return m->total_ms < 0 || (uint64_t)m->total_ms * 1000000 + SLACK_NS >= stood_ns;
}

/*
 * A migration has completed, and the guest is stopped since. If the migration is ours, the guest
 * runs again; if another client of QEMU's has moved the guest elsewhere meanwhile, it must not run.
 */
static int journal_undo_completed(struct qmp *q, struct journal *j, size_t i,
				  const struct migration_status *m, struct err *e)
{
	const json_t *completed = journal_detail(j, i, "completed");
	json_auto_t *now = journal_identity(m);
	bool ours = completed ? json_equal(json_object_get(completed, "identity"), now)
			      : journal_may_be_ours(j, i, m);
	const json_t *running = completed ? completed : json_array_get(j->records, i);

	if (ours)
		return json_is_true(json_object_get(running, "running")) ?
		       qmp_call(q, "cont", NULL, NULL, e) : 0;
	j->left = true;
	fprintf(stderr, "godwit: the guest is stopped after a migration that may not be godwit's: continue it (cont) if it runs nowhere else\n");
	return 0;
}

/*
 * QEMU lets the guest run by itself when its migration fails or is cancelled, unless the guest was
 * stopped before ("postmigrate", "paused"): then it stays stopped, as an operator wanted.
 */
static int journal_undo_migrate(struct qmp *q, struct journal *j, size_t i, struct err *e)
{
	uint64_t deadline = deadline_ms(RESUME_MS);
	struct migration_status m;
	char now[64];
	int r = journal_end_migration(q, j, i, &m, e);

	if (r || m.under_way)
		return r;
	while (!(r = migration_vm_status(q, now, sizeof(now), e)) &&
	       !strcmp(now, "finish-migrate") && now_ns() < deadline)
		nap_ms(NAP_MS);
	if (!r && !strcmp(now, "postmigrate") && !strcmp(m.status, "completed"))
		return journal_undo_completed(q, j, i, &m, e);
	if (!r && !strcmp(now, "finish-migrate"))
		r = err_set(e, GW_TIMEOUT, ETIMEDOUT,
			    "QEMU has ended its migration (\"%s\") and does not let the guest run",
			    m.status);
	return r;
}

/* Not after a foreign migration: that guest is "postmigrate", and runs elsewhere. */
static int journal_undo_stop(struct qmp *q, struct err *e)
{
	uint64_t deadline = deadline_ms(CANCEL_MS);
	char now[64];
	int r;

	/* While QEMU saves its devices it is "save-vm", and answers afterwards. */
	while (!(r = migration_vm_status(q, now, sizeof(now), e)) && !strcmp(now, "save-vm") &&
	       now_ns() < deadline)
		nap_ms(NAP_MS);
	if (!r && !strcmp(now, "save-vm"))
		return err_set(e, GW_TIMEOUT, ETIMEDOUT, "QEMU still saves its devices");
	return r || strcmp(now, "paused") ? r : qmp_call(q, "cont", NULL, NULL, e);
}

/*
 * What QEMU refuses while a migration is under way it may accept after that. What it refuses
 * without one it never will accept, and the operator is told.
 */
static int journal_undo_command(struct qmp *q, const json_t *record, struct err *e)
{
	const char *execute = json_string_value(json_object_get(record, "execute"));
	struct migration_status m;
	struct err why = { 0 };
	int r = qmp_call(q, execute, json_deep_copy(json_object_get(record, "arguments")), NULL,
			 &why);

	if (r && why.exit == GW_QMP && !migration_query(q, &m, e) && !m.under_way) {
		fprintf(stderr, "godwit: QEMU refuses to restore its setting (%s): %s\n", execute,
			why.text);
		return 0;
	}
	return r ? err_set(e, why.exit, -r, "%s", why.text) : 0;
}

static int journal_undo_one(struct qmp *q, struct journal *j, size_t i, struct err *e)
{
	const json_t *record = json_array_get(j->records, i);
	const char *undo = json_string_value(json_object_get(record, "undo"));

	if (!strcmp(undo, "migrate"))
		return journal_undo_migrate(q, j, i, e);
	if (!strcmp(undo, "stop"))
		return journal_undo_stop(q, e);
	if (!strcmp(undo, "mark"))
		return mark_remove(q, json_string_value(json_object_get(record, "token")), e);
	if (!strcmp(undo, "saved")) {
		save_remove_fdset(q);
		return 0;
	}
	return journal_undo_command(q, record, e);
}

int journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e)
{
	for (size_t i = json_array_size(j->records); i-- > 0;) {
		const json_t *record = json_array_get(j->records, i);
		bool setting = json_is_true(json_object_get(record, "setting"));
		int r;

		if (!json_object_get(record, "undo"))
			continue;	/* it adds to the record before it */
		if (what == UNDO_SETTINGS && !setting)
			continue;	/* a later call may have to undo it */
		r = journal_undo_one(q, j, i, e);
		if (r)
			return r;
		if (setting)
			json_array_remove(j->records, i);
		while (!setting && json_array_size(j->records) > i)
			journal_drop_last(j);
	}
	return 0;
}
