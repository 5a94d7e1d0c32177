/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tree of QEMU's objects below /machine, as a table: what each is, on which bus, and the
 * properties that were set before it was realized, which are its configuration. Source: QEMU
 * docs/devel/qom, qapi/qom.json.
 */
#ifndef GODWIT_QOM_H
#define GODWIT_QOM_H

#include <jansson.h>
#include <stdbool.h>

#include "vmm/qmp.h"

#define QOM_BULK 100100u /* the version of QEMU that has qom-list-get */
#define QOM_OBJECTS_MAX 8192u
#define QOM_GETS_MAX 65536u
#define QOM_ROOT UINT32_MAX

/**
 * struct qom_object - one of them
 * @path: in QEMU's tree
 * @name: the last part of @path
 * @parent: its index in the table; QOM_ROOT: /machine itself
 * @device: it has a parent_bus, so it is a device. @bus: the path of that; "": on none
 * @props: name to value, of a device; NULL: none. Values are QEMU's own
 * @listed: what QEMU has said of it, while the table is made
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

/*
 * Is this property to be asked for? kind: what its value is, as QEMU says: "bool", "uint32", "str"
 * ...
 */
typedef bool (*qom_wanted)(const char *type, const char *property, const char *kind);

/**
 * qom_read() - the whole tree
 * Reads only, many commands under way at a time; between any two QEMU serves its guest. A command
 * takes some 0.4 ms, most of it to wake QEMU's threads, so a QEMU before 10.1, which says one value
 * at a time, is not asked the same of each device of a type where the type's compatibility
 * properties ("x-") are meant. Of several vCPUs the properties are those of the first, as QEMU
 * gives all the same. Errors: those of qmp_call_all(); GW_NOT_QEMU: more objects or properties than
 * any machine has.
 */
int qom_read(struct qmp *q, qom_wanted wanted, struct qom *t, struct err *e);
/* The object of that path, or NULL. */
const struct qom_object *qom_find(const struct qom *t, const char *path);
/* What holds the devices that the operator gave, with and without an id? */
bool qom_is_container(const struct qom_object *o);
/* A vCPU? */
bool qom_is_cpu(const struct qom_object *o);
void qom_free(struct qom *t);

#endif
