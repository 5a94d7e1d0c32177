// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fit/qom_internal.h"

int qom_no_memory(struct err *e)
{
	return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

int qom_too_many(const char *what, struct err *e)
{
	return err_set(e, GW_NOT_QEMU, E2BIG,
		       "QEMU lists more %s than any machine has: is this QEMU's own QMP socket?",
		       what);
}

/* Is it of a type that a guest does not see, and that a large VM has thousands of? */
static bool is_plumbing(const char *type)
{
	static const char *const types[] = {
		"memory-region",
		"qemu:memory-region",
		"iommu-memory-region",
		"qemu:iommu-memory-region",
		"irq",
		"clock",
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(type, types[i]))
			return true;
	return false;
}

bool qom_is_container(const struct qom_object *o)
{
	return !strcmp(o->path, "/machine/peripheral") ||
	       !strcmp(o->path, "/machine/peripheral-anon");
}

bool qom_is_cpu(const struct qom_object *o)
{
	size_t len = strlen(o->type);

	return len > 4 && !strcmp(o->type + len - 4, "-cpu");
}

static int qom_add(struct qom *t, uint32_t parent, const char *name, const char *type,
		   struct err *e)
{
	const char *above = parent == QOM_ROOT ? "/machine" : t->o[parent].path;
	struct qom_object *o;
	size_t len = strlen(above);

	if (t->n == QOM_OBJECTS_MAX)
		return qom_too_many("objects", e);
	o = &t->o[t->n];
	*o = (struct qom_object){ .parent = parent,
				  .path = malloc(len + strlen(name) + 2),
				  .type = strdup(type) };
	t->n++;
	if (!o->path || !o->type)
		return qom_no_memory(e);
	memcpy(o->path, above, len);
	o->path[len] = '/';
	strcpy(o->path + len + 1, name);
	o->name = o->path + len + 1;
	return 0;
}

static int qom_by_name(const void *a, const void *b)
{
	return strverscmp(((const struct qom_object *)a)->name,
			  ((const struct qom_object *)b)->name);
}

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
		if (!r && type && !is_plumbing(type))
			r = qom_add(t, of, name, type, e);
	}
	qsort(t->o + before, t->n - before, sizeof(*t->o), qom_by_name);
	return r;
}

struct qmp_batch *qom_batch(size_t n, struct err *e)
{
	struct qmp_batch *b = calloc(n ? n : 1, sizeof(*b));

	if (!b)
		qom_no_memory(e);
	return b;
}

void qom_batch_free(struct qmp_batch *b, size_t n)
{
	for (size_t i = 0; b && i < n; i++) {
		json_decref(b[i].args);
		json_decref(b[i].ret);
	}
	free(b);
}

const json_t *qom_listed(const struct qom_object *o, const char *name)
{
	const json_t *property;
	size_t i;

	json_array_foreach(o->listed, i, property) {
		const char *its = json_string_value(json_object_get(property, "name"));

		if (its && !strcmp(its, name))
			return json_object_get(property, "value");
	}
	return NULL;
}

bool qom_is_value(const char *kind)
{
	return strncmp(kind, "link<", 5) && strncmp(kind, "child<", 6);
}

struct qmp_batch qom_get(const char *path, const char *property)
{
	return (struct qmp_batch){ .command = "qom-get",
				   .args = json_pack("{s:s, s:s}", "path", path, "property",
						     property) };
}

bool qom_is_further_cpu(const struct qom *t, unsigned int i)
{
	if (!qom_is_cpu(&t->o[i]))
		return false;
	while (i--)
		if (qom_is_cpu(&t->o[i]))
			return true;
	return false;
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
static int list_all(struct qmp *q, struct qom *t, uint32_t *of, unsigned int n, struct err *e)
{
	int r = list_some(q, t, of, n, t->bulk ? PATHS_AT_A_TIME : 1, e);
	unsigned int again = 0;

	for (unsigned int i = 0; !r && t->bulk && i < n; i++)
		if (!t->o[of[i]].listed)
			of[again++] = of[i];
	return r || !again ? r : list_some(q, t, of, again, 1, e);
}

/* Reads the objects from first on, and what is below them, one level after the other. */
static int read_tree(struct qmp *q, struct qom *t, struct err *e)
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
		r = list_all(q, t, of, n, e);
		/* In the order of the table. */
		for (unsigned int i = first; !r && i < end; i++)
			r = take_list(t, i, t->o[i].listed, e);
	}
	free(of);
	return r;
}

static int read_buses(struct qmp *q, struct qom *t, struct err *e)
{
	struct qmp_batch *b = qom_batch(t->n, e);
	unsigned int n = 0;
	int r = b ? 0 : -ENOMEM;

	for (unsigned int i = 0; !r && !t->bulk && i < t->n; i++)
		if (t->o[i].device)
			b[n++] = qom_get(t->o[i].path, "parent_bus");
	if (!r)
		r = qmp_call_all(q, b, n, e);
	n = 0;
	for (unsigned int i = 0; !r && i < t->n; i++) {
		const char *bus;

		if (!t->o[i].device)
			continue;
		bus = json_string_value(t->bulk ? qom_listed(&t->o[i], "parent_bus") : b[n++].ret);
		t->o[i].bus = strdup(bus ? bus : "");
		if (!t->o[i].bus)
			r = qom_no_memory(e);
	}
	qom_batch_free(b, n);
	return r;
}

int qom_read(struct qmp *q, qom_wanted wanted, struct qom *t, struct err *e)
{
	json_auto_t *types = json_object();
	int r = 0;

	t->n = 0;
	t->bulk = qmp_version(q) >= QOM_BULK;
	t->o = calloc(QOM_OBJECTS_MAX, sizeof(*t->o));
	if (!t->o || !types)
		r = qom_no_memory(e);
	if (!r)
		r = read_tree(q, t, e);
	if (!r)
		r = read_buses(q, t, e);
	if (!r)
		r = qom_read_types(q, t, wanted, types, e);
	if (!r)
		r = qom_read_props(q, t, types, e);
	if (r)
		qom_free(t);
	return r;
}

const struct qom_object *qom_find(const struct qom *t, const char *path)
{
	for (unsigned int i = 0; i < t->n; i++)
		if (!strcmp(t->o[i].path, path))
			return &t->o[i];
	return NULL;
}

void qom_free(struct qom *t)
{
	for (unsigned int i = 0; i < t->n; i++) {
		free(t->o[i].path);
		free(t->o[i].type);
		free(t->o[i].bus);
		json_decref(t->o[i].props);
		json_decref(t->o[i].listed);
	}
	free(t->o);
	t->o = NULL;
	t->n = 0;
}
