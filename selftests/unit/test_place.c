// SPDX-License-Identifier: GPL-2.0-only
/* One name for one place in the guest, whatever ids and whichever QEMU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fit/place.h"

/* path, type, bus (NULL: no device), parent by path, properties */
struct one {
	const char *path, *type, *bus, *props;
};

#define PCI(devfn)	"{\"addr\": " #devfn ", \"multifunction\": false}"

static const struct one q35[] = {
	{ "/machine/peripheral", "container", NULL, NULL },
	{ "/machine/peripheral-anon", "container", NULL, NULL },
	{ "/machine/q35", "q35-pcihost", "/machine/unattached/sysbus", "{}" },
	{ "/machine/unattached", "container", NULL, NULL },
	{ "/machine/peripheral/disk0", "virtio-blk-pci", "/machine/q35/pcie.0", PCI(8) },
	{ "/machine/peripheral/net", "virtio-net-pci", "/machine/peripheral/rp/rp", PCI(0) },
	{ "/machine/peripheral/rp", "pcie-root-port", "/machine/q35/pcie.0", PCI(17) },
	{ "/machine/peripheral/scsi.my", "virtio-scsi-pci", "/machine/q35/pcie.0", PCI(24) },
	{ "/machine/peripheral/sd", "scsi-hd", "/machine/peripheral/scsi.my/virtio-backend/scsi.my.0", "{\"scsi-id\": 1, \"lun\": 2}" },
	{ "/machine/peripheral-anon/device[0]", "isa-serial", "/machine/unattached/device[3]/isa.0", "{\"index\": 0}" },
	{ "/machine/unattached/device[3]", "ICH9-LPC", "/machine/q35/pcie.0", PCI(248) },
	{ "/machine/unattached/device[4]", "i8257", "/machine/unattached/device[3]/isa.0", "{}" },
	{ "/machine/unattached/device[5]", "i8257", "/machine/unattached/device[3]/isa.0", "{}" },
	{ "/machine/unattached/device[6]", "ich9-ahci", "/machine/q35/pcie.0", PCI(250) },
	{ "/machine/unattached/device[7]", "ide-hd", "/machine/unattached/device[6]/ide.3", "{\"unit\": 0}" },
	{ "/machine/peripheral/scsi.my/virtio-backend", "virtio-scsi-device", "/machine/peripheral/scsi.my/virtio-bus", NULL },
	{ "/machine/peripheral-anon/device[0]/serial", "serial", "", "{}" },
	{ "/machine/peripheral/my-pxb", "pxb-pcie", "/machine/q35/pcie.0", "{\"addr\": 40, \"multifunction\": false, \"bus_nr\": 128}" },
	{ "/machine/unattached/device[20]", "pxb-host", "/machine/unattached/sysbus", "{}" },
	{ "/machine/peripheral/behind", "pcie-root-port", "/machine/unattached/device[20]/my-pxb", PCI(0) },
	{ "/machine/unattached/device[21]", "kvm-i8259", "/machine/unattached/device[3]/isa.0", "{\"iobase\": 32}" },
	{ "/machine/peripheral/tablet", "usb-tablet", "/machine/peripheral/usb/usb.0", "{\"port\": \"1\"}" },
	{ "/machine/peripheral/usb", "qemu-xhci", "/machine/q35/pcie.0", PCI(48) },
	{ "/machine/peripheral/my-dimm", "pc-dimm", "", "{\"slot\": 1, \"addr\": 4294967296}" },
};

static const char *const there[] = {
	"peripheral", "peripheral-anon", "unattached/q35-pcihost", "unattached", "pcie.0/01.0", "pcie.0/02.1/00.0", "pcie.0/02.1",
	"pcie.0/03.0", "pcie.0/03.0/virtio/scsi-hd scsi-id=1 lun=2", "pcie.0/1f.0/isa-serial index=0", "pcie.0/1f.0",
	"pcie.0/1f.0/i8257", "pcie.0/1f.0/i8257#1", "pcie.0/1f.2", "pcie.0/1f.2/3:ide-hd unit=0", "pcie.0/03.0/virtio",
	"pcie.0/1f.0/isa-serial index=0/serial", "pcie.0/05.0",
	"unattached/pxb-host", "bus 128/00.0", "pcie.0/1f.0/isa-i8259 iobase=32", "pcie.0/06.0/usb-tablet", "pcie.0/06.0", "pc-dimm slot=1",
};

