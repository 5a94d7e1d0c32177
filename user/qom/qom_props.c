// SPDX-License-Identifier: GPL-2.0-only
/* The properties of devices, and their values. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "qom/qom_internal.h"

static bool ends_with(const char *s, const char *end)
{
	size_t len = strlen(s), n = strlen(end);

	return len >= n && !strcmp(s + len - n, end);
}

/*
 * Is the object of a type that can be a device's? Of a table that was made by questions that is
 * known. A bus, or a container, is none.
 */
static bool may_be_device(const struct qom *t, unsigned int i, const struct qtree *shown)
{
	const struct qom_object *o = &t->o[i];

	return o->device || (!o->listed && !qom_is_further_cpu(t, i) &&
			     strcmp(o->type, "container") && !qtree_has_bus_type(shown, o->type));
}

/* Name to kind; null: QEMU has no such type of device. */
static json_t *take_type(const json_t *said)
{
	const json_t *property;
	json_t *kinds;
	size_t i;

	if (!said)
		return json_null();
	kinds = json_object();
	json_array_foreach(said, i, property) {
		const char *name = json_string_value(json_object_get(property, "name"));
		json_t *kind = json_object_get(property, "type");

		if (name && json_is_string(kind) && qom_is_value(json_string_value(kind)))
			json_object_set(kinds, name, kind);
	}
	return kinds;
}

int qom_read_types(struct qmp *q, struct qom *t, const struct qtree *shown,
		   struct qom_known *known, struct err *e)
{
	json_auto_t *asked = json_object();
	struct qmp_batch *b;
	const char *type;
	json_t *unused;
	size_t n = 0;
	int r;

	for (unsigned int i = 0; i < t->n; i++)
		if (may_be_device(t, i, shown) && !json_object_get(known->types, t->o[i].type))
			json_object_set_new(asked, t->o[i].type, json_null());
	b = qom_batch(json_object_size(asked), e);
	if (!b)
		return -ENOMEM;
	json_object_foreach(asked, type, unused)
		b[n++] = (struct qmp_batch){ .command = "device-list-properties",
					     .args = json_pack("{s:s}", "typename", type) };
	r = qmp_call_all(q, b, n, e);
	n = 0;
	json_object_foreach(asked, type, unused) {
		if (!r)
			json_object_set_new(known->types, type, take_type(b[n].ret));
		n++;
	}
	qom_batch_free(b, n);
	for (unsigned int i = 0; !r && i < t->n; i++)
		t->o[i].device |= may_be_device(t, i, shown) &&
				  json_is_object(json_object_get(known->types, t->o[i].type));
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

/**
 * struct reading - the values that are still to be asked for
 * @asks: what is not known becomes a question; else it is left out
 * @b: a command for each, of @n; room for @room
 * @of, @name: the object, and the property; NULL: the bus
 */
struct reading {
	struct qom *t;
	const struct qtree *shown;
	qom_wanted wanted;
	const struct qom_known *known;
	bool asks;
	struct qmp_batch *b;
	uint32_t *of;
	const char **name;
	size_t n, room;
};

static int reading_grow(struct reading *g, struct err *e)
{
	size_t room = g->room ? 2 * g->room : 256;
	struct qmp_batch *b = NULL;
	const char **name = NULL;
	uint32_t *of = NULL;

	if (room > QOM_GETS_MAX)
		return qom_too_many("properties", e);
	b = realloc(g->b, room * sizeof(*b));
	g->b = b ? b : g->b;
	of = realloc(g->of, room * sizeof(*of));
	g->of = of ? of : g->of;
	name = realloc(g->name, room * sizeof(*name));
	g->name = name ? name : g->name;
	if (!b || !of || !name)
		return qom_no_memory(e);
	g->room = room;
	return 0;
}

/* name NULL: on which bus is it? */
static int reading_ask(struct reading *g, uint32_t of, const char *name, struct err *e)
{
	int r;

	if (!g->asks)
		return 0;
	r = g->n < g->room ? 0 : reading_grow(g, e);
	if (r)
		return r;
	g->b[g->n] = qom_get(g->t->o[of].path, name ? name : "parent_bus");
	g->of[g->n] = of;
	g->name[g->n++] = name;
	return 0;
}

static int take_bus(struct qom_object *o, const json_t *said, struct err *e)
{
	const char *bus = json_string_value(said);

	free(o->bus);
	o->bus = strdup(bus ? bus : "");
	return o->bus ? 0 : qom_no_memory(e);
}

/* Has QEMU listed it with its values? */
static bool has_values(const struct reading *g, const struct qom_object *o)
{
	return g->t->bulk && o->listed;
}

/* What "info qtree" shows. A virtio proxy has its device's properties under their names. */
static json_t *shown_value(const struct qtree *shown, const struct qom_object *o, const char *name,
			   const char *kind)
{
	json_t *value;
	int behind;

	if (o->shown == QTREE_NONE)
		return NULL;
	value = qtree_value(shown, (size_t)o->shown, name, kind);
	behind = value ? QTREE_NONE : qtree_on_bus(shown, (size_t)o->shown, "virtio-bus");
	return behind == QTREE_NONE ? value : qtree_value(shown, (size_t)behind, name, kind);
}

static json_t *known_value(const struct reading *g, const struct qom_object *o, const char *name,
			   const char *kind)
{
	const json_t *listed = has_values(g, o) ? qom_listed(o, name) : NULL;

	if (listed)
		return whole(listed);
	return shown_value(g->shown, o, name, kind);
}

static int read_values(struct reading *g, unsigned int i, struct err *e)
{
	struct qom_object *o = &g->t->o[i];
	json_t *kinds = json_object_get(g->known->types, o->type), *kind;
	const char *name;
	int r = 0;

	json_object_foreach(kinds, name, kind) {
		const char *text = json_string_value(kind);
		json_t *value;

		if (!g->wanted(o->type, name, text) || is_repeated(g->t, i, name))
			continue;
		value = known_value(g, o, name, text);
		if (value)
			json_object_set_new(o->props, name, value);
		else if (!has_values(g, o))
			r = reading_ask(g, i, name, e);
		if (r)
			break;
	}
	return r;
}

static bool is_known_cpu(const struct reading *g, const struct qom_object *o)
{
	return qom_is_cpu(o) && g->known->cpu && g->known->wanted == g->wanted &&
	       !strcmp(g->known->cpu_type, o->type);
}

static int read_object(struct reading *g, unsigned int i, struct err *e)
{
	struct qom_object *o = &g->t->o[i];
	int r = 0;

	if (!o->device)
		return 0;
	if (has_values(g, o))
		r = take_bus(o, qom_listed(o, "parent_bus"), e);
	else if (!o->bus)
		r = g->asks ? reading_ask(g, i, NULL, e) : take_bus(o, NULL, e);
	if (r || !is_asked(g->t, i))
		return r;
	json_decref(o->props);
	o->props = is_known_cpu(g, o) ? json_copy(g->known->cpu) : json_object();
	if (!o->props)
		return qom_no_memory(e);
	return is_known_cpu(g, o) ? 0 : read_values(g, i, e);
}

static int read_objects(struct reading *g, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < g->t->n; i++)
		r = read_object(g, i, e);
	return r;
}

