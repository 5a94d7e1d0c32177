/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The undo journal of a source: what godwit is about to do to the VM, and how that is undone. The
 * sender writes a record, which the guardian then has as well, before it acts. The rollback, by the
 * sender or by the guardian, after success or after a failure, undoes what is recorded and nothing
 * else, in reverse order. So what an operator or a manager did meanwhile stays: a guest that they
 * have stopped stays stopped, a migration that they have begun goes on.
 *
 * To undo something twice does no harm: a sender may die while it undoes, and its guardian begins
 * anew.
 */
#ifndef GODWIT_JOURNAL_H
#define GODWIT_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "qmp/qmp.h"

struct migration_status;

/**
 * struct journal
 * @records: an array, in order; what is undone is taken out. Some records only add to the action
 *	before them.
 * @pipe: to the guardian; -1: none
 * @left: the guest was left as it stands, stopped by what may not be godwit's (a migration, a save
 *	to a file): the operator is told, and no message may claim that all is as it was
 */
struct journal {
	json_t *records;
	int pipe;
	bool left;
};

int journal_open(struct journal *j, struct err *e);
void journal_close(struct journal *j);

/*
 * A QMP command undoes the next action. args: stolen. setting: it concerns QEMU and not the guest,
 * so it is undone also when the guest has moved.
 */
int journal_command(struct journal *j, const char *execute, json_t *args, bool setting,
		    struct err *e);
/* mark_make() comes next. */
int journal_mark(struct journal *j, const char *token, struct err *e);
/* `migrate` comes next. running: the guest runs now. */
int journal_migrate(struct journal *j, bool running, struct err *e);
/*
 * QEMU has accepted the last action, which bounds when ours began: a foreign migration is younger.
 */
int journal_accepted(struct journal *j, struct err *e);
/* QEMU has refused the last action: there is nothing to undo. */
void journal_refused(struct journal *j);
/*
 * `migrate-continue` comes next: a migration that has completed can be ours only from here on.
 */
int journal_continue(struct journal *j, struct err *e);
/*
 * Our migration has completed: records what QEMU reports of it, by which it is recognized later.
 * running: the guest ran when QEMU stopped it.
 */
int journal_completed(struct journal *j, struct qmp *q, bool running, struct err *e);
/*
 * Is it the migration that has completed by these records? true also where they do not tell.
 */
bool journal_may_be_the_one(const json_t *records, const struct migration_status *m);
/*
 * The links of these netdevs, whose backends nothing is connected to, come up next: @links is an
 * array of {"name", "chardev"}; stolen. QEMU changes a link by itself when a backend comes or goes,
 * so that only those are taken down again that are dead still.
 */
int journal_links(struct journal *j, json_t *links, struct err *e);
/* `stop` comes next, of a guest that runs now. last: QEMU's migration before. */
int journal_stop(struct journal *j, const struct migration_status *last, struct err *e);
/* save_open() comes next. */
int journal_save(struct journal *j, struct err *e);
/* A line as it came from the guardian's pipe: a record, or that the last record is void. */
int journal_load(struct journal *j, const char *line);

enum undo_what { UNDO_ALL, UNDO_SETTINGS };

/**
 * journal_undo() - undo what is recorded
 * @what: UNDO_SETTINGS: the guest has moved, or may have; all else stays recorded
 * Return: 0, or -errno of the first record that failed; that record and those before it are still
 * recorded then. GW_VM_GONE: the monitor has gone, which proves nothing about the VM.
 */
int journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e);

#endif
