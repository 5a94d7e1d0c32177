// SPDX-License-Identifier: GPL-2.0-only
/*
 * Objects by qom-list, one command for each, or by qom-list-get, which QEMU has from 10.1 on: with
 * the values of all properties, several objects in a command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qom/qom_internal.h"

/* The type within "child<TYPE>", or NULL; buf holds it. */
static const char *child_type(const json_t *property, char *buf, size_t size)
{
	const char *type = json_string_value(json_object_get(property, "type"));
	size_t len = type ? strlen(type) : 0;

	if (len < 7 || strncmp(type, "child<", 6) || type[len - 1] != '>' || len - 7 >= size)
		return NULL;
	memcpy(buf, type + 6, len - 7);
	buf[len - 7] = '\0';
	return buf;
}

/* Takes qom-list's answer on an object: its children, and whether it is on a bus. */
static int take_list(struct qom *t, uint32_t of, const json_t *list, struct err *e)
{
	unsigned int before = t->n;
	const json_t *property;
	size_t i;
	int r = 0;

	json_array_foreach(list, i, property) {
		const char *name = json_string_value(json_object_get(property, "name"));
		char buf[256];
		const char *type = child_type(property, buf, sizeof(buf));

		if (!name)
			continue;
		if (of != QOM_ROOT && !strcmp(name, "parent_bus"))
			t->o[of].device = true;
		if (!r && type)
			r = qom_add(t, of, name, type, e);
	}
	qom_sort(t, before);
	return r;
}

#define PATHS_AT_A_TIME 4u /* of qom-list-get: together a millisecond of QEMU's main loop */

/* Makes one command for some of the objects in of[], from at on. */
static struct qmp_batch qom_ask(const struct qom *t, const uint32_t *of, unsigned int n,
				unsigned int at, unsigned int most)
{
	unsigned int some = n - at < most ? n - at : most;
	json_t *paths;

	if (!t->bulk)
		return (struct qmp_batch){ .command = "qom-list",
					   .args = json_pack("{s:s}", "path", t->o[of[at]].path) };
	paths = json_array();
	for (unsigned int i = 0; i < some; i++)
		json_array_append_new(paths, json_string(t->o[of[at + i]].path));
	return (struct qmp_batch){ .command = "qom-list-get",
				   .args = json_pack("{s:o}", "paths", paths) };
}

/* Lists n objects into their @listed, with @most objects in a command. */
static int list_some(struct qmp *q, struct qom *t, const uint32_t *of, unsigned int n,
		     unsigned int most, struct err *e)
{
	struct qmp_batch *b = qom_batch(n, e);
	unsigned int commands = 0;
	int r;

	if (!b)
		return -ENOMEM;
	for (unsigned int at = 0; at < n; at += most)
		b[commands++] = qom_ask(t, of, n, at, most);
	r = qmp_call_all(q, b, commands, e);
	for (unsigned int at = 0; !r && at < n; at++) {
		const json_t *said = b[at / most].ret;

		t->o[of[at]].listed = json_incref(
			t->bulk ? json_object_get(json_array_get(said, at % most), "properties")
				: (json_t *)said);
	}
	qom_batch_free(b, commands);
	return r;
}

/*
 * An object that has gone meanwhile makes QEMU refuse the whole command: the objects without an
 * answer are listed once more, one by one.
 */
int qom_list(struct qmp *q, struct qom *t, uint32_t *of, unsigned int n, struct err *e)
{
	int r = list_some(q, t, of, n, t->bulk ? PATHS_AT_A_TIME : 1, e);
	unsigned int again = 0;

	for (unsigned int i = 0; !r && t->bulk && i < n; i++)
		if (!t->o[of[i]].listed)
			of[again++] = of[i];
	return r || !again ? r : list_some(q, t, of, again, 1, e);
}

/* Reads the objects from first on, and what is below them, one level after the other. */
int qom_list_tree(struct qmp *q, struct qom *t, struct err *e)
{
	unsigned int first = 0, end;
	json_auto_t *top = NULL;
	uint32_t *of = calloc(QOM_OBJECTS_MAX, sizeof(*of));
	int r = of ? qmp_call(q, "qom-list", json_pack("{s:s}", "path", "/machine"), &top, e)
		   : qom_no_memory(e);

	if (!r)
		r = take_list(t, QOM_ROOT, top, e);
	for (; !r && first < t->n; first = end) {
		unsigned int n = 0;

		end = t->n;
		for (unsigned int i = first; i < end; i++)
			if (!qom_is_further_cpu(t, i))
				of[n++] = i;
		r = qom_list(q, t, of, n, e);
		/* In the order of the table. */
		for (unsigned int i = first; !r && i < end; i++)
			r = take_list(t, i, t->o[i].listed, e);
	}
	free(of);
	return r;
}
