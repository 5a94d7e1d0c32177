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

/**
 * struct qom_object - one object
 * @path: in QEMU's tree
 * @name: the last part of @path
 * @parent: its index in the table; QOM_ROOT: /machine itself
 * @device: it has a parent_bus, so it is a device
 * @bus: the path of that bus; "": the device is on none
 * @props: name to value, of a device; NULL: none. Values are QEMU's own
 * @listed: QEMU's list of its properties, while the table is made
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
 * Is QEMU to be asked for this property? kind: the type of its value, by QEMU's name: "bool",
 * "uint32", "str" ...
 */
typedef bool (*qom_wanted)(const char *type, const char *property, const char *kind);

/**
 * qom_read() - read the whole tree
 * Reads only, with many commands under way at a time; between any two QEMU serves its guest. A
 * command takes some 0.4 ms, most of it to wake QEMU's threads, and a QEMU before 10.1 reports one
 * value at a time. So a type's compatibility properties ("x-") are read from its first device only,
 * and the properties of the first vCPU stand for all vCPUs, as QEMU gives all of them the same.
 * Errors: those of qmp_call_all(); GW_NOT_QEMU: more objects or properties than any machine has.
 */
int qom_read(struct qmp *q, qom_wanted wanted, struct qom *t, struct err *e);
/* The object of that path, or NULL. */
const struct qom_object *qom_find(const struct qom *t, const char *path);
/* Does it hold the devices that the operator gave, with or without an id? */
bool qom_is_container(const struct qom_object *o);
/* Is it a vCPU? */
bool qom_is_cpu(const struct qom_object *o);
void qom_free(struct qom *t);

#endif
