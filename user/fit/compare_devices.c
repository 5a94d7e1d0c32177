// SPDX-License-Identifier: GPL-2.0-only
/* Devices by their places, what is in them and behind them, and QEMU's private RAM. */
#include <stdio.h>
#include <string.h>

#include "fit/compare_internal.h"

/* "disk0 (virtio-blk-pci at pcie.0/05.0)" */
static const char *device_name(const char *place, const json_t *device, char *buf, size_t size)
{
	const char *id = fit_text(device, "id"), *type = fit_text(device, "type");

	if (id)
		snprintf(buf, size, "%.60s (%.60s at %.120s)", id, type ? type : "?", place);
	else
		snprintf(buf, size, "%.60s at %.120s", type ? type : "?", place);
	return buf;
}

/* Is the device that it sits on missing as well? Then a finding names that one already. */
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
		const char *its = fit_text(device, "id");

		if (id && its && !strcmp(id, its))
			return place;
	}
	return NULL;
}

/* Is it a part of another device? Such a part may exist in one version of QEMU only. */
static bool is_inner(const json_t *device)
{
	return !json_is_true(json_object_get(device, "plugged"));
}

static void missing(const char *place, const json_t *device, const json_t *there,
		    struct findings *f)
{
	const char *elsewhere = place_of_id(there, fit_text(device, "id"));
	char name[300];

	device_name(place, device, name, sizeof(name));
	if (elsewhere)
		findings_add(
			f, FIT_DEVICE, FIT_IMPOSSIBLE,
			"%s is at %.120s at the destination: give both QEMUs the same bus= and addr= for it",
			name, elsewhere);
	else
		findings_add(
			f, FIT_DEVICE, FIT_IMPOSSIBLE,
			"%s is missing at the destination: start its QEMU with the same -device",
			name);
}

static void extra(const char *place, const json_t *device, const json_t *here, struct findings *f)
{
	char name[300];

	/* A finding says already that it is in another place. */
	if (place_of_id(here, fit_text(device, "id")))
		return;
	findings_add(f, FIT_DEVICE, FIT_FATAL,
		     "the destination has %s, which the source lacks: start its QEMU without it",
		     device_name(place, device, name, sizeof(name)));
}

static void compare_device(const char *place, const json_t *a, const json_t *b,
			   const struct policy *p, struct findings *f)
{
	const char *from = fit_text(a, "type"), *to = fit_text(b, "type");
	char name[300];
	struct fit_thing t = { PART_DEVICE, FIT_DEVICE, from,
			       device_name(place, a, name, sizeof(name)) };

	if (!from || !to)
		return;
	if (!strcmp(from, to))
		fit_compare_props(&t, json_object_get(a, "props"), json_object_get(b, "props"), p,
				  f);
	else
		fit_judge(&t, policy_find(p, PART_DEVICE, NULL, "type"), "type",
			  json_object_get(a, "type"), json_object_get(b, "type"), f);
}

static void compare_devices(const json_t *src, const json_t *dst, const struct policy *p,
			    struct findings *f)
{
	const json_t *here = json_object_get(src, "devices"),
		     *there = json_object_get(dst, "devices");
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
		if (!json_object_get(here, place) && !is_inner(device) &&
		    !below_a_missing_one(place, there, here))
			extra(place, device, here, f);
}

/* Compares the things in a table of the view: RAM blocks, disks. */
static void compare_each(const json_t *src, const json_t *dst, const char *key,
			 enum policy_part part, enum fit_class class, const char *what,
			 const struct policy *p, struct findings *f)
{
	const json_t *there = json_object_get(dst, key);
	json_t *here = json_object_get(src, key), *a;
	const char *place;

	json_object_foreach(here, place, a) {
		const char *id =
			fit_text(json_object_get(json_object_get(src, "devices"), place), "id");
		char name[300];
		struct fit_thing t = { part, class, NULL, name };

		snprintf(name, sizeof(name), "%s %.120s", what, id ? id : place);
		if (json_object_get(there, place))
			fit_compare_props(&t, a, json_object_get(there, place), p, f);
	}
}

/* Of a block; NULL: this end does not say. */
static const json_t *compare_bytes(const json_t *view, const char *name)
{
	const json_t *ram = json_object_get(json_object_get(view, "host"), "ram");

	return json_object_get(json_object_get(ram, name), "bytes");
}

/* Has the destination a block of this size where the source has this one? */
static bool compare_ram_is_there(const json_t *src, const json_t *dst, const char *name,
				 const json_t *block)
{
	const json_t *address = json_object_get(block, "address"), *there;
	const json_t *bytes = compare_bytes(src, name), *its;
	const char *other;

	json_object_foreach(json_object_get(dst, "ram"), other, there) {
		if (!address || !fit_alike(address, json_object_get(there, "address")))
			continue;
		its = compare_bytes(dst, other);
		if (!bytes || !its || fit_alike(bytes, its))
			return true;
	}
	return false;
}

