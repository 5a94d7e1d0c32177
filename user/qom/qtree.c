// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qom/qtree.h"

/**
 * struct qtree_open - what is open at each depth while the text is read; QTREE_NONE: nothing
 * @level: of the line
 */
struct qtree_open {
	int device[QTREE_DEPTH], bus[QTREE_DEPTH];
	size_t level;
};

/* The text after the prefix, or NULL. */
static const char *qtree_after(const char *line, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(line, prefix, len) ? NULL : line + len;
}

/* A line closes what was open at deeper levels. */
static void qtree_close_deeper(struct qtree_open *open)
{
	for (size_t i = open->level + 1; i < QTREE_DEPTH; i++)
		open->device[i] = open->bus[i] = QTREE_NONE;
}

static bool qtree_add_bus(struct qtree *t, struct qtree_open *open, const char *name)
{
	int device = open->level ? open->device[open->level - 1] : QTREE_NONE;

	/* The first stands alone, each other below a device. */
	if (t->nbuses ? device == QTREE_NONE : open->level != 0)
		return false;
	t->buses[t->nbuses] = (struct qtree_bus){ .name = name, .type = "", .device = device };
	open->bus[open->level] = (int)t->nbuses++;
	open->device[open->level] = QTREE_NONE;
	qtree_close_deeper(open);
	return true;
}

/* It is in the line behind that of its bus. */
static bool qtree_add_type(struct qtree *t, const struct qtree_open *open, const char *line)
{
	const char *type = qtree_after(line, "type ");

	if (!type || !*type || !open->level || open->bus[open->level - 1] != (int)t->nbuses - 1)
		return false;
	t->buses[t->nbuses - 1].type = type;
	return true;
}

/* rest: "TYPE, id "ID"" */
static bool qtree_add_device(struct qtree *t, struct qtree_open *open, char *rest)
{
	char *id = strstr(rest, ", id \"");
	size_t len = strlen(rest);
	int bus = open->level ? open->bus[open->level - 1] : QTREE_NONE;

	if (!id || bus == QTREE_NONE || rest[len - 1] != '"' || id + 6 > rest + len - 1)
		return false;
	*id = rest[len - 1] = '\0';
	t->devices[t->ndevices] = (struct qtree_device){
		.type = rest, .id = id + 6, .bus = bus, .first = t->nproperties,
		.object = QTREE_NONE,
	};
	open->device[open->level] = (int)t->ndevices++;
	open->bus[open->level] = QTREE_NONE;
	qtree_close_deeper(open);
	return true;
}

/* What QEMU's buses print of their devices: it is no property. */
static bool qtree_is_remark(const char *line)
{
	static const char *const forms[] = {
		"gpio-in ", "gpio-out ", "clock-in ", "clock-out ", "mmio ", "class ",
		"bar ",	    "addr ",	 "port ",     "isa irq",    "memory ",
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (qtree_after(line, forms[i]))
			return true;
	return false;
}

/*
 * A property, or a remark. QEMU escapes nothing: any other line is part of a string of more than
 * one, whose last line ends in a quote, as no remark does.
 */
static bool qtree_add_detail(struct qtree *t, const struct qtree_open *open, char *line)
{
	int device = open->level ? open->device[open->level - 1] : QTREE_NONE;
	char *is = strstr(line, " = ");
	bool quoted = line[strlen(line) - 1] == '"';

	/* A bus ends what there is of the device that it is of. */
	if (device == QTREE_NONE || device != (int)t->ndevices - 1 ||
	    t->buses[t->nbuses - 1].device == device)
		return false;
	if (!is || strchr(line, ' ') != is)
		return !quoted && qtree_is_remark(line);
	if (quoted && is[3] != '"')
		return false;
	*is = '\0';
	t->properties[t->nproperties++] =
		(struct qtree_property){ .name = line, .value = is + 3, .device = device };
	return true;
}

static bool qtree_take_line(struct qtree *t, struct qtree_open *open, char *line)
{
	size_t spaces = strspn(line, " ");
	const char *name;

	line += spaces;
	open->level = spaces / 2;
	if (spaces % 2 || !*line || open->level >= QTREE_DEPTH)
		return false;
	if (t->nbuses && !*t->buses[t->nbuses - 1].type)
		return qtree_add_type(t, open, line);
	name = qtree_after(line, "bus: ");
	if (name)
		return qtree_add_bus(t, open, name);
	if (qtree_after(line, "dev: "))
		return qtree_add_device(t, open, line + strlen("dev: "));
	return qtree_add_detail(t, open, line);
}

int qtree_parse(struct qtree *t, const char *text)
{
	struct qtree_open open;
	size_t lines = 1;
	bool good = true;

	*t = (struct qtree){ .text = strdup(text ? text : "") };
	for (const char *c = t->text; c && *c; c++)
		lines += *c == '\n';
	t->devices = calloc(lines, sizeof(*t->devices));
	t->buses = calloc(lines, sizeof(*t->buses));
	t->properties = calloc(lines, sizeof(*t->properties));
	if (!t->text || !t->devices || !t->buses || !t->properties) {
		qtree_free(t);
		return -ENOMEM;
	}
	memset(&open, 0xff, sizeof(open));	/* QTREE_NONE */
	for (char *save, *line = strtok_r(t->text, "\r\n", &save); line && good;
	     line = strtok_r(NULL, "\r\n", &save))
		good = qtree_take_line(t, &open, line);
	if (!good)
		t->ndevices = t->nbuses = t->nproperties = 0;
	return 0;
}

void qtree_free(struct qtree *t)
{
	free(t->text);
	free(t->devices);
	free(t->buses);
	free(t->properties);
	*t = (struct qtree){ .text = NULL };
}

/*
 * "3 (0x3)", "34359738368 (32 GiB)". A number of 64 bits becomes a double, as in a message of
 * QEMU's (qmp/qmp_stream.c).
 */
static json_t *qtree_number(const char *text)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (end == text || strncmp(end, " (", 2) || text[strlen(text) - 1] != ')')
		return NULL;
	return errno ? json_real(strtod(text, NULL)) : json_integer(n);
}