/* Instead of the questions: the objects of which anything is asked are listed with all values. */
static int read_by_lists(struct qmp *q, struct reading *g, struct err *e)
{
	unsigned int n = 0;
	int r;

	for (size_t k = 0; k < g->n; k++)
		if (!n || g->of[n - 1] != g->of[k])
			g->of[n++] = g->of[k];
	r = qom_list(q, g->t, g->of, n, e);
	g->asks = false;
	return r ? r : read_objects(g, e);
}

static int read_by_gets(struct qmp *q, struct reading *g, struct err *e)
{
	int r = qmp_call_all(q, g->b, g->n, e);

	for (size_t k = 0; !r && k < g->n; k++) {
		struct qom_object *o = &g->t->o[g->of[k]];

		if (!g->name[k])
			r = take_bus(o, g->b[k].ret, e);
		else if (g->b[k].ret)
			json_object_set_new(o->props, g->name[k], whole(g->b[k].ret));
	}
	return r;
}

static int keep_cpu(const struct qom *t, qom_wanted wanted, struct qom_known *known,
		    struct err *e)
{
	for (unsigned int i = 0; i < t->n; i++) {
		if (!qom_is_cpu(&t->o[i]) || !json_object_size(t->o[i].props))
			continue;
		json_decref(known->cpu);
		free(known->cpu_type);
		known->cpu = json_copy(t->o[i].props);
		known->cpu_type = strdup(t->o[i].type);
		known->wanted = wanted;
		if (known->cpu && known->cpu_type)
			return 0;
		json_decref(known->cpu);
		known->cpu = NULL;
		return qom_no_memory(e);
	}
	return 0;
}

int qom_read_props(struct qmp *q, struct qom *t, const struct qtree *shown, qom_wanted wanted,
		   struct qom_known *known, struct err *e)
{
	struct reading g = {
		.t = t, .shown = shown, .wanted = wanted, .known = known, .asks = true,
	};
	int r = read_objects(&g, e);

	if (!r)
		r = t->bulk ? read_by_lists(q, &g, e) : read_by_gets(q, &g, e);
	if (!r)
		r = keep_cpu(t, wanted, known, e);
	qom_batch_free(g.b, g.n);
	free(g.of);
	free(g.name);
	return r;
}
