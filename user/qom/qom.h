/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tree of QEMU's objects below /machine, as a table: the type of each, its bus, and the
 * properties that were set before it was realized, which are its configuration. Source: QEMU
 * docs/devel/qom, qapi/qom.json.
 */
#ifndef GODWIT_QOM_H
#define GODWIT_QOM_H

#include <jansson.h>
#include <stdbool.h>

#include "qmp/qmp.h"

#define QOM_BULK 100100u /* the version of QEMU that has qom-list-get */
#define QOM_OBJECTS_MAX 8192u
#define QOM_GETS_MAX 65536u
#define QOM_ROOT UINT32_MAX

/*
 * Is QEMU to be asked for this property? kind: the type of its value, by QEMU's name: "bool",
 * "uint32", "str" ...
 */
typedef bool (*qom_wanted)(const char *type, const char *property, const char *kind);

/**
 * struct qom_known - what never changes in one QEMU, so that a later qom_read() does not ask for it
 * @types: the type of a device to its properties, each a name to a kind; null: no device's type
 * @cpu: the properties of the first vCPU, of type @cpu_type, as far as @wanted; a vCPU that the
 *	guest has seen keeps them
 */
struct qom_known {
	json_t *types;
	json_t *cpu;
	char *cpu_type;
	qom_wanted wanted;
};

/**
 * struct qom_object - one object
 * @path: in QEMU's tree
 * @name: the last part of @path
 * @parent: its index in the table; QOM_ROOT: /machine itself
 * @device: it has a parent_bus, so it is a device
 * @bus: the path of that bus; "": the device is on none
 * @props: name to value, of a device; NULL: none. Values are QEMU's own
 * @listed: QEMU's list of its properties, while the table is made; NULL: it was not asked for it
 * @line: of the text of the whole tree, while the table is made
 * @shown: the device in "info qtree", while the table is made; QTREE_NONE: not there, or not found
 */
struct qom_object {
	char *path;
	const char *name;
	char *type;
	char *bus;
	uint32_t parent;
	bool device;
	json_t *props;
	json_t *listed;
	unsigned int line;
	int shown;
};

/**
 * struct qom - the table
 * @bulk: QEMU (10.1) lists objects with the values of their properties, several in one command
 * @o: parents stand before their children, siblings in the order of their names (device[2]
 *	before device[10])
 */
struct qom {
	bool bulk;
	unsigned int n;
	struct qom_object *o;
};

/**
 * qom_read() - read the whole tree
 * Two texts of the human monitor have the tree ("info qom-tree") and most values ("info qtree");
 * each keeps QEMU's main loop for a millisecond. A command of a hundred bytes takes some 0.4 ms,
 * most of it to read it, byte by byte, so only what the texts lack is asked for: with many commands
 * under way at a time, between any two of which QEMU serves its guest. Of objects of one type and
 * id, which the texts do not tell apart, the values are asked for, and the bus unless all of them
 * are on one. A type's compatibility properties ("x-") are read from its first device only, and the
 * properties of the first vCPU stand for all vCPUs, as QEMU gives all of them the same.
 * @known: zeroed, or of an earlier call for the same QEMU
 * Errors: those of qmp_call_all(); GW_NOT_QEMU: more objects or properties than any machine has.
 */
int qom_read(struct qmp *q, qom_wanted wanted, struct qom_known *known, struct qom *t,
	     struct err *e);
/* The object of that path, or NULL. */
const struct qom_object *qom_find(const struct qom *t, const char *path);
/* Does it hold the devices that the operator gave, with or without an id? */
bool qom_is_container(const struct qom_object *o);
/* Is it a vCPU? */
bool qom_is_cpu(const struct qom_object *o);
void qom_free(struct qom *t);
void qom_known_free(struct qom_known *known);

/*
 * For further questions. Allocates n commands, and frees them with all that they hold. NULL: out of
 * memory, and *e says so.
 */
struct qmp_batch *qom_batch(size_t n, struct err *e);
void qom_batch_free(struct qmp_batch *b, size_t n);
struct qmp_batch qom_get(const char *path, const char *property);
/* Has a property of that kind a value of its own, or is it another object? */
bool qom_is_value(const char *kind);

#endif