/* Slot and function: QMP tells a number. */
static json_t *qtree_pci_address(const char *text)
{
	unsigned int slot, function;
	char again[8];

	if (sscanf(text, "%2x.%1x", &slot, &function) != 2 || slot > 31 || function > 7)
		return NULL;
	snprintf(again, sizeof(again), "%02x.%x", slot, function);
	return strcmp(text, again) ? NULL : json_integer((json_int_t)(slot << 3 | function));
}

/* QEMU escapes nothing: what is between the outer quotes is the value. */
static json_t *qtree_string(const char *text)
{
	size_t len = strlen(text);

	if (len < 2 || *text != '"' || text[len - 1] != '"')
		return NULL;
	return json_stringn(text + 1, len - 2);
}

static bool qtree_is_number(const char *kind)
{
	return !strncmp(kind, "int", 3) || !strncmp(kind, "uint", 4) || !strcmp(kind, "size");
}

/* A list of one element looks like the element. */
static bool qtree_is_list(const char *kind)
{
	size_t len = strlen(kind);

	return !strcmp(kind, "list") || (len > 4 && !strcmp(kind + len - 4, "List"));
}

/* QEMU prints 2^63 and more of an unsigned number as a negative one. */
static json_t *qtree_number_of(const char *kind, const char *text)
{
	return *text == '-' && !strncmp(kind, "uint", 4) ? NULL : qtree_number(text);
}

int qtree_on_bus(const struct qtree *t, size_t device, const char *bus)
{
	int found = QTREE_NONE;

	for (size_t i = 0; i < t->ndevices; i++) {
		const struct qtree_bus *its = &t->buses[t->devices[i].bus];

		if (its->device != (int)device || strcmp(its->name, bus))
			continue;
		if (found != QTREE_NONE)
			return QTREE_NONE;
		found = (int)i;
	}
	return found;
}

json_t *qtree_value(const struct qtree *t, size_t device, const char *name, const char *kind)
{
	const char *value = NULL;

	for (size_t i = t->devices[device].first;
	     i < t->nproperties && t->properties[i].device == (int)device; i++) {
		if (strcmp(t->properties[i].name, name))
			continue;
		/* A value of more than one line may look like a property. */
		if (value)
			return NULL;
		value = t->properties[i].value;
	}
	if (!value || qtree_is_list(kind))
		return NULL;
	if (!strcmp(kind, "bool"))
		return !strcmp(value, "true")  ? json_true() :
		       !strcmp(value, "false") ? json_false() :
						 NULL;
	if (!strcmp(name, "addr") && qtree_is_number(kind))
		return qtree_pci_address(value);
	return qtree_is_number(kind) ? qtree_number_of(kind, value) : qtree_string(value);
}

bool qtree_has_bus_type(const struct qtree *t, const char *type)
{
	for (size_t i = 0; i < t->nbuses; i++)
		if (!strcmp(t->buses[i].type, type))
			return true;
	return false;
}
