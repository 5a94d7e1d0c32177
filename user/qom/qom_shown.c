// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which object of the tree is which device of "info qtree": no name is in both. A device with an id
 * is the object of that name below /machine/peripheral. Without one, it is the object of its type
 * if both have only one of that type; of two, nothing is taken from the text but the bus that they
 * share.
 */
#include <stdio.h>
#include <string.h>

#include "qom/qom_internal.h"

#define PATH_MAX_SHOWN	600u

static bool has_id(const struct qom *t, const struct qom_object *o)
{
	return o->parent != QOM_ROOT && !strcmp(t->o[o->parent].path, "/machine/peripheral");
}

static bool may_be(const struct qom *t, const struct qom_object *o, const struct qtree_device *d)
{
	if (!o->device || strcmp(o->type, d->type))
		return false;
	return *d->id ? has_id(t, o) && !strcmp(o->name, d->id) : !has_id(t, o);
}

static bool is_single(const struct qtree *shown, const struct qtree_device *d)
{
	unsigned int n = 0;

	for (size_t i = 0; i < shown->ndevices; i++)
		n += !strcmp(shown->devices[i].type, d->type) &&
		     !strcmp(shown->devices[i].id, d->id);
	return n == 1;
}

static void find_object(struct qom *t, const struct qtree *shown, size_t device)
{
	struct qtree_device *d = &shown->devices[device];
	int found = QTREE_NONE;

	if (!is_single(shown, d))
		return;
	for (unsigned int i = 0; i < t->n; i++) {
		if (!may_be(t, &t->o[i], d))
			continue;
		if (found != QTREE_NONE)
			return;
		found = (int)i;
	}
	d->object = found;
	if (found != QTREE_NONE)
		t->o[found].shown = (int)device;
}

/* The path of that bus, if the tree has such a bus. */
static const char *find_bus(const struct qom *t, const struct qtree *shown,
			    const struct qtree_bus *bus, char *path)
{
	const struct qom_object *found;
	int owner = QTREE_NONE;

	if (bus->device == QTREE_NONE) {
		snprintf(path, PATH_MAX_SHOWN, "/machine/unattached/sysbus");
	} else {
		owner = shown->devices[bus->device].object;
		if (owner == QTREE_NONE)
			return NULL;
		snprintf(path, PATH_MAX_SHOWN, "%s/%s", t->o[owner].path, bus->name);
	}
	found = qom_find(t, path);
	return found && !strcmp(found->type, bus->type) ? path : NULL;
}

static unsigned int count_objects(const struct qom *t, const struct qtree_device *d)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < t->n; i++)
		n += may_be(t, &t->o[i], d);
	return n;
}

/*
 * The bus of all devices of the object's type and id, if they share one and are as many as the
 * objects: then the object is one of them.
 */
static const char *find_shared_bus(const struct qom *t, const struct qtree *shown,
				   const struct qom_object *o, char *path)
{
	const struct qtree_device *first = NULL;
	unsigned int n = 0;

	for (size_t i = 0; i < shown->ndevices; i++) {
		const struct qtree_device *d = &shown->devices[i];

		if (!may_be(t, o, d))
			continue;
		if (first && d->bus != first->bus)
			return NULL;
		first = d;
		n++;
	}
	/*
	 * It may be on no bus, or on one that the text does not show, as its owner is on none
	 * (nvme-subsys), or it has an id of QEMU's own and is below /machine/unattached (the bridge
	 * in a pxb).
	 */
	if (!first)
		return NULL;
	return n == count_objects(t, first) ? find_bus(t, shown, &shown->buses[first->bus], path) :
					      NULL;
}

/* A proxy has a bus for one device, the virtio device that is a part of it. */
static const char *find_virtio_bus(const struct qom *t, const struct qom_object *o, char *path)
{
	if (strcmp(o->name, "virtio-backend") || o->parent == QOM_ROOT)
		return NULL;
	snprintf(path, PATH_MAX_SHOWN, "%s/virtio-bus", t->o[o->parent].path);
	return qom_find(t, path) ? path : NULL;
}

int qom_find_shown(struct qom *t, struct qtree *shown, struct err *e)
{
	for (size_t i = 0; i < shown->ndevices; i++)
		find_object(t, shown, i);
	for (unsigned int i = 0; i < t->n; i++) {
		struct qom_object *o = &t->o[i];
		char path[PATH_MAX_SHOWN];
		const char *bus;

		if (!o->device)
			continue;
		bus = find_virtio_bus(t, o, path);
		if (!bus)
			bus = find_shared_bus(t, shown, o, path);
		if (!bus)
			continue;
		o->bus = strdup(bus);
		if (!o->bus)
			return qom_no_memory(e);
	}
	return 0;
}
