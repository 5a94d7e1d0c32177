// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "devstate/migration.h"
#include "devstate/save.h"
#include "qmp/chardev.h"
#include "txn/journal_internal.h"
#include "txn/mark.h"

#define NAP_MS		5
#define CANCEL_MS	30000	/* QEMU may have to give up a write first */
#define RESUME_MS	1000	/* a "failed" or "cancelled" QEMU lets the guest run by itself */
#define SLACK_NS	200000000ull	/* QEMU counts from CLOCK_REALTIME, and in ms */
#define UNANSWERED_NS	60000000000ull
#define SOON_NS		10000000000ull

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
	say("the guest is stopped after a migration that may not be godwit's: continue it (cont) if it runs nowhere else");
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
	char now[64] = "";
	bool stands;
	int r = journal_end_migration(q, j, i, &m, e);

	if (r || m.under_way)
		return r;
	while (!(r = migration_vm_status(q, now, sizeof(now), e)) &&
	       !strcmp(now, "finish-migrate") && now_ns() < deadline)
		nap_ms(NAP_MS);
	stands = !strcmp(now, "postmigrate") ||
		 /* It was reset behind that; one that was never started may be so, too. */
		 (!strcmp(now, "prelaunch") &&
		  json_is_true(json_object_get(json_array_get(j->records, i), "running")));
	if (!r && stands && !strcmp(m.status, "completed"))
		return journal_undo_completed(q, j, i, &m, e);
	if (!r && !strcmp(now, "finish-migrate"))
		r = err_set(e, GW_TIMEOUT, ETIMEDOUT,
			    "QEMU has ended its migration (\"%s\") and does not let the guest run",
			    m.status);
	return r;
}

/*
 * "prelaunch": it was reset since, by itself, at the moment in which it was stopped, or by an
 * operator: whoever resets a guest that runs has it run. false: it may have been sent away before
 * that, as QEMU has begun a migration since, or the record does not tell.
 */
static int journal_was_only_reset(struct qmp *q, const json_t *record, bool *only, struct err *e)
{
	const char *last = json_string_value(json_object_get(record, "last"));
	json_auto_t *now = NULL;
	struct migration_status m;
	int r = migration_query(q, &m, e);

	if (!r)
		now = journal_identity(&m);
	*only = !r && last && !strcmp(last, m.status) &&
		json_equal(json_object_get(record, "identity"), now);
	return r;
}

/*
 * Not after a foreign migration: that guest is "postmigrate", and runs elsewhere, or is in a file,
 * whether it was reset since or not. What else stops it now, or has it run, is not godwit's.
 */
static int journal_undo_stop(struct qmp *q, struct journal *j, size_t i, struct err *e)
{
	uint64_t deadline = deadline_ms(CANCEL_MS);
	bool runs_on;
	char now[64];
	int r;

	/* While QEMU saves its devices it is "save-vm", and answers afterwards. */
	while (!(r = migration_vm_status(q, now, sizeof(now), e)) && !strcmp(now, "save-vm") &&
	       now_ns() < deadline)
		nap_ms(NAP_MS);
	if (!r && !strcmp(now, "save-vm"))
		return err_set(e, GW_TIMEOUT, ETIMEDOUT, "QEMU still saves its devices");
	runs_on = !r && !strcmp(now, "paused");
	if (!r && !strcmp(now, "prelaunch"))
		r = journal_was_only_reset(q, json_array_get(j->records, i), &runs_on, e);
	if (runs_on)
		return qmp_call(q, "cont", NULL, NULL, e);
	if (r || (strcmp(now, "postmigrate") && strcmp(now, "prelaunch") &&
		  strcmp(now, "finish-migrate")))
		return r;
	j->left = true;
	say("the guest is left stopped: its QEMU is \"%s\", as of a guest that another client has saved to a file or moved since godwit stopped it. Continue it (cont) if it is to run here and runs nowhere else",
	    now);
	return 0;
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
		say("QEMU refuses to restore its setting (%s): %s", execute,
			why.text);
		return 0;
	}
	return r ? err_set(e, why.exit, -r, "%s", why.text) : 0;
}

static bool journal_is_dead(const json_t *chardevs, const char *label)
{
	json_t *chardev;
	size_t i;

	json_array_foreach(chardevs, i, chardev) {
		const char *its = json_string_value(json_object_get(chardev, "label"));

		if (its && !strcmp(its, label))
			return chardev_is_dead(chardev);
	}
	return false;
}

static int journal_undo_links(struct qmp *q, const json_t *record, struct err *e)
{
	json_auto_t *chardevs = NULL;
	json_t *link;
	size_t i;
	int r = qmp_call(q, "query-chardev", NULL, &chardevs, e);

	json_array_foreach(json_object_get(record, "links"), i, link) {
		const char *label = json_string_value(json_object_get(link, "chardev"));
		struct err why = { 0 };

		if (r || !label || !journal_is_dead(chardevs, label))
			continue;
		r = qmp_call(q, "set_link", json_pack("{s:O, s:b}", "name",
						      json_object_get(link, "name"), "up", 0),
			     NULL, &why);
		/* It may have been unplugged. */
		if (r && why.exit == GW_QMP)
			r = 0;
		else if (r)
			err_set(e, why.exit, -r, "%s", why.text);
	}
	return r;
}

static int journal_undo_one(struct qmp *q, struct journal *j, size_t i, struct err *e)
{
	const json_t *record = json_array_get(j->records, i);
	const char *undo = json_string_value(json_object_get(record, "undo"));

	if (!strcmp(undo, "migrate"))
		return journal_undo_migrate(q, j, i, e);
	if (!strcmp(undo, "stop"))
		return journal_undo_stop(q, j, i, e);
	if (!strcmp(undo, "links"))
		return journal_undo_links(q, record, e);
	if (!strcmp(undo, "mark"))
		return mark_remove(q, json_string_value(json_object_get(record, "token")), e);
	if (!strcmp(undo, "saved")) {
		save_remove_fdset(q);
		return 0;
	}
	return journal_undo_command(q, record, e);
}

static bool journal_is(const json_t *record, const char *undo)
{
	const char *is = json_string_value(json_object_get(record, "undo"));

	return is && !strcmp(is, undo);
}

int journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e)
{
	for (size_t i = json_array_size(j->records); i-- > 0;) {
		const json_t *record = json_array_get(j->records, i);
		bool setting = json_is_true(json_object_get(record, "setting"));
		/*
		 * What stands behind it may belong to a record before it: links come up between
		 * QEMU's answer to `migrate` and what goes on from there.
		 */
		bool apart = setting || journal_is(record, "links");
		int r;

		if (!json_object_get(record, "undo"))
			continue;	/* it adds to the record before it */
		if (what == UNDO_SETTINGS && !setting)
			continue;	/* a later call may have to undo it */
		r = journal_undo_one(q, j, i, e);
		if (r)
			return r;
		if (apart)
			json_array_remove(j->records, i);
		while (!apart && json_array_size(j->records) > i)
			journal_drop_last(j);
	}
	return 0;
}
