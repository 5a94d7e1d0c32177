// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fit/qom.h"

static int no_memory(struct err *e)
{
	return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

static int too_many(const char *what, struct err *e)
{
	return err_set(e, GW_NOT_QEMU, E2BIG, "QEMU lists more %s than any machine has: is this QEMU's own QMP socket?", what);
}

/* What a guest does not see, and a large VM has thousands of. */
static bool is_plumbing(const char *type)
{
	static const char *const types[] = {
		"memory-region", "qemu:memory-region", "iommu-memory-region", "qemu:iommu-memory-region", "irq", "clock",
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(type, types[i]))
			return true;
	return false;
}

bool qom_is_cpu(const struct qom_object *o)
{
	size_t len = strlen(o->type);

	return len > 4 && !strcmp(o->type + len - 4, "-cpu");
}

static bool ends_with(const char *s, const char *end)
{
	size_t len = strlen(s), n = strlen(end);

	return len >= n && !strcmp(s + len - n, end);
}

static int add(struct qom *t, uint32_t parent, const char *name, const char *type, struct err *e)
{
	const char *above = parent == QOM_ROOT ? "/machine" : t->o[parent].path;
	struct qom_object *o;
	size_t len = strlen(above);

	if (t->n == QOM_OBJECTS_MAX)
		return too_many("objects", e);
	o = &t->o[t->n];
	*o = (struct qom_object) { .parent = parent, .path = malloc(len + strlen(name) + 2), .type = strdup(type) };
	t->n++;
	if (!o->path || !o->type)
		return no_memory(e);
	memcpy(o->path, above, len);
	o->path[len] = '/';
	strcpy(o->path + len + 1, name);
	o->name = o->path + len + 1;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(((const struct qom_object *)a)->name, ((const struct qom_object *)b)->name);
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

/* What qom-list has said of an object: its children, and whether it is on a bus. */
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
			r = add(t, of, name, type, e);
	}
	qsort(t->o + before, t->n - before, sizeof(*t->o), by_name);
	return r;
}

static struct qmp_batch *batch_new(size_t n, struct err *e)
{
	struct qmp_batch *b = calloc(n ? n : 1, sizeof(*b));

	if (!b)
		no_memory(e);
	return b;
}

static void batch_free(struct qmp_batch *b, size_t n)
{
	for (size_t i = 0; b && i < n; i++) {
		json_decref(b[i].args);
		json_decref(b[i].ret);
	}
	free(b);
}

static struct qmp_batch get(const char *path, const char *property)
{
	return (struct qmp_batch) { .command = "qom-get", .args = json_pack("{s:s, s:s}", "path", path, "property", property) };
}

static struct qmp_batch list(const char *path)
{
	return (struct qmp_batch) { .command = "qom-list", .args = json_pack("{s:s}", "path", path) };
}

/* Of the vCPUs below one object only the first is looked into. */
static bool is_further_cpu(const struct qom *t, unsigned int i)
{
	if (!qom_is_cpu(&t->o[i]))
		return false;
	while (i--)
		if (qom_is_cpu(&t->o[i]))
			return true;
	return false;
}

/* The objects from first on, and what is below them, one level after the other. */
static int read_tree(struct qmp *q, struct qom *t, struct err *e)
{
	unsigned int first = 0, end;
	json_auto_t *top = NULL;
	int r = qmp_call(q, "qom-list", json_pack("{s:s}", "path", "/machine"), &top, e);

	if (!r)
		r = take_list(t, QOM_ROOT, top, e);
	for (; !r && first < t->n; first = end) {
		struct qmp_batch *b;
		unsigned int n = 0;
		uint32_t *of;

		end = t->n;
		b = batch_new(end - first, e);
		of = calloc(end - first, sizeof(*of));
		for (unsigned int i = first; b && of && i < end; i++) {
			if (is_further_cpu(t, i))
				continue;
			of[n] = i;
			b[n++] = list(t->o[i].path);
		}
		r = b && of ? qmp_call_all(q, b, n, e) : no_memory(e);
		for (unsigned int i = 0; !r && i < n; i++)
			r = take_list(t, of[i], b[i].ret, e);
		batch_free(b, n);
		free(of);
	}
	return r;
}