#define N	(sizeof(q35) / sizeof(q35[0]))

static void fill(struct qom *t, const struct one *from, unsigned int n)
{
	t->n = n;
	t->o = calloc(n, sizeof(*t->o));
	for (unsigned int i = 0; i < n; i++) {
		struct qom_object *o = &t->o[i];
		size_t above;

		*o = (struct qom_object) {
			.path = strdup(from[i].path), .type = strdup(from[i].type), .bus = from[i].bus ? strdup(from[i].bus) : NULL,
			.device = from[i].bus, .parent = QOM_ROOT, .props = from[i].props ? json_loads(from[i].props, 0, NULL) : NULL,
		};
		o->name = strrchr(o->path, '/') + 1;
		above = (size_t)(o->name - o->path) - 1;
		for (unsigned int k = 0; k < n; k++)
			if (strlen(from[k].path) == above && !strncmp(from[k].path, o->path, above))
				o->parent = k;
	}
}

static void test_places(void **state)
{
	struct qom t = { 0 };
	char **places;

	(void)state;
	fill(&t, q35, N);
	places = place_all(&t);
	assert_non_null(places);
	for (unsigned int i = 0; i < N; i++)
		assert_string_equal(places[i], there[i]);
	places_free(places, &t);
	qom_free(&t);
}

/* 11.1 has some of the chipset's parts below others, and every operator has ids of their own. */
static void test_another_tree(void **state)
{
	static const struct one moved[] = {
		{ "/machine/q35", "q35-pcihost", "/machine/unattached/sysbus", "{}" },
		{ "/machine/peripheral/boot-disk", "virtio-blk-pci", "/machine/q35/pcie.0", PCI(8) },
		{ "/machine/q35/lpc", "ICH9-LPC", "/machine/q35/pcie.0", PCI(248) },
		{ "/machine/q35/lpc/dma[0]", "i8257", "/machine/q35/lpc/isa.0", "{}" },
		{ "/machine/q35/lpc/dma[1]", "i8257", "/machine/q35/lpc/isa.0", "{}" },
	};
	static const char *const same[] = { NULL, "pcie.0/01.0", "pcie.0/1f.0", "pcie.0/1f.0/i8257", "pcie.0/1f.0/i8257#1" };
	struct qom t = { 0 };
	char **places;

	(void)state;
	fill(&t, moved, sizeof(moved) / sizeof(moved[0]));
	places = place_all(&t);
	for (unsigned int i = 1; i < t.n; i++)
		assert_string_equal(places[i], same[i]);
	places_free(places, &t);
	qom_free(&t);
}

/* No QEMU says such a thing: a bus of its own, in a circle, of no device, a wrong address, endless names. */
static void test_odd(void **state)
{
	static char endless[2000];
	const struct one odd[] = {
		{ "/machine/a", "pci-bridge", "/machine/b/b", PCI(8) },
		{ "/machine/b", "pci-bridge", "/machine/a/a", PCI(9) },
		{ "/machine/c", "pci-bridge", "/machine/c/c", PCI(-1) },
		{ "/machine/d", "x", "nowhere", "{}" },
		{ "/machine/e", "x", "/nobody/bus", "{\"port\": [], \"nr\": 99999999999999}" },
		{ endless, endless, endless, "{}" },
		{ "/machine/f", "x", endless, "{}" },
	};
	struct qom t = { 0 };
	char **places;

	(void)state;
	memset(endless, 'e', sizeof(endless) - 1);
	endless[0] = '/';
	fill(&t, odd, sizeof(odd) / sizeof(odd[0]));
	places = place_all(&t);
	assert_non_null(places);
	places_free(places, &t);
	qom_free(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_another_tree),
		cmocka_unit_test(test_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
