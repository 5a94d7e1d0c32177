/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of qom_read(): the tree (qom.c), and the properties of its objects (qom_props.c). */
#ifndef GODWIT_QOM_INTERNAL_H
#define GODWIT_QOM_INTERNAL_H

#include <stddef.h>

#include "fit/qom.h"

int qom_no_memory(struct err *e);
int qom_too_many(const char *what, struct err *e);

/*
 * Allocates n commands, and frees them with all that they hold. NULL: out of memory, and *e says
 * so.
 */
struct qmp_batch *qom_batch(size_t n, struct err *e);
void qom_batch_free(struct qmp_batch *b, size_t n);
struct qmp_batch qom_get(const char *path, const char *property);

/* Is it a vCPU, but not the first? Only the first is read. */
bool qom_is_further_cpu(const struct qom *t, unsigned int i);
/* Has a property of that kind a value of its own, or is it another object? */
bool qom_is_value(const char *kind);
/* The value that QEMU reported when it listed the object. NULL: none. Borrowed. */
const json_t *qom_listed(const struct qom_object *o, const char *name);

/*
 * Reads, for each type of device, the names of its properties, an array in @types. Other objects
 * have none.
 */
int qom_read_types(struct qmp *q, const struct qom *t, qom_wanted wanted, json_t *types,
		   struct err *e);
/* Reads the @props of all devices. */
int qom_read_props(struct qmp *q, struct qom *t, const json_t *types, struct err *e);

#endif
