/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of qom_read(): the tree (qom_tree.c; qom_list.c where the human monitor does not tell
 * it), types and values (qom_props.c), and what is where in "info qtree" (qom_shown.c).
 */
#ifndef GODWIT_QOM_INTERNAL_H
#define GODWIT_QOM_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "qom/qom.h"
#include "qom/qtree.h"

int qom_no_memory(struct err *e);
int qom_too_many(const char *what, struct err *e);
/* Appends an object, if it is of a type that a guest may see. Its line and @shown are none. */
int qom_add(struct qom *t, uint32_t parent, const char *name, const char *type, struct err *e);
/* Sorts the objects from @first on, the children of one parent, by their names. */
void qom_sort(struct qom *t, unsigned int first);

/* Is it a vCPU, but not the first? Only the first is read. */
bool qom_is_further_cpu(const struct qom *t, unsigned int i);
/* The value that QEMU reported when it listed the object. NULL: none. Borrowed. */
const json_t *qom_listed(const struct qom_object *o, const char *name);

/*
 * Fills the table from the text of "info qom-tree /machine". -EPROTO: it is not of that form, and
 * the table is empty.
 */
int qom_take_tree(struct qom *t, const char *text, struct err *e);
/* Fills the table by a question for each object, and finds out which are devices. */
int qom_list_tree(struct qmp *q, struct qom *t, struct err *e);
/*
 * Lists n objects, those of[], into their @listed, several in a command if QEMU can. An object that
 * has gone has none. May reorder of[].
 */
int qom_list(struct qmp *q, struct qom *t, uint32_t *of, unsigned int n, struct err *e);

/*
 * Asks for the types of all objects that may be devices, as far as they are not known, and marks
 * the devices.
 */
int qom_read_types(struct qmp *q, struct qom *t, const struct qtree *shown,
		   struct qom_known *known, struct err *e);
/*
 * Finds the objects that "info qtree" shows, beyond doubt, and the buses that it tells; the others'
 * @bus stays NULL.
 */
int qom_find_shown(struct qom *t, struct qtree *shown, struct err *e);
/* Reads the @bus of all devices that have none yet, and the @props. */
int qom_read_props(struct qmp *q, struct qom *t, const struct qtree *shown, qom_wanted wanted,
		   struct qom_known *known, struct err *e);

#endif
