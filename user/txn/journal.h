/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The undo journal of a source: what godwit is about to do to the VM, and how that is undone. A record is made before its
 * action, and the guardian has it then, too; whoever puts the VM back, the sender or the guardian, after success or after
 * a failure, undoes what is recorded and nothing else, in reverse. So what an operator or a manager did meanwhile stays:
 * a guest that they have stopped stays stopped, a migration that they have begun goes on.
 *
 * To undo something twice does no harm: a sender may die while it undoes, and its guardian begins anew.
 */
#ifndef GODWIT_JOURNAL_H
#define GODWIT_JOURNAL_H

#include <jansson.h>
#include <stdbool.h>

#include "err.h"
#include "vmm/qmp.h"

/**
 * struct journal
 * @records: an array, in order; what is undone is taken out. Some only say more of the action before them.
 * @pipe: to the guardian; -1: none
 * @left: the guest was left as it stands, stopped since a migration that may be somebody else's:
 *	the operator is told, and nobody may say that all is as it was
 */
struct journal {
	json_t *records;
	int pipe;
	bool left;
};

int journal_open(struct journal *j, struct err *e);
void journal_close(struct journal *j);

/*
 * A QMP command undoes it. args: stolen. setting: it concerns QEMU and not the guest, so it is also undone when the guest has
 * moved.
 */
int journal_command(struct journal *j, const char *execute, json_t *args, bool setting, struct err *e);
/* mark_make() comes next. */
int journal_mark(struct journal *j, const char *token, struct err *e);
/* `migrate` comes next. running: the guest runs now. */
int journal_migrate(struct journal *j, bool running, struct err *e);
/* QEMU has taken it, which bounds when it began: somebody else's is younger. Or it has not, and there is nothing to undo. */
int journal_accepted(struct journal *j, struct err *e);
void journal_refused(struct journal *j);
/* `migrate-continue` comes next: only from here on one that has completed can be ours. */
int journal_continue(struct journal *j, struct err *e);
/* Ours has completed: what QEMU says of it, by which it is known again. running: the guest ran when QEMU stopped it. */
int journal_completed(struct journal *j, struct qmp *q, bool running, struct err *e);
/* `stop` comes next, of a guest that runs now. */
int journal_stop(struct journal *j, struct err *e);
/* saved_open() comes next. */
int journal_saved(struct journal *j, struct err *e);
/* A line as it came from the guardian's pipe: a record, or that the last one is void. */
int journal_load(struct journal *j, const char *line);

enum undo_what { UNDO_ALL, UNDO_SETTINGS };

/**
 * journal_undo() - undo what is recorded
 * @what: UNDO_SETTINGS: the guest has moved, or may have; all else stays recorded
 * Return: 0, or of the first that failed; it and those before it are still recorded then. GW_VM_GONE: the monitor has gone,
 * which says nothing of the VM.
 */
int journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e);

#endif