/* What has another name at the destination and lies where it does here: save mode moves it. */
static void compare_ram(const json_t *src, const json_t *dst, const struct policy *p,
			struct findings *f)
{
	const json_t *there = json_object_get(dst, "ram");
	json_t *here = json_object_get(src, "ram"), *a;
	const char *name;

	json_object_foreach(here, name, a) {
		char text[160];
		const struct fit_thing t = { PART_RAM, FIT_MEMORY, NULL, text };

		snprintf(text, sizeof(text), "RAM %.120s", name);
		if (!compare_ram_is_there(src, dst, name, a))
			fit_compare_props(&t, a, json_object_get(there, name), p, f);
	}
}

/*
 * QEMU's private RAM (firmware, flash, displays): QEMU refuses a block that it does not have, or
 * that has another size.
 */
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
			findings_add(
				f, FIT_MEMORY, FIT_IMPOSSIBLE,
				"%.80s has %lld KiB at the source and %lld KiB at the destination: give both QEMUs the same firmware (-bios, pflash), ROMs and displays",
				name, (long long)json_integer_value(a) >> 10,
				(long long)json_integer_value(b) >> 10);
		else if (!b && !strchr(name, '/')) /* else it belongs to a device that is missing */
			findings_add(
				f, FIT_MEMORY, FIT_IMPOSSIBLE,
				"%.80s is missing at the destination: give both QEMUs the same firmware (-bios, pflash)",
				name);
	}
}

/*
 * QEMU knows a USB device by its port. Whether there is one too few, or too many, the findings on
 * devices say.
 */
static void compare_usb(const json_t *src, const json_t *dst, struct findings *f)
{
	json_t *here = json_object_get(src, "usb"), *a;
	const json_t *there = json_object_get(dst, "usb");
	const char *port;

	json_object_foreach(here, port, a) {
		const char *from = json_string_value(a), *to = fit_text(there, port);

		if (!to && json_object_size(here) == json_object_size(there))
			to = "nothing";
		if (from && to && strcmp(from, to))
			findings_add(
				f, FIT_DEVICE, FIT_IMPOSSIBLE,
				"USB %.40s: there is \"%.60s\" at the source and \"%.60s\" at the destination: give both QEMUs the same port= for them",
				port, from, to);
	}
}

/*
 * The connections of a user network are part of QEMU's stream; other backends have nothing in it.
 */
static void compare_networks(const json_t *src, const json_t *dst, struct findings *f)
{
	const json_t *a = json_object_get(src, "user-networks"),
		     *b = json_object_get(dst, "user-networks");

	if (json_is_integer(a) && json_is_integer(b) && !json_equal(a, b))
		findings_add(
			f, FIT_BACKEND, FIT_IMPOSSIBLE,
			"the source has %lld user networks (-netdev user) and the destination %lld: give both QEMUs the same",
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

/* Finds features that the guest uses, and the destination's backend does not offer. */
static void compare_virtio(const json_t *src, const json_t *dst, struct findings *f)
{
	json_t *here = json_object_get(src, "virtio"), *a;
	const char *place;

	json_object_foreach(here, place, a) {
		const json_t *offered = json_object_get(
				     json_object_get(json_object_get(dst, "virtio"), place),
				     "host"),
			     *one;
		const json_t *device = json_object_get(json_object_get(src, "devices"), place);
		char lacks[300] = "", name[300];
		size_t i, len = 0;

		if (!json_is_array(offered))
			continue;
		json_array_foreach(json_object_get(a, "guest"), i, one) {
			const char *feature = json_string_value(one);

			if (feature && !has_text(offered, feature) &&
			    len + strlen(feature) + 3 < sizeof(lacks))
				len += (size_t)snprintf(lacks + len, sizeof(lacks) - len, "%s%s",
							len ? ", " : "", feature);
		}
		if (len)
			findings_add(
				f, FIT_BACKEND, FIT_IMPOSSIBLE,
				"%s: the guest uses %s, which the destination's device does not offer: give it the same properties, and a backend (netdev, vhost) that supports them",
				device_name(place, device, name, sizeof(name)), lacks);
	}
}

void fit_compare_devices(const json_t *src, const json_t *dst, const struct policy *p,
			 struct findings *f)
{
	compare_ram(src, dst, p, f);
	compare_private(src, dst, f);
	compare_devices(src, dst, p, f);
	compare_usb(src, dst, f);
	compare_each(src, dst, "disks", PART_DISK, FIT_DISK, "disk", p, f);
	compare_networks(src, dst, f);
	compare_virtio(src, dst, f);
}
