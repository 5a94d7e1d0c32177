// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/view_internal.h"

/*
 * The place of an object that QEMU names by its path or by its id. The place of a virtio device is
 * that of its proxy.
 */
static const char *place_named(const struct making *m, const char *name)
{
	const struct qom_object *o;
	char path[600];

	snprintf(path, sizeof(path), "%s%s", *name == '/' ? "" : "/machine/peripheral/", name);
	o = qom_find(&m->qom, path);
	if (o && !strcmp(o->name, "virtio-backend") && o->parent != QOM_ROOT)
		o = &m->qom.o[o->parent];
	return o ? m->places[o - m->qom.o] : NULL;
}

int view_add_disks(struct making *m, struct err *e)
{
	json_auto_t *list = NULL;
	json_t *disks = json_object();
	const json_t *one;
	size_t i;
	int r = qmp_call(m->q, "query-block", NULL, &list, e);

	json_array_foreach(list, i, one) {
		const char *qdev = json_string_value(json_object_get(one, "qdev"));
		const char *name = json_string_value(json_object_get(one, "device"));
		const char *place = qdev && *qdev ? place_named(m, qdev) : NULL;
		const json_t *inserted = json_object_get(one, "inserted"), *bytes;

		if (!place)
			place = name && *name ? name : NULL;
		if (!place)
			continue;
		bytes = json_object_get(json_object_get(inserted, "image"), "virtual-size");
		json_object_set_new(disks, place,
				    json_pack("{s:b, s:O*, s:O*}", "medium", !!inserted, "bytes",
					      bytes, "read-only", json_object_get(inserted, "ro")));
	}
	json_object_set_new(m->view, "disks", disks);
	return r;
}

/*
 * Adds what is plugged into which USB port. No object has the port that QEMU has chosen; only the
 * human monitor reports it:
 *
 *	  Device 0.1, Port 1, Speed 12 Mb/s, Product QEMU USB Tablet, ID: tablet0
 */
int view_add_usb(struct making *m, struct err *e)
{
	json_t *usb = json_object();
	char *text;
	int r = qmp_monitor(m->q, "info usb", &text, e);

	for (char *save, *line = text ? strtok_r(text, "\r\n", &save) : NULL; line;
	     line = strtok_r(NULL, "\r\n", &save)) {
		const char *product = strstr(line, "Product ");
		char port[32], name[60];
		unsigned int bus, device;

		if (sscanf(line, " Device %u.%u, Port %31[^,]", &bus, &device, port) != 3 ||
		    !product)
			continue;
		snprintf(name, sizeof(name), "bus %u, port %s", bus, port);
		product += strlen("Product ");
		json_object_set_new(usb, name, json_stringn(product, strcspn(product, ",")));
	}
	json_object_set_new(m->view, "usb", usb);
	free(text);
	return r;
}

static void add_names(json_t *to, const json_t *features)
{
	const json_t *one;
	size_t i;

	/* "VIRTIO_NET_F_MAC: Device has given MAC address" */
	json_array_foreach(features, i, one) {
		const char *text = json_string_value(one);

		if (text)
			json_array_append_new(to, json_stringn(text, strcspn(text, ":")));
	}
}

static json_t *feature_names(const json_t *status, const char *key)
{
	const json_t *features = json_object_get(status, key);
	json_t *names = json_array();

	add_names(names, json_object_get(features, "transports"));
	add_names(names, json_object_get(features, "dev-features"));
	return names;
}

/*
 * Only QEMU 7.2 is asked: 11.1 aborts on x-query-virtio-status (an assertion of
 * visit_start_struct(), seen with every virtio device), older ones do not know it, and a question
 * must never kill a guest.
 */
static bool tells_virtio(struct qmp *q)
{
	return qmp_version(q) >= 70200 && qmp_version(q) < 70300;
}

int view_add_virtio(struct making *m, struct err *e)
{
	struct qmp_batch devices = { .command = "x-query-virtio" }, *b;
	json_t *virtio;
	const json_t *one;
	size_t i, n;
	int r = tells_virtio(m->q) ? qmp_call_all(m->q, &devices, 1, e) : 0;

	virtio = json_object();

	json_object_set_new(m->view, "virtio", virtio);
	n = json_array_size(devices.ret);
	b = calloc(n + 1, sizeof(*b));
	if (!r && !b)
		r = view_no_memory(e);
	if (!r)
		json_array_foreach(devices.ret, i, one)
			b[i] = (struct qmp_batch){
				.command = "x-query-virtio-status",
				.args = json_pack("{s:O?}", "path", json_object_get(one, "path")),
			};
	if (!r)
		r = qmp_call_all(m->q, b, n, e);
	for (i = 0; b && i < n; i++) {
		const char *path =
			json_string_value(json_object_get(json_array_get(devices.ret, i), "path"));
		const char *place = path ? place_named(m, path) : NULL;

		if (place && b[i].ret)
			json_object_set_new(virtio, place,
					    json_pack("{s:o, s:o}", "guest",
						      feature_names(b[i].ret, "guest-features"),
						      "host",
						      feature_names(b[i].ret, "host-features")));
		json_decref(b[i].ret);
	}
	free(b);
	json_decref(devices.ret);
	return r;
}
