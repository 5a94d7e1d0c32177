// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qom/qom_internal.h"

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

int qom_add(struct qom *t, uint32_t parent, const char *name, const char *type, struct err *e)
{
	const char *above = parent == QOM_ROOT ? "/machine" : t->o[parent].path;
	struct qom_object *o;
	size_t len = strlen(above);

	if (is_plumbing(type))
		return 0;
	if (t->n == QOM_OBJECTS_MAX)
		return qom_too_many("objects", e);
	o = &t->o[t->n];
	*o = (struct qom_object){ .parent = parent,
				  .path = malloc(len + strlen(name) + 2),
				  .type = strdup(type),
				  .shown = QTREE_NONE };
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

void qom_sort(struct qom *t, unsigned int first)
{
	qsort(t->o + first, t->n - first, sizeof(*t->o), qom_by_name);
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

/* What QEMU refuses stays NULL, and is asked for in other ways. */
static int read_texts(struct qmp *q, char **tree, char **shown, struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "human-monitor-command",
		  .args = json_pack("{s:s}", "command-line", "info qom-tree /machine") },
		{ .command = "human-monitor-command",
		  .args = json_pack("{s:s}", "command-line", "info qtree") },
	};
	int r = qmp_call_all(q, b, 2, e);

	*tree = *shown = NULL;
	if (!r && json_is_string(b[0].ret))
		*tree = strdup(json_string_value(b[0].ret));
	if (!r && json_is_string(b[1].ret))
		*shown = strdup(json_string_value(b[1].ret));
	json_decref(b[0].ret);
	json_decref(b[1].ret);
	return r;
}

static void qom_empty(struct qom *t)
{
	for (unsigned int i = 0; i < t->n; i++) {
		free(t->o[i].path);
		free(t->o[i].type);
		free(t->o[i].bus);
		json_decref(t->o[i].props);
		json_decref(t->o[i].listed);
	}
	t->n = 0;
}

/* Without the text, or with one of another form, by questions. */
static int read_tree(struct qmp *q, struct qom *t, const char *text, struct err *e)
{
	int r = text ? qom_take_tree(t, text, e) : -EPROTO;

	if (r != -EPROTO)
		return r;
	qom_empty(t);
	return qom_list_tree(q, t, e);
}

static int read_all(struct qmp *q, qom_wanted wanted, struct qom_known *known, struct qom *t,
		    struct qtree *shown, struct err *e)
{
	char *tree, *text;
	int r = read_texts(q, &tree, &text, e);

	if (!r)
		r = read_tree(q, t, tree, e);
	if (!r && qtree_parse(shown, text))
		r = qom_no_memory(e);
	free(tree);
	free(text);
	if (!r)
		r = qom_read_types(q, t, shown, known, e);
	if (!r)
		r = qom_find_shown(t, shown, e);
	return r ? r : qom_read_props(q, t, shown, wanted, known, e);
}

int qom_read(struct qmp *q, qom_wanted wanted, struct qom_known *known, struct qom *t,
	     struct err *e)
{
	struct qtree shown = { .text = NULL };
	int r;

	t->n = 0;
	t->bulk = qmp_version(q) >= QOM_BULK;
	t->o = calloc(QOM_OBJECTS_MAX, sizeof(*t->o));
	if (!known->types)
		known->types = json_object();
	if (t->o && known->types)
		r = read_all(q, wanted, known, t, &shown, e);
	else
		r = qom_no_memory(e);
	qtree_free(&shown);
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
	qom_empty(t);
	free(t->o);
	t->o = NULL;
}

void qom_known_free(struct qom_known *known)
{
	json_decref(known->types);
	json_decref(known->cpu);
	free(known->cpu_type);
	*known = (struct qom_known){ .types = NULL };
}
