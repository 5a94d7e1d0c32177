/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The devices that are on a bus, with nearly all values of their properties, in one answer of
 * QEMU's human monitor:
 *
 *	bus: main-system-bus
 *	  type System
 *	  dev: q35-pcihost, id ""
 *	    pci-hole64-size = 34359738368 (32 GiB)
 *	    bus: pcie.0
 *	      type PCIE
 *	      dev: virtio-net-pci, id "net0"
 *	        addr = 03.0
 *	        mq = false
 *
 * It does not show QOM paths: a device is found by its type and id, if it is the only one of them.
 * Source: QEMU softmmu/qdev-monitor.c (system/ since 9.0), qbus_print().
 */
#ifndef GODWIT_QTREE_H
#define GODWIT_QTREE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define QTREE_DEPTH	64u	/* deeper than any bus */
#define QTREE_NONE	(-1)

/**
 * struct qtree_property - a line "name = value"
 * @device: its index
 */
struct qtree_property {
	const char *name, *value;
	int device;
};

/**
 * struct qtree_bus - a line "bus: name", and its type
 * @device: whose bus it is; QTREE_NONE: the main system bus
 */
struct qtree_bus {
	const char *name, *type;
	int device;
};

/**
 * struct qtree_device - a line "dev: type, id "id""
 * @bus: its index
 * @first: its first property; the last is in front of the next device's first
 * @object: for the caller
 */
struct qtree_device {
	const char *type, *id;
	int bus;
	size_t first;
	int object;
};

/* struct qtree - all strings are in @text. Owners stand before their devices. */
struct qtree {
	char *text;
	size_t ndevices, nbuses, nproperties;
	struct qtree_device *devices;
	struct qtree_bus *buses;
	struct qtree_property *properties;
};

/*
 * Takes the text apart. A text that is not of this form, or NULL, makes an empty tree, of which the
 * caller asks everything in other ways: also one with a string of more than one line, unless that
 * imitates the form. -ENOMEM.
 */
int qtree_parse(struct qtree *t, const char *text);
void qtree_free(struct qtree *t);
/*
 * The value as QMP would tell it, a new reference; kind: the type of the property by QEMU's name.
 * NULL: the text does not show it, or in a form that could mean more than one value.
 */
json_t *qtree_value(const struct qtree *t, size_t device, const char *name, const char *kind);
/* The only device on that bus of this device's; QTREE_NONE: there are none, or more. */
int qtree_on_bus(const struct qtree *t, size_t device, const char *bus);
bool qtree_has_bus_type(const struct qtree *t, const char *type);

#endif
