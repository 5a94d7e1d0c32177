// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/compare_internal.h"
#include "fit/host.h"

#define SHOWN 80 /* characters of a value in a message */

/*
 * An integer and a double of the same value are alike: in a message of QEMU's with a number of 64
 * bits all numbers become doubles (qmp/qmp_stream.c).
 */
static bool same_value(const json_t *a, const json_t *b)
{
	if (json_is_number(a) && json_is_number(b) && !(json_is_integer(a) && json_is_integer(b))) {
		double x = json_number_value(a), y = json_number_value(b);

		return x <= y && y <= x;
	}
	return json_equal(a, b);
}

static const char *shown(const json_t *value, char *buf, size_t size)
{
	char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

	snprintf(buf, size, "%s", text ? text : "?");
	free(text);
	return buf;
}

/*
 * One version of QEMU may not know all keys of an object (smp's): only those that both have count.
 */
bool fit_alike(const json_t *a, const json_t *b)
{
	json_t *value;
	const char *key;

	if (!json_is_object(a) || !json_is_object(b))
		return same_value(a, b);
	json_object_foreach((json_t *)a, key, value)
		if (json_object_get(b, key) && !fit_alike(value, json_object_get(b, key)))
			return false;
	return true;
}

const char *fit_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void say_difference(const struct fit_thing *t, const struct policy_row *row,
			   const char *property, const json_t *a, const json_t *b,
			   enum fit_severity severity, struct findings *f)
{
	const char *option = row && row->option ? row->option : property;
	char x[SHOWN + 1], y[SHOWN + 1];

	findings_add(
		f, t->class, severity,
		"%s: %s is %s at the source and %s at the destination: give both QEMUs the same %s",
		t->name, property, shown(a, x, sizeof(x)), shown(b, y, sizeof(y)), option);
}

static bool is_on(const json_t *v)
{
	return json_is_true(v) ||
	       (json_is_number(v) && !(json_number_value(v) >= 0 && json_number_value(v) <= 0));
}

static bool is_text(const json_t *v, const char *text)
{
	return json_is_string(v) && !strcmp(json_string_value(v), text);
}

static bool is_auto_and_on(const json_t *a, const json_t *b)
{
	return (is_text(a, "auto") && is_text(b, "on")) || (is_text(a, "on") && is_text(b, "auto"));
}

void fit_judge(const struct fit_thing *t, const struct policy_row *row, const char *property,
	       const json_t *a, const json_t *b, struct findings *f)
{
	enum fit_severity severity = FIT_WARNING;

	switch (row ? row->rule : POLICY_SHOULD) {
	case POLICY_ANY:
	case POLICY_ELSEWHERE:
		return;
	case POLICY_SAME:
		/* "auto" is on wherever the host supports it. */
		severity =
			t->part == PART_MACHINE && is_auto_and_on(a, b) ? FIT_WARNING : FIT_FATAL;
		break;
	case POLICY_QEMU:
		severity = FIT_IMPOSSIBLE;
		break;
	case POLICY_SHOULD:
		if (is_text(a, "auto") || is_text(b, "auto"))
			return;
		break;
	case POLICY_FEATURE:
		/* A value that is neither true nor false: a level, a family, a name. */
		severity = json_is_boolean(a) && json_is_boolean(b) && json_is_true(b) ? FIT_WARNING
										       : FIT_FATAL;
		break;
	case POLICY_GROWS:
		severity = json_number_value(b) < json_number_value(a) ? FIT_FATAL : FIT_WARNING;
		break;
	case POLICY_AT_LEAST:
		severity = json_number_value(b) < json_number_value(a) ? FIT_IMPOSSIBLE : FIT_FATAL;
		break;
	case POLICY_ON:
		if (is_on(a) == is_on(b))
			return;
		severity = FIT_FATAL;
		break;
	}
	say_difference(t, row, property, a, b, severity, f);
}

void fit_compare_props(const struct fit_thing *t, const json_t *src, const json_t *dst,
		       const struct policy *p, struct findings *f)
{
	const char *property;
	json_t *a;

	json_object_foreach((json_t *)src, property, a) {
		const json_t *b = json_object_get(dst, property);

		if (b && !fit_alike(a, b))
			fit_judge(t, policy_find(p, t->part, t->type, property), property, a, b, f);
	}
}

void fit_compare(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f)
{
	const struct fit_thing machine = { PART_MACHINE, FIT_MACHINE, NULL, "machine" },
			       vcpus = { PART_VCPUS, FIT_CPU, NULL, "vCPUs" };

	fit_compare_props(&machine, json_object_get(src, "machine"),
			  json_object_get(dst, "machine"), p, f);
	fit_compare_props(&vcpus, json_object_get(src, "vcpus"), json_object_get(dst, "vcpus"), p,
			  f);
	fit_compare_cpu(src, dst, p, f);
	fit_compare_devices(src, dst, p, f);
	host_compare(src, dst, f);
	findings_sort(f);
}
