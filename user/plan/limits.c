// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/limits.h"

const struct limits limits_default = {
	.downtime_limit_ms = 300, .max_rounds = 30, .postcopy = POSTCOPY_AUTO,
};

enum limit_kind { LIMIT_NUMBER, LIMIT_CHOICE, LIMIT_COMPRESS, LIMIT_THROTTLE };

/*
 * choices: the value of a LIMIT_CHOICE is an index into them. LIMIT_COMPRESS: it is a struct
 * codec_wish. LIMIT_THROTTLE: "off", "auto", or a number.
 */
static const struct limit {
	const char *name;
	size_t offset;
	unsigned int min, max;
	const char *const *choices;
	enum limit_kind kind;
} limits_table[] = {
	{ "downtime-limit", offsetof(struct limits, downtime_limit_ms), 1, 2000000, NULL, LIMIT_NUMBER },
	{ "downtime-ramp", offsetof(struct limits, downtime_ramp_ms), 0, 2000000, NULL, LIMIT_NUMBER },
	{ "max-rounds", offsetof(struct limits, max_rounds), 1, 10000, NULL, LIMIT_NUMBER },
	{ "timeout", offsetof(struct limits, timeout_s), 0, 10000000, NULL, LIMIT_NUMBER },
	{ "on-timeout", offsetof(struct limits, on_timeout), 0, 1,
	  (const char *const[]) { "cancel", "pause" }, LIMIT_CHOICE },
	{ "bandwidth", offsetof(struct limits, bandwidth_mib), 0, 1000000, NULL, LIMIT_NUMBER },
	{ "compress", offsetof(struct limits, compress), 0, 0, NULL, LIMIT_COMPRESS },
	{ "postcopy", offsetof(struct limits, postcopy), 0, 3,
	  (const char *const[]) { "off", "auto", "on", "now" }, LIMIT_CHOICE },
	{ "throttle", offsetof(struct limits, throttle), 1, THROTTLE_MAX, NULL, LIMIT_THROTTLE },
};

#define LIMITS (sizeof(limits_table) / sizeof(limits_table[0]))

static const struct limit *limits_find(const char *name)
{
	for (size_t i = 0; i < LIMITS; i++)
		if (!strcmp(limits_table[i].name, name))
			return &limits_table[i];
	return NULL;
}

static int limits_unknown(const char *name, struct err *e)
{
	return err_set(e, GW_USAGE, EINVAL, "there is no limit \"%.40s\"", name);
}

static unsigned int *limits_value(struct limits *l, const struct limit *t)
{
	return (unsigned int *)((char *)l + t->offset);
}

static int limits_set_number(struct limits *l, const struct limit *t, long long v, const char *text,
			     struct err *e)
{
	if (v < t->min || v > t->max)
		return err_set(e, GW_USAGE, EINVAL, "--%s takes a whole number from %u to %u, not \"%.40s\"", t->name, t->min, t->max,
			       text);
	*limits_value(l, t) = (unsigned int)v;
	return 0;
}

static int limits_set_choice(struct limits *l, const struct limit *t, const char *text,
			     struct err *e)
{
	char all[80] = "";

	for (unsigned int i = t->min; i <= t->max; i++) {
		size_t len = strlen(all);

		if (!strcmp(t->choices[i], text)) {
			*limits_value(l, t) = i;
			return 0;
		}
		snprintf(all + len, sizeof(all) - len, "%s\"%s\"", !i ? "" : i < t->max ? ", " : " or ",
			 t->choices[i]);
	}
	return err_set(e, GW_USAGE, EINVAL, "--%s takes %s, not \"%.40s\"", t->name, all, text);
}

static struct codec_wish *limits_compress(struct limits *l, const struct limit *t)
{
	return (struct codec_wish *)((char *)l + t->offset);
}

static int limits_set_throttle(struct limits *l, const struct limit *t, const char *text,
			       struct err *e)
{
	char *end;
	long long v;

	if (!strcmp(text, "off") || !strcmp(text, "auto")) {
		*limits_value(l, t) = *text == 'o' ? 0 : THROTTLE_AUTO;
		return 0;
	}
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || end == text || *end || v < t->min || v > t->max)
		return err_set(e, GW_USAGE, EINVAL, "--%s takes \"off\", \"auto\", or per cent from %u to %u, not \"%.40s\"",
			       t->name, t->min, t->max, text);
	*limits_value(l, t) = (unsigned int)v;
	return 0;
}

static int limits_set_text(struct limits *l, const struct limit *t, const char *text, struct err *e)
{
	if (t->kind == LIMIT_COMPRESS)
		return codec_parse(text, limits_compress(l, t), e);
	return t->kind == LIMIT_THROTTLE ? limits_set_throttle(l, t, text, e) :
					   limits_set_choice(l, t, text, e);
}

int limits_set(struct limits *l, const char *name, const char *text, struct err *e)
{
	const struct limit *t = limits_find(name);
	long long v;
	char *end;

	if (!t)
		return limits_unknown(name, e);
	if (t->kind != LIMIT_NUMBER)
		return limits_set_text(l, t, text, e);
	errno = 0;
	v = strtoll(text, &end, 10);
	return limits_set_number(l, t, errno || end == text || *end ? -1 : v, text, e);
}

static json_t *limits_one_to_json(const struct limits *l, const struct limit *t)
{
	char text[CODEC_TEXT];
	unsigned int v;

	if (t->kind == LIMIT_COMPRESS)
		return json_string(codec_wish_text(limits_compress((struct limits *)l, t), text));
	v = *limits_value((struct limits *)l, t);
	if (t->kind == LIMIT_THROTTLE)
		return v && v != THROTTLE_AUTO ? json_sprintf("%u", v) :
						 json_string(v ? "auto" : "off");
	return t->choices ? json_string(t->choices[v]) : json_integer(v);
}

json_t *limits_to_json(const struct limits *l)
{
	json_t *j = json_object();

	for (size_t i = 0; j && i < LIMITS; i++) {
		json_t *value = limits_one_to_json(l, &limits_table[i]);

		if (json_object_set_new(j, limits_table[i].name, value)) {
			json_decref(j);
			j = NULL;
		}
	}
	return j;
}

static int limits_set_json(struct limits *l, const struct limit *t, const json_t *value,
			   struct err *e)
{
	const bool text = t->kind != LIMIT_NUMBER;

	if (text && json_is_string(value))
		return limits_set_text(l, t, json_string_value(value), e);
	if (!text && json_is_integer(value)) {
		long long v = json_integer_value(value);
		char shown[32];

		snprintf(shown, sizeof(shown), "%lld", v);
		return limits_set_number(l, t, v, shown, e);
	}
	return err_set(e, GW_USAGE, EINVAL, "\"%s\" takes a %s", t->name,
		       text ? "string" : "whole number");
}

int limits_from_json(struct limits *l, const json_t *j, struct err *e)
{
	struct limits new = *l;
	const char *name;
	json_t *value;
	int r = 0;

	if (!json_is_object(j))
		return err_set(e, GW_USAGE, EINVAL, "the limits are not a JSON object");
	json_object_foreach((json_t *)j, name, value) {
		const struct limit *t = limits_find(name);

		r = t ? limits_set_json(&new, t, value, e) : limits_unknown(name, e);
		if (r)
			return r;
	}
	*l = new;
	return 0;
}
