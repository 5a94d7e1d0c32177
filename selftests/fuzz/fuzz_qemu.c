// SPDX-License-Identifier: GPL-2.0-only
/*
 * What godwit takes from QEMU besides JSON: the list of its RAM, where that lies in the guest, its objects and devices, and
 * the device state that it has saved. No reading or writing outside of what was given, and what is let through keeps the promises of ramblocks.h
 * and saved.h.
 */
#include <stdlib.h>
#include <string.h>

#include "devstate/save.h"
#include "qom/qom_internal.h"
#include "vmm/mtree.h"
#include "vmm/ramblocks.h"

#define CHECK(cond)	do { if (!(cond)) abort(); } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_list(const uint8_t *data, size_t size, bool head)
{
	static const char header[] = "Block Name PSize Offset Used Total HVA RO\n";
	static struct ramblocks all;
	size_t before = head ? sizeof(header) - 1 : 0;
	char *text = malloc(before + size + 1);

	CHECK(text);
	memcpy(text, header, before);
	memcpy(text + before, data, size);
	text[before + size] = '\0';
	if (!ramblocks_parse(text, &all)) {
		CHECK(all.n <= RAMBLOCKS_MAX);
		for (unsigned int i = 0; i < all.n; i++) {
			const struct ramblock *b = &all.b[i];

			CHECK(*b->name && strlen(b->name) <= WIRE_NAME_MAX && ramblocks_find(&all, b->name) == b);
			CHECK(b->bytes && b->hva + b->bytes > b->hva);
		}
	}
	free(text);
}

static void fuzz_tree(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	uint64_t address;

	CHECK(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (mtree_address(text, "ram0", &address))
		CHECK(strstr(text, "ram0"));
	free(text);
}

static void fuzz_devices(const char *text)
{
	static const char *const kinds[] = { "bool", "int32", "str" };
	struct qtree t;

	CHECK(!qtree_parse(&t, text));
	for (size_t i = 0; i < t.nproperties; i++) {
		const struct qtree_property *p = &t.properties[i];

		CHECK(p->device >= 0 && (size_t)p->device < t.ndevices);
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			json_decref(qtree_value(&t, (size_t)p->device, p->name, kinds[k]));
	}
	for (size_t i = 0; i < t.ndevices; i++) {
		const struct qtree_device *d = &t.devices[i];
		int owner = t.buses[d->bus].device;

		/* Owners first. */
		CHECK(d->bus >= 0 && (size_t)d->bus < t.nbuses && owner < (int)i);
		CHECK(owner == QTREE_NONE || qtree_on_bus(&t, (size_t)owner, t.buses[d->bus].name) <= (int)t.ndevices - 1);
	}
	qtree_free(&t);
}

static void fuzz_objects(const char *text)
{
	struct qom t = { .o = calloc(QOM_OBJECTS_MAX, sizeof(*t.o)) };
	struct err e = { 0 };

	CHECK(t.o);
	if (!qom_take_tree(&t, text, &e))
		for (unsigned int i = 0; i < t.n; i++) {
			CHECK(t.o[i].parent == QOM_ROOT || t.o[i].parent < i);
			CHECK(!strncmp(t.o[i].path, "/machine/", 9) && *t.o[i].type);
		}
	qom_free(&t);
}

static void fuzz_monitor(const uint8_t *data, size_t size, bool devices)
{
	char *text = malloc(size + 1);

	CHECK(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (devices)
		fuzz_devices(text);
	else
		fuzz_objects(text);
	free(text);
}

static void fuzz_state(const uint8_t *data, size_t size, bool running)
{
	static const char machine[] = "pc-q35-11.1";
	uint8_t *in = malloc(size), *out = malloc(size + SAVE_MORE);
	long n;

	CHECK((in || !size) && out);
	if (size)
		memcpy(in, data, size);
	n = save_to_stream(in, size, machine, running, out);
	if (n >= 0) {
		size_t more = 1 + 4 + strlen(machine);

		CHECK((size_t)n == size + more + 7);
		CHECK(!memcmp(out, in, 8) && !memcmp(out + 8 + 5, machine, strlen(machine)));
		CHECK(!running || !memcmp(out + 8 + more, in + 8, size - 8));
	}
	free(in);
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size)
		return 0;
	if (data[0] & 8)
		fuzz_monitor(data + 1, size - 1, data[0] & 1);
	else if (data[0] & 4)
		fuzz_tree(data + 1, size - 1);
	else if (data[0] & 1)
		fuzz_list(data + 1, size - 1, data[0] & 2);
	else
		fuzz_state(data + 1, size - 1, data[0] & 2);
	return 0;
}