static int read_buses(struct qmp *q, struct qom *t, struct err *e)
{
	struct qmp_batch *b = batch_new(t->n, e);
	unsigned int n = 0;
	int r;

	for (unsigned int i = 0; b && i < t->n; i++)
		if (t->o[i].device)
			b[n++] = get(t->o[i].path, "parent_bus");
	r = b ? qmp_call_all(q, b, n, e) : -ENOMEM;
	n = 0;
	for (unsigned int i = 0; !r && i < t->n; i++) {
		const char *bus;

		if (!t->o[i].device)
			continue;
		bus = json_string_value(b[n++].ret);
		t->o[i].bus = strdup(bus ? bus : "");
		if (!t->o[i].bus)
			r = no_memory(e);
	}
	batch_free(b, n);
	return r;
}

/* For each type of device: the names of its properties, an array. What is no device has none. */
static int read_types(struct qmp *q, const struct qom *t, qom_wanted wanted, json_t *types, struct err *e)
{
	struct qmp_batch *b;
	const char *type;
	json_t *unused;
	size_t n = 0;
	int r;

	for (unsigned int i = 0; i < t->n; i++)
		if (t->o[i].device)
			json_object_set_new(types, t->o[i].type, json_array());
	b = batch_new(json_object_size(types), e);
	if (!b)
		return -ENOMEM;
	json_object_foreach(types, type, unused)
		b[n++] = (struct qmp_batch) { .command = "device-list-properties", .args = json_pack("{s:s}", "typename", type) };
	r = qmp_call_all(q, b, n, e);
	n = 0;
	json_object_foreach(types, type, unused) {
		const json_t *property;
		size_t i;

		json_array_foreach(b[n].ret, i, property) {
			const char *name = json_string_value(json_object_get(property, "name"));
			const char *kind = json_string_value(json_object_get(property, "type"));

			if (name && kind && strncmp(kind, "link<", 5) && strncmp(kind, "child<", 6) && wanted(type, name))
				json_array_append_new(unused, json_string(name));
		}
		n++;
	}
	batch_free(b, n);
	return r;
}

/* What a proxy on PCI passes on to its virtio device is read there. */
static bool is_asked(const struct qom *t, unsigned int i)
{
	return t->o[i].device && !is_further_cpu(t, i) && !ends_with(t->o[i].path, "/virtio-backend");
}

static int take_props(struct qom *t, const json_t *types, const struct qmp_batch *b, struct err *e)
{
	for (unsigned int i = 0; i < t->n; i++) {
		const json_t *names = json_object_get(types, t->o[i].type), *name;
		size_t k;

		if (!is_asked(t, i))
			continue;
		t->o[i].props = json_object();
		if (!t->o[i].props)
			return no_memory(e);
		json_array_foreach(names, k, name) {
			if (b->ret)
				json_object_set(t->o[i].props, json_string_value(name), b->ret);
			b++;
		}
	}
	return 0;
}

static int read_props(struct qmp *q, struct qom *t, const json_t *types, struct err *e)
{
	struct qmp_batch *b;
	size_t n = 0, at = 0;
	int r;

	for (unsigned int i = 0; i < t->n; i++)
		if (is_asked(t, i))
			n += json_array_size(json_object_get(types, t->o[i].type));
	if (n > QOM_GETS_MAX)
		return too_many("properties", e);
	b = batch_new(n, e);
	for (unsigned int i = 0; b && i < t->n; i++) {
		const json_t *names = json_object_get(types, t->o[i].type), *name;
		size_t k;

		if (is_asked(t, i))
			json_array_foreach(names, k, name)
				b[at++] = get(t->o[i].path, json_string_value(name));
	}
	r = b ? qmp_call_all(q, b, n, e) : -ENOMEM;
	if (!r)
		r = take_props(t, types, b, e);
	batch_free(b, n);
	return r;
}

int qom_read(struct qmp *q, qom_wanted wanted, struct qom *t, struct err *e)
{
	json_auto_t *types = json_object();
	int r = 0;

	t->n = 0;
	t->o = calloc(QOM_OBJECTS_MAX, sizeof(*t->o));
	if (!t->o || !types)
		r = no_memory(e);
	if (!r)
		r = read_tree(q, t, e);
	if (!r)
		r = read_buses(q, t, e);
	if (!r)
		r = read_types(q, t, wanted, types, e);
	if (!r)
		r = read_props(q, t, types, e);
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
	}
	free(t->o);
	t->o = NULL;
	t->n = 0;
}
