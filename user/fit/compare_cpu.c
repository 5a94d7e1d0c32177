// SPDX-License-Identifier: GPL-2.0-only
/* The features of a vCPU: some four hundred, of which one line names those that differ. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/compare_internal.h"

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Writes the names in order, as many as there is room for, and how many more there are. */
static void join_features(const char **names, size_t n, char *text, size_t size)
{
	size_t len = 0, i;

	*text = '\0';
	qsort(names, n, sizeof(*names), by_text);
	for (i = 0; i < n && len + strlen(names[i]) + 20 < size; i++)
		len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "", names[i]);
	if (i < n)
		snprintf(text + len, size - len, " and %zu more", n - i);
}

/* QEMU knows some names with '-' and with '_': the one with '-' is its own. */
static bool is_alias(const json_t *features, const char *name)
{
	char own[64];

	if (!strchr(name, '_') || strlen(name) >= sizeof(own))
		return false;
	for (size_t i = 0; i <= strlen(name); i++)
		own[i] = name[i] == '_' ? '-' : name[i];
	return json_object_get(features, own);
}

enum features { LACKING, FOUND, UNKNOWN };

/*
 * Is the feature one of these? UNKNOWN: the QEMU at the destination has no such property, although
 * it has listed all that it has.
 */
static bool is_such(const json_t *a, const json_t *b, enum features which, const char *name)
{
	if (which == UNKNOWN)
		return json_is_true(a) && !b && strncmp(name, "x-", 2) &&
		       strncmp(name, "legacy-", 7);
	return json_is_boolean(a) && json_is_boolean(b) && json_is_true(a) != json_is_true(b) &&
	       json_is_true(a) == (which == LACKING);
}

/* Lists the features that only one end has in one line: there are hundreds of features. */
static void list_features(const json_t *src, const json_t *dst, enum features which,
			  const struct policy *p, char *text, size_t size)
{
	const char **names = calloc(json_object_size(src) + 1, sizeof(*names));
	const char *name;
	json_t *a;
	size_t n = 0;

	json_object_foreach((json_t *)src, name, a) {
		const json_t *b = json_object_get(dst, name);
		const struct policy_row *row = policy_find(p, PART_CPU, NULL, name);

		if (names && row && row->rule == POLICY_FEATURE && is_such(a, b, which, name) &&
		    !is_alias(src, name))
			names[n++] = name;
	}
	join_features(names, n, text, size);
	free(names);
}

/* "qemu64-x86_64-cpu" is what -cpu calls qemu64. */
static void model_of(const json_t *view, char *buf, size_t size)
{
	const char *model = fit_text(json_object_get(view, "vcpus"), "model");
	const char *end = model ? strstr(model, "-x86_64-cpu") : NULL;

	snprintf(buf, size, "%.*s", model ? (int)(end ? end - model : (ptrdiff_t)strlen(model)) : 1,
		 model ? model : "?");
}

/* Has the guest VMX (CPUID 1, ECX, bit 5)? */
static bool has_vmx(const json_t *words)
{
	const json_t *word;
	size_t i;

	json_array_foreach(words, i, word) {
		const char *reg = fit_text(word, "cpuid-register");

		if (reg && !strcmp(reg, "ECX") &&
		    json_integer_value(json_object_get(word, "cpuid-input-eax")) == 1)
			return json_integer_value(json_object_get(word, "features")) & 1 << 5;
	}
	return true; /* not known */
}

bool fit_needs_features(const json_t *src, const json_t *dst)
{
	const json_t *a = json_object_get(src, "cpu"), *b = json_object_get(dst, "cpu");
	const json_t *words = json_object_get(a, "feature-words");

	/* "sse2" stands for them: every vCPU of 64 bits has it. */
	if (json_object_get(a, "sse2") && json_object_get(b, "sse2"))
		return false;
	return !json_is_array(words) || !json_equal(words, json_object_get(b, "feature-words")) ||
	       has_vmx(words);
}

void fit_compare_cpu(const json_t *src, const json_t *dst, const struct policy *p,
		     struct findings *f)
{
	const struct fit_thing t = { PART_CPU, FIT_CPU, NULL, "vCPU" };
	const json_t *a = json_object_get(src, "cpu"), *b = json_object_get(dst, "cpu");
	char from[60], to[60];
	char text[300];
	const char *name;
	json_t *value;

	model_of(src, from, sizeof(from));
	model_of(dst, to, sizeof(to));
	list_features(a, b, LACKING, p, text, sizeof(text));
	if (*text)
		findings_add(
			f, FIT_CPU, FIT_FATAL,
			"the destination's CPU (%s) lacks %s, which the source's (%s) has: start the destination with the source's -cpu, or the guest with the -cpu of the weaker host",
			to, text, from);
	list_features(a, b, FOUND, p, text, sizeof(text));
	if (*text)
		findings_add(
			f, FIT_CPU, FIT_WARNING,
			"the destination's CPU (%s) has %s, which the source's (%s) lacks: the guest finds them when it restarts",
			to, text, from);
	list_features(a, b, UNKNOWN, p, text, sizeof(text));
	if (*text && json_object_get(b, "sse2"))
		findings_add(
			f, FIT_CPU, FIT_WARNING,
			"the destination's QEMU does not know %s, which the source's CPU (%s) has: use a newer QEMU there, or a -cpu that both know",
			text, from);
	json_object_foreach((json_t *)a, name, value) {
		const json_t *other = json_object_get(b, name);

		if (other && !fit_alike(value, other) &&
		    !(json_is_boolean(value) && json_is_boolean(other)))
			fit_judge(&t, policy_find(p, PART_CPU, NULL, name), name, value, other, f);
	}
}
