/* SPDX-License-Identifier: GPL-2.0-only */
/* Inside of qom_read(): the tree (qom.c), and the properties of what is in it (qom_props.c). */
#ifndef GODWIT_QOM_INTERNAL_H
#define GODWIT_QOM_INTERNAL_H

#include <stddef.h>

#include "fit/qom.h"

int qom_no_memory(struct err *e);
int qom_too_many(const char *what, struct err *e);

/* Room for n commands, and its end with all that is in it. NULL: out of memory, and *e says so. */
struct qmp_batch *qom_batch(size_t n, struct err *e);
void qom_batch_free(struct qmp_batch *b, size_t n);
struct qmp_batch qom_get(const char *path, const char *property);

/* Of the vCPUs only the first is looked into. */
bool qom_is_further_cpu(const struct qom *t, unsigned int i);
/* Has a property of that kind a value of its own, or is it another object? */
bool qom_is_value(const char *kind);
/* What QEMU said of a property when it listed the object. NULL: it did not. Borrowed. */
const json_t *qom_listed(const struct qom_object *o, const char *name);

/*
 * For each type of device: the names of its properties, an array in @types. What is no device has
 * none.
 */
int qom_read_types(struct qmp *q, const struct qom *t, qom_wanted wanted, json_t *types,
		   struct err *e);
/* The @props of all devices. */
int qom_read_props(struct qmp *q, struct qom *t, const json_t *types, struct err *e);

#endif
