// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/place.h"

#define PLACE_MAX 512

/*
 * The properties that make the address of a device on a bus that is not PCI; a kind of device has
 * some of them.
 */
static const char *const addresses[] = { "channel", "scsi-id", "lun",	"unit",	  "nr",
					 "cad",	    "address", "index", "iobase", "slot" };

const char *place_type(const char *type)
{
	static const char *const same[][2] = {
		{ "kvm-apic", "apic" },
		{ "kvm-ioapic", "ioapic" },
		{ "kvm-i8259", "isa-i8259" },
		{ "kvm-pit", "isa-pit" },
	};

	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		if (!strcmp(type, same[i][0]))
			return same[i][1];
	return type;
}

static bool is_pci(const struct qom_object *o)
{
	return json_is_integer(json_object_get(o->props, "addr")) &&
	       json_object_get(o->props, "multifunction");
}

/* The object that a bus belongs to: "/machine/peripheral/rp1/rp1" is of rp1. */
static const struct qom_object *owner_of(const struct qom *t, const char *bus)
{
	const char *end = strrchr(bus, '/');
	char path[PLACE_MAX];

	if (!end || (size_t)(end - bus) >= sizeof(path))
		return NULL;
	memcpy(path, bus, (size_t)(end - bus));
	path[end - bus] = '\0';
	return qom_find(t, path);
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* The name of a bus is its owner's id and a number: "scsi0.0", "ahci2.1". */
static const char *bus_number(const char *bus)
{
	const char *dot = strrchr(last_part(bus), '.');

	return dot ? dot + 1 : "";
}

static void place_append(char *place, const char *text)
{
	size_t len = strlen(place);

	snprintf(place + len, PLACE_MAX - len, "%s", text);
}

static void append_address(char *place, const struct qom_object *o)
{
	for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		const json_t *value = json_object_get(o->props, addresses[i]);
		char text[80];

		if (json_is_integer(value))
			snprintf(text, sizeof(text), " %s=%lld", addresses[i],
				 (long long)json_integer_value(value));
		else if (json_string_length(value))
			snprintf(text, sizeof(text), " %s=%.60s", addresses[i],
				 json_string_value(value));
		else
			continue;
		place_append(place, text);
	}
}

static void place_number(const struct qom *t, char **places, char *place)
{
	unsigned int same = 0;
	size_t len = strlen(place);

	for (unsigned int j = 0; j < t->n; j++)
		same += places[j] && !strncmp(places[j], place, len) &&
			(!places[j][len] || places[j][len] == '#');
	if (same)
		snprintf(place + len, PLACE_MAX - len, "#%u", same);
}

static bool is_given(const struct qom *t, const struct qom_object *o)
{
	return o->device && o->parent != QOM_ROOT && qom_is_container(&t->o[o->parent]);
}

/* The object above it in the guest: its bus's owner, or the object that it is a part of. */
static const struct qom_object *above(const struct qom *t, unsigned int i)
{
	const struct qom_object *o = &t->o[i];

	if (o->device && o->bus && *o->bus)
		return owner_of(t, o->bus);
	return o->parent == QOM_ROOT || is_given(t, o) ? NULL : &t->o[o->parent];
}

/*
 * Names the bus of a host bridge, as the machine names it. The bus of an expander has the
 * operator's id, so its number names it here.
 */
static void root_bus(const struct qom *t, const char *name, char *place)
{
	const json_t *number = NULL;
	char path[PLACE_MAX];
	const struct qom_object *expander;

	snprintf(path, sizeof(path), "/machine/peripheral/%s", name);
	expander = qom_find(t, path);
	if (expander)
		number = json_object_get(expander->props, "bus_nr");
	if (json_is_integer(number))
		snprintf(place, PLACE_MAX, "bus %lld/", (long long)json_integer_value(number));
	else
		snprintf(place, PLACE_MAX, "%s/", name);
}

static void prefix(const struct qom *t, char **places, unsigned int i, char *place)
{
	const struct qom_object *o = &t->o[i], *owner = above(t, i);
	bool on_bus = o->device && o->bus && *o->bus;

	*place = '\0';
	if (on_bus && is_pci(o) && (!owner || !is_pci(owner)))
		root_bus(t, last_part(o->bus), place);
	else if (owner && places[owner - t->o])
		snprintf(place, PLACE_MAX, "%s/", places[owner - t->o]);
	else if (o->parent != QOM_ROOT && !on_bus && !is_given(t, o) && places[o->parent])
		snprintf(place, PLACE_MAX, "%s/", places[o->parent]);
}

static bool is_unattached(const struct qom_object *o)
{
	return !strncmp(o->name, "device[", 7);
}

static char *place_of(const struct qom *t, char **places, unsigned int i)
{
	const struct qom_object *o = &t->o[i];
	char place[PLACE_MAX], text[PLACE_MAX];

	prefix(t, places, i, place);
	if (is_pci(o)) {
		unsigned int devfn =
			(unsigned int)json_integer_value(json_object_get(o->props, "addr")) & 0xff;

		snprintf(text, sizeof(text), "%02x.%x", devfn >> 3, devfn & 7);
		place_append(place, text);
	} else if (!strcmp(o->name, "virtio-backend")) {
		place_append(place,
		       "virtio"); /* one id or another, and the bus below it has the device's */
	} else if (o->device && o->bus && *o->bus) {
		const char *bus = bus_number(o->bus);

		snprintf(text, sizeof(text), "%s%s%s", *bus && strcmp(bus, "0") ? bus : "",
			 *bus && strcmp(bus, "0") ? ":" : "", place_type(o->type));
		place_append(place, text);
		append_address(place, o);
	} else if (is_given(t, o)) {
		place_append(place, place_type(o->type)); /* the operator chose its name */
		append_address(place, o);
	} else {
		place_append(place, is_unattached(o) ? place_type(o->type) : o->name);
	}
	place_number(t, places, place);
	return strdup(place);
}

/* A device may sit on one that stands later in the table: that one gets its place first. */
static void place_resolve(const struct qom *t, char **places, unsigned int i, unsigned int depth)
{
	const struct qom_object *owner = above(t, i);

	if (places[i] || depth > 32)
		return;
	if (owner)
		place_resolve(t, places, (unsigned int)(owner - t->o), depth + 1);
	if (t->o[i].parent != QOM_ROOT)
		place_resolve(t, places, t->o[i].parent, depth + 1);
	if (!places[i])
		places[i] = place_of(t, places, i);
}

char **place_all(const struct qom *t)
{
	char **places = calloc(t->n ? t->n : 1, sizeof(*places));

	for (unsigned int i = 0; places && i < t->n; i++) {
		place_resolve(t, places, i, 0);
		if (!places[i]) {
			places_free(places, t);
			return NULL;
		}
	}
	return places;
}

void places_free(char **places, const struct qom *t)
{
	for (unsigned int i = 0; places && i < t->n; i++)
		free(places[i]);
	free(places);
}
