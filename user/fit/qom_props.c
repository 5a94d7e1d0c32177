// SPDX-License-Identifier: GPL-2.0-only
/* The properties of devices, and their values. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "fit/qom_internal.h"

static bool ends_with(const char *s, const char *end)
{
	size_t len = strlen(s), n = strlen(end);

	return len >= n && !strcmp(s + len - n, end);
}

int qom_read_types(struct qmp *q, const struct qom *t, qom_wanted wanted, json_t *types,
		   struct err *e)
{
	struct qmp_batch *b;
	const char *type;
	json_t *unused;
	size_t n = 0;
	int r;

	for (unsigned int i = 0; i < t->n; i++)
		if (t->o[i].device)
			json_object_set_new(types, t->o[i].type, json_array());
	b = qom_batch(json_object_size(types), e);
	if (!b)
		return -ENOMEM;
	json_object_foreach(types, type, unused)
		b[n++] = (struct qmp_batch){ .command = "device-list-properties",
					     .args = json_pack("{s:s}", "typename", type) };
	r = qmp_call_all(q, b, n, e);
	n = 0;
	json_object_foreach(types, type, unused) {
		const json_t *property;
		size_t i;

		json_array_foreach(b[n].ret, i, property) {
			const char *name = json_string_value(json_object_get(property, "name"));
			const char *kind = json_string_value(json_object_get(property, "type"));

			if (name && kind && qom_is_value(kind) && wanted(type, name, kind))
				json_array_append_new(unused, json_string(name));
		}
		n++;
	}
	qom_batch_free(b, n);
	return r;
}

/* A proxy on PCI passes its properties on to its virtio device: only the proxy's are read. */
static bool is_asked(const struct qom *t, unsigned int i)
{
	return t->o[i].device && !qom_is_further_cpu(t, i) &&
	       !ends_with(t->o[i].path, "/virtio-backend");
}

/*
 * Compatibility switches come from the machine type, or from -global: one value for all of a type.
 */
static bool is_repeated(const struct qom *t, unsigned int i, const char *property)
{
	if (strncmp(property, "x-", 2))
		return false;
	for (unsigned int k = 0; k < i; k++)
		if (t->o[k].device && !strcmp(t->o[k].type, t->o[i].type))
			return true;
	return false;
}

/* Calls fn for each property that is asked for, until it fails. */
static int each_property(struct qom *t, const json_t *types,
			 int (*fn)(struct qom_object *o, const char *name, void *arg), void *arg)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < t->n; i++) {
		const json_t *names = json_object_get(types, t->o[i].type), *name;
		size_t k;

		if (!is_asked(t, i))
			continue;
		json_array_foreach(names, k, name)
			if (!r && !is_repeated(t, i, json_string_value(name)))
				r = fn(&t->o[i], json_string_value(name), arg);
	}
	return r;
}

struct gets {
	struct qmp_batch *b;
	size_t n;
};

static int count_one(struct qom_object *o, const char *name, void *arg)
{
	struct gets *g = arg;

	(void)o;
	(void)name;
	g->n++;
	return 0;
}

static int ask_one(struct qom_object *o, const char *name, void *arg)
{
	struct gets *g = arg;

	g->b[g->n++] = qom_get(o->path, name);
	return 0;
}

/*
 * In a message of QEMU's with a number of 64 bits all numbers are doubles (qmp/qmp_stream.c). Makes
 * an integer of a double again, if the double is small enough to be exact.
 */
static json_t *whole(const json_t *value)
{
	double v = json_real_value(value);

	if (json_is_real(value) && v >= -9007199254740992.0 && v <= 9007199254740992.0 &&
	    floor(v) >= v)
		return json_integer((json_int_t)v);
	return json_incref((json_t *)value);
}

static int take_one(struct qom_object *o, const char *name, void *arg)
{
	struct gets *g = arg;
	const json_t *value = g->b ? g->b[g->n++].ret : qom_listed(o, name);

	return value ? json_object_set_new(o->props, name, whole(value)) : 0;
}

int qom_read_props(struct qmp *q, struct qom *t, const json_t *types, struct err *e)
{
	struct gets g = { .n = 0 };
	int r = 0;

	for (unsigned int i = 0; i < t->n; i++)
		if (is_asked(t, i))
			t->o[i].props = json_object();
	if (!t->bulk) {
		each_property(t, types, count_one, &g);
		if (g.n > QOM_GETS_MAX)
			return qom_too_many("properties", e);
		g.b = qom_batch(g.n, e);
		g.n = 0;
		if (!g.b)
			return -ENOMEM;
		each_property(t, types, ask_one, &g);
		r = qmp_call_all(q, g.b, g.n, e);
	}
	g.n = 0;
	if (!r && each_property(t, types, take_one, &g))
		r = qom_no_memory(e);
	if (g.b)
		qom_batch_free(g.b, g.n);
	return r;
}
