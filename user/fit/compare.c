// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/compare.h"
#include "fit/host.h"

#define SHOWN	80	/* characters of a value in a message */

/**
 * struct thing - what two values belong to
 * @type: of the device, for the policy
 * @name: as the operator knows it: "disk0 (virtio-blk-pci at pcie.0/05.0)"
 */
struct thing {
	enum policy_part part;
	enum fit_class class;
	const char *type;
	const char *name;
};

/* Numbers of one value are alike: QEMU's message had one of 64 bits, so all in it became doubles (vmm/qmp_stream.c). */
static bool same(const json_t *a, const json_t *b)
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
 * An object may have keys that one version does not know (smp's): what both have counts. 0: something differs.
 */
static bool alike(const json_t *a, const json_t *b)
{
	json_t *value;
	const char *key;

	if (!json_is_object(a) || !json_is_object(b))
		return same(a, b);
	json_object_foreach((json_t *)a, key, value)
		if (json_object_get(b, key) && !alike(value, json_object_get(b, key)))
			return false;
	return true;
}

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static void say(const struct thing *t, const struct policy_row *row, const char *property, const json_t *a, const json_t *b,
		enum fit_severity severity, struct findings *f)
{
	const char *option = row && row->option ? row->option : property;
	char x[SHOWN + 1], y[SHOWN + 1];

	findings_add(f, t->class, severity, "%s: %s is %s at the source and %s at the destination: give both QEMUs the same %s",
		     t->name, property, shown(a, x, sizeof(x)), shown(b, y, sizeof(y)), option);
}

static bool is_on(const json_t *v)
{
	return json_is_true(v) || (json_is_number(v) && !(json_number_value(v) >= 0 && json_number_value(v) <= 0));
}

static bool is_text(const json_t *v, const char *text)
{
	return json_is_string(v) && !strcmp(json_string_value(v), text);
}

static bool is_auto_and_on(const json_t *a, const json_t *b)
{
	return (is_text(a, "auto") && is_text(b, "on")) || (is_text(a, "on") && is_text(b, "auto"));
}

static void judge(const struct thing *t, const struct policy_row *row, const char *property, const json_t *a, const json_t *b,
		  struct findings *f)
{
	enum fit_severity severity = FIT_WARNING;

	switch (row ? row->rule : POLICY_SHOULD) {
	case POLICY_ANY:
	case POLICY_ELSEWHERE:
		return;
	case POLICY_SAME:
		/* "auto" is on wherever that can be. */
		severity = t->part == PART_MACHINE && is_auto_and_on(a, b) ? FIT_WARNING : FIT_FATAL;
		break;
	case POLICY_QEMU:
		severity = FIT_IMPOSSIBLE;
		break;
	case POLICY_SHOULD:
		if (is_text(a, "auto") || is_text(b, "auto"))
			return;
		break;
	case POLICY_FEATURE:
		/* What is neither true nor false: a level, a family, a name. */
		severity = json_is_boolean(a) && json_is_boolean(b) && json_is_true(b) ? FIT_WARNING : FIT_FATAL;
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
	say(t, row, property, a, b, severity, f);
}

static void compare_props(const struct thing *t, const json_t *src, const json_t *dst, const struct policy *p, struct findings *f)
{
	const char *property;
	json_t *a;

	json_object_foreach((json_t *)src, property, a) {
		const json_t *b = json_object_get(dst, property);

		if (b && !alike(a, b))
			judge(t, policy_find(p, t->part, t->type, property), property, a, b, f);
	}
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted, as many as there is room for, and how many more. */
static void join(const char **names, size_t n, char *text, size_t size)
{
	size_t len = 0, i;

	*text = '\0';
	qsort(names, n, sizeof(*names), by_text);
	for (i = 0; i < n && len + strlen(names[i]) + 20 < size; i++)
		len += (size_t)snprintf(text + len, size - len, "%s%s", len ? ", " : "", names[i]);
	if (i < n)
		snprintf(text + len, size - len, " and %zu more", n - i);
}

/* QEMU has some names with '-' and with '_': the first is its own. */
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

/* Is it one of these? UNKNOWN: the QEMU at the destination has no such property, and has said all that it has. */
static bool is_such(const json_t *a, const json_t *b, enum features which, const char *name)
{
	if (which == UNKNOWN)
		return json_is_true(a) && !b && strncmp(name, "x-", 2) && strncmp(name, "legacy-", 7);
	return json_is_boolean(a) && json_is_boolean(b) && json_is_true(a) != json_is_true(b) && json_is_true(a) == (which == LACKING);
}

/* A feature more or less is one of hundreds: those that only one end has, in one line. */
static void list_features(const json_t *src, const json_t *dst, enum features which, const struct policy *p, char *text, size_t size)
{
	const char **names = calloc(json_object_size(src) + 1, sizeof(*names));
	const char *name;
	json_t *a;
	size_t n = 0;

	json_object_foreach((json_t *)src, name, a) {
		const json_t *b = json_object_get(dst, name);
		const struct policy_row *row = policy_find(p, PART_CPU, NULL, name);

		if (names && row && row->rule == POLICY_FEATURE && is_such(a, b, which, name) && !is_alias(src, name))
			names[n++] = name;
	}
	join(names, n, text, size);
	free(names);
}

/* "qemu64-x86_64-cpu" is what -cpu calls qemu64. */
static void model_of(const json_t *view, char *buf, size_t size)
{
	const char *model = text_of(json_object_get(view, "vcpus"), "model");
	const char *end = model ? strstr(model, "-x86_64-cpu") : NULL;

	snprintf(buf, size, "%.*s", model ? (int)(end ? end - model : (ptrdiff_t)strlen(model)) : 1, model ? model : "?");
}

/* Has the guest VMX (CPUID 1, ECX, bit 5)? */
static bool has_vmx(const json_t *words)
{
	const json_t *word;
	size_t i;

	json_array_foreach(words, i, word) {
		const char *reg = text_of(word, "cpuid-register");

		if (reg && !strcmp(reg, "ECX") && json_integer_value(json_object_get(word, "cpuid-input-eax")) == 1)
			return json_integer_value(json_object_get(word, "features")) & 1 << 5;
	}
	return true;	/* who knows */
}

bool fit_needs_features(const json_t *src, const json_t *dst)
{
	const json_t *a = json_object_get(src, "cpu"), *b = json_object_get(dst, "cpu");
	const json_t *words = json_object_get(a, "feature-words");

	/* "sse2" stands for them: every vCPU of 64 bits has it. */
	if (json_object_get(a, "sse2") && json_object_get(b, "sse2"))
		return false;
	return !json_is_array(words) || !json_equal(words, json_object_get(b, "feature-words")) || has_vmx(words);
}

static void compare_cpu(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f)
{
	const struct thing t = { PART_CPU, FIT_CPU, NULL, "vCPU" };
	const json_t *a = json_object_get(src, "cpu"), *b = json_object_get(dst, "cpu");
	char from[60], to[60];
	char text[300];
	const char *name;
	json_t *value;

	model_of(src, from, sizeof(from));
	model_of(dst, to, sizeof(to));
	list_features(a, b, LACKING, p, text, sizeof(text));
	if (*text)
		findings_add(f, FIT_CPU, FIT_FATAL, "the destination's CPU (%s) lacks %s, which the source's (%s) has: start the destination with the source's -cpu, or the guest with the -cpu of the weaker host",
			     to, text, from);
	list_features(a, b, FOUND, p, text, sizeof(text));
	if (*text)
		findings_add(f, FIT_CPU, FIT_WARNING, "the destination's CPU (%s) has %s, which the source's (%s) lacks: the guest finds them when it restarts",
			     to, text, from);
	list_features(a, b, UNKNOWN, p, text, sizeof(text));
	if (*text && json_object_get(b, "sse2"))
		findings_add(f, FIT_CPU, FIT_WARNING, "the destination's QEMU does not know %s, which the source's CPU (%s) has: use a newer QEMU there, or a -cpu that both know",
			     text, from);
	json_object_foreach((json_t *)a, name, value) {
		const json_t *other = json_object_get(b, name);

		if (other && !alike(value, other) && !(json_is_boolean(value) && json_is_boolean(other)))
			judge(&t, policy_find(p, PART_CPU, NULL, name), name, value, other, f);
	}
}

/* "disk0 (virtio-blk-pci at pcie.0/05.0)" */
static const char *device_name(const char *place, const json_t *device, char *buf, size_t size)
{
	const char *id = text_of(device, "id"), *type = text_of(device, "type");

	if (id)
		snprintf(buf, size, "%.60s (%.60s at %.120s)", id, type ? type : "?", place);
	else
		snprintf(buf, size, "%.60s at %.120s", type ? type : "?", place);
	return buf;
}

/* Is what it sits on missing as well? Then that has been said. */
static bool below_a_missing_one(const char *place, const json_t *from, const json_t *in)
{
	char above[600];
	char *end;

	snprintf(above, sizeof(above), "%s", place);
	while ((end = strrchr(above, '/'))) {
		*end = '\0';
		if (json_object_get(from, above) && !json_object_get(in, above))
			return true;
	}
	return false;
}

static const char *place_of_id(const json_t *devices, const char *id)
{
	const char *place;
	json_t *device;

	json_object_foreach((json_t *)devices, place, device) {
		const char *its = text_of(device, "id");

		if (id && its && !strcmp(id, its))
			return place;
	}
	return NULL;
}

/* What is no device of its own, and which only one version of QEMU has. */
static bool is_inner(const json_t *device)
{
	return !json_is_true(json_object_get(device, "plugged"));
}

static void missing(const char *place, const json_t *device, const json_t *there, struct findings *f)
{
	const char *elsewhere = place_of_id(there, text_of(device, "id"));
	char name[300];

	device_name(place, device, name, sizeof(name));
	if (elsewhere)
		findings_add(f, FIT_DEVICE, FIT_IMPOSSIBLE, "%s is at %.120s at the destination: give both QEMUs the same bus= and addr= for it", name, elsewhere);
	else
		findings_add(f, FIT_DEVICE, FIT_IMPOSSIBLE, "%s is missing at the destination: start its QEMU with the same -device", name);
}

static void extra(const char *place, const json_t *device, const json_t *here, struct findings *f)
{
	char name[300];

	/* That it is in another place has been said. */
	if (place_of_id(here, text_of(device, "id")))
		return;
	findings_add(f, FIT_DEVICE, FIT_FATAL, "the destination has %s, which the source lacks: start its QEMU without it",
		     device_name(place, device, name, sizeof(name)));
}

static void compare_device(const char *place, const json_t *a, const json_t *b, const struct policy *p, struct findings *f)
{
	const char *from = text_of(a, "type"), *to = text_of(b, "type");
	char name[300];
	struct thing t = { PART_DEVICE, FIT_DEVICE, from, device_name(place, a, name, sizeof(name)) };

	if (!from || !to)
		return;
	if (!strcmp(from, to))
		compare_props(&t, json_object_get(a, "props"), json_object_get(b, "props"), p, f);
	else
		judge(&t, policy_find(p, PART_DEVICE, NULL, "type"), "type", json_object_get(a, "type"), json_object_get(b, "type"), f);
}

static void compare_devices(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f)
{
	const json_t *here = json_object_get(src, "devices"), *there = json_object_get(dst, "devices");
	const char *place;
	json_t *device;

	if (!json_is_object(here) || !json_is_object(there))
		return;
	json_object_foreach((json_t *)here, place, device) {
		const json_t *other = json_object_get(there, place);

		if (other)
			compare_device(place, device, other, p, f);
		else if (!is_inner(device) && !below_a_missing_one(place, here, there))
			missing(place, device, there, f);
	}
	json_object_foreach((json_t *)there, place, device)
		if (!json_object_get(here, place) && !is_inner(device) && !below_a_missing_one(place, there, here))
			extra(place, device, here, f);
}

/* What has a table of things below it: RAM blocks, disks. */
static void compare_each(const json_t *src, const json_t *dst, const char *key, enum policy_part part, enum fit_class class,
			 const char *what, const struct policy *p, struct findings *f)
{
	const json_t *there = json_object_get(dst, key);
	json_t *here = json_object_get(src, key), *a;
	const char *place;

	json_object_foreach(here, place, a) {
		const char *id = text_of(json_object_get(json_object_get(src, "devices"), place), "id");
		char name[300];
		struct thing t = { part, class, NULL, name };

		snprintf(name, sizeof(name), "%s %.120s", what, id ? id : place);
		if (json_object_get(there, place))
			compare_props(&t, a, json_object_get(there, place), p, f);
	}
}

/* QEMU's own RAM (firmware, flash, displays): it refuses a block that it does not have, or of another size. */
static void compare_private(const json_t *src, const json_t *dst, struct findings *f)
{
	json_t *here = json_object_get(src, "private"), *a;
	const json_t *there = json_object_get(dst, "private");
	const char *name;

	if (!json_is_object(there))
		return;
	json_object_foreach(here, name, a) {
		const json_t *b = json_object_get(there, name);

		if (b && json_is_integer(a) && json_is_integer(b) && !json_equal(a, b))
			findings_add(f, FIT_MEMORY, FIT_IMPOSSIBLE, "%.80s has %lld KiB at the source and %lld KiB at the destination: give both QEMUs the same firmware (-bios, pflash), ROMs and displays",
				     name, (long long)json_integer_value(a) >> 10, (long long)json_integer_value(b) >> 10);
		else if (!b && !strchr(name, '/'))	/* else a device's, and that is missing */
			findings_add(f, FIT_MEMORY, FIT_IMPOSSIBLE, "%.80s is missing at the destination: give both QEMUs the same firmware (-bios, pflash)", name);
	}
}

/* A device of USB is known to QEMU by its port; that there is one too few, or too many, is said of the devices. */
static void compare_usb(const json_t *src, const json_t *dst, struct findings *f)
{
	json_t *here = json_object_get(src, "usb"), *a;
	const json_t *there = json_object_get(dst, "usb");
	const char *port;

	json_object_foreach(here, port, a) {
		const char *from = json_string_value(a), *to = text_of(there, port);

		if (!to && json_object_size(here) == json_object_size(there))
			to = "nothing";
		if (from && to && strcmp(from, to))
			findings_add(f, FIT_DEVICE, FIT_IMPOSSIBLE, "USB %.40s: there is \"%.60s\" at the source and \"%.60s\" at the destination: give both QEMUs the same port= for them",
				     port, from, to);
	}
}

/* What a user network has under way is part of QEMU's stream; other backends have nothing in it. */
static void compare_networks(const json_t *src, const json_t *dst, struct findings *f)
{
	const json_t *a = json_object_get(src, "user-networks"), *b = json_object_get(dst, "user-networks");

	if (json_is_integer(a) && json_is_integer(b) && !json_equal(a, b))
		findings_add(f, FIT_BACKEND, FIT_IMPOSSIBLE, "the source has %lld user networks (-netdev user) and the destination %lld: give both QEMUs the same",
			     (long long)json_integer_value(a), (long long)json_integer_value(b));
}

static bool has_text(const json_t *array, const char *text)
{
	const json_t *one;
	size_t i;

	json_array_foreach(array, i, one)
		if (json_is_string(one) && !strcmp(json_string_value(one), text))
			return true;
	return false;
}

/* A feature that the guest has taken, and the backend there does not offer. */
static void compare_virtio(const json_t *src, const json_t *dst, struct findings *f)
{
	json_t *here = json_object_get(src, "virtio"), *a;
	const char *place;

	json_object_foreach(here, place, a) {
		const json_t *offered = json_object_get(json_object_get(json_object_get(dst, "virtio"), place), "host"), *one;
		const json_t *device = json_object_get(json_object_get(src, "devices"), place);
		char lacks[300] = "", name[300];
		size_t i, len = 0;

		if (!json_is_array(offered))
			continue;
		json_array_foreach(json_object_get(a, "guest"), i, one) {
			const char *feature = json_string_value(one);

			if (feature && !has_text(offered, feature) && len + strlen(feature) + 3 < sizeof(lacks))
				len += (size_t)snprintf(lacks + len, sizeof(lacks) - len, "%s%s", len ? ", " : "", feature);
		}
		if (len)
			findings_add(f, FIT_BACKEND, FIT_IMPOSSIBLE, "%s: the guest uses %s, which the destination's does not offer: give it the same properties, and a backend (netdev, vhost) that can do that",
				     device_name(place, device, name, sizeof(name)), lacks);
	}
}

void fit_compare(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f)
{
	const struct thing machine = { PART_MACHINE, FIT_MACHINE, NULL, "machine" }, vcpus = { PART_VCPUS, FIT_CPU, NULL, "vCPUs" };

	compare_props(&machine, json_object_get(src, "machine"), json_object_get(dst, "machine"), p, f);
	compare_props(&vcpus, json_object_get(src, "vcpus"), json_object_get(dst, "vcpus"), p, f);
	compare_cpu(src, dst, p, f);
	compare_each(src, dst, "ram", PART_RAM, FIT_MEMORY, "RAM", p, f);
	compare_private(src, dst, f);
	compare_devices(src, dst, p, f);
	compare_usb(src, dst, f);
	compare_each(src, dst, "disks", PART_DISK, FIT_DISK, "disk", p, f);
	compare_networks(src, dst, f);
	compare_virtio(src, dst, f);
	host_compare(src, dst, f);
	findings_sort(f);
}
