// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "migrate/limits.h"

const struct limits limits_default = { .downtime_limit_ms = 300, .max_rounds = 30 };

/* words: a choice instead of a number; its place in the list is the value. */
static const struct limit {
	const char *name;
	size_t offset;
	unsigned int min, max;
	const char *const *words;
} table[] = {
	{ "downtime-limit", offsetof(struct limits, downtime_limit_ms), 1, 2000000, NULL },
	{ "downtime-ramp", offsetof(struct limits, downtime_ramp_ms), 0, 2000000, NULL },
	{ "max-rounds", offsetof(struct limits, max_rounds), 1, 10000, NULL },
	{ "timeout", offsetof(struct limits, timeout_s), 0, 10000000, NULL },
	{ "on-timeout", offsetof(struct limits, on_timeout), 0, 1, (const char *const[]){ "cancel", "pause" } },
	{ "bandwidth", offsetof(struct limits, bandwidth_mib), 0, 1000000, NULL },
};

#define LIMITS (sizeof(table) / sizeof(table[0]))

static const struct limit *find(const char *name)
{
	for (size_t i = 0; i < LIMITS; i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static unsigned int *at(struct limits *l, const struct limit *t)
{
	return (unsigned int *)((char *)l + t->offset);
}

static int set_number(struct limits *l, const struct limit *t, long long v, const char *text, struct err *e)
{
	if (v < t->min || v > t->max)
		return err_set(e, GW_USAGE, EINVAL, "--%s takes a whole number from %u to %u, not \"%.40s\"", t->name, t->min, t->max,
			       text);
	*at(l, t) = (unsigned int)v;
	return 0;
}

static int set_word(struct limits *l, const struct limit *t, const char *text, struct err *e)
{
	for (unsigned int i = t->min; i <= t->max; i++) {
		if (strcmp(t->words[i], text))
			continue;
		*at(l, t) = i;
		return 0;
	}
	return err_set(e, GW_USAGE, EINVAL, "--%s takes \"%s\" or \"%s\", not \"%.40s\"", t->name, t->words[0], t->words[1], text);
}

int limits_set(struct limits *l, const char *name, const char *text, struct err *e)
{
	const struct limit *t = find(name);
	long long v;
	char *end;

	if (!t)
		return err_set(e, GW_USAGE, EINVAL, "there is no limit \"%.40s\"", name);
	if (t->words)
		return set_word(l, t, text, e);
	errno = 0;
	v = strtoll(text, &end, 10);
	return set_number(l, t, errno || end == text || *end ? -1 : v, text, e);
}

json_t *limits_to_json(const struct limits *l)
{
	json_t *j = json_object();

	for (size_t i = 0; j && i < LIMITS; i++) {
		unsigned int v = *at((struct limits *)l, &table[i]);
		json_t *value = table[i].words ? json_string(table[i].words[v]) : json_integer(v);

		if (json_object_set_new(j, table[i].name, value)) {
			json_decref(j);
			j = NULL;
		}
	}
	return j;
}

static int set_json(struct limits *l, const struct limit *t, const json_t *value, struct err *e)
{
	if (t->words && json_is_string(value))
		return set_word(l, t, json_string_value(value), e);
	if (!t->words && json_is_integer(value))
		return set_number(l, t, json_integer_value(value), "that", e);
	return err_set(e, GW_USAGE, EINVAL, "\"%s\" takes a %s", t->name, t->words ? "string" : "whole number");
}

int limits_from_json(struct limits *l, const json_t *j, struct err *e)
{
	struct limits new = *l;
	const char *name;
	json_t *value;
	int r = 0;

	if (!json_is_object(j))
		return err_set(e, GW_USAGE, EINVAL, "limits are an object");
	json_object_foreach((json_t *)j, name, value) {
		const struct limit *t = find(name);

		r = t ? set_json(&new, t, value, e) : err_set(e, GW_USAGE, EINVAL, "there is no limit \"%.40s\"", name);
		if (r)
			return r;
	}
	*l = new;
	return 0;
}
