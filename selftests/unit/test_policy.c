// SPDX-License-Identifier: GPL-2.0-only
/* What each difference between both ends means: a row of the policy table that is lost, or changed, is noticed here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fit/compare.h"

#define NONE	-1	/* no difference at all */

/**
 * struct fact - a property that differs, and what it must mean
 * @values: at the source and at the destination, JSON
 * @severity: enum fit_severity, or NONE
 * @option: that the message names, or NULL
 */
struct fact {
	enum policy_part part;
	const char *type, *property, *values[2];
	int severity;
	const char *option;
};

#define MACHINE	PART_MACHINE, NULL
#define CPU	PART_CPU, NULL
#define VCPUS	PART_VCPUS, NULL
#define TEXT	{ "\"a\"", "\"b\"" }
#define NUMBER	{ "1", "2" }
#define LOST	{ "true", "false" }
#define FOUND	{ "false", "true" }

static const struct fact facts[] = {
	{ MACHINE, "type", TEXT, FIT_IMPOSSIBLE, "-machine" },
	{ MACHINE, "append", TEXT, NONE, NULL },
	{ MACHINE, "dtb", TEXT, NONE, NULL },
	{ MACHINE, "dumpdtb", TEXT, NONE, NULL },
	{ MACHINE, "firmware", TEXT, NONE, NULL },
	{ MACHINE, "initrd", TEXT, NONE, NULL },
	{ MACHINE, "kernel", TEXT, NONE, NULL },
	{ MACHINE, "shim", TEXT, NONE, NULL },
	{ MACHINE, "pflash0", TEXT, NONE, NULL },
	{ MACHINE, "boot", { "{\"order\": \"c\"}", "{\"order\": \"d\"}" }, NONE, NULL },
	{ MACHINE, "pcspk-audiodev", TEXT, NONE, NULL },
	{ MACHINE, "aux-ram-share", LOST, NONE, NULL },
	{ MACHINE, "dump-guest-core", LOST, NONE, NULL },
	{ MACHINE, "mem-merge", LOST, NONE, NULL },
	{ MACHINE, "memory-backend", TEXT, NONE, NULL },
	{ MACHINE, "graphics", LOST, NONE, NULL },
	{ MACHINE, "suppress-vmdesc", LOST, NONE, NULL },
	{ MACHINE, "bus-lock-ratelimit", NUMBER, NONE, NULL },
	{ MACHINE, "rtc-time", { "{\"tm_sec\": 1}", "{\"tm_sec\": 2}" }, NONE, NULL },
	{ MACHINE, "device-memory-region-size", NUMBER, NONE, NULL },
	{ MACHINE, "smp", { "{\"cores\": 1}", "{\"cores\": 2}" }, NONE, NULL },
	{ MACHINE, "memory", { "{\"slots\": 1}", "{\"slots\": 2}" }, FIT_IMPOSSIBLE, "maxmem=" },
	{ MACHINE, "uuid", TEXT, FIT_FATAL, "-uuid" },
	{ MACHINE, "nodes", NUMBER, FIT_FATAL, "-numa" },
	{ MACHINE, "smm", { "\"on\"", "\"off\"" }, FIT_FATAL, "-machine" },
	{ MACHINE, "smm", { "\"auto\"", "\"on\"" }, FIT_WARNING, "-machine" },
	{ MACHINE, "pit", { "\"auto\"", "\"off\"" }, FIT_FATAL, "-machine" },
	{ MACHINE, "max-ram-below-4g", NUMBER, FIT_FATAL, "-machine" },
	{ MACHINE, "hpet", LOST, FIT_IMPOSSIBLE, "-machine" },

	{ VCPUS, "model", TEXT, NONE, NULL },
	{ VCPUS, "accelerator", TEXT, FIT_FATAL, "-accel" },
	{ VCPUS, "smp", { "{\"cores\": 1, \"x\": 1}", "{\"cores\": 2}" }, FIT_FATAL, "-smp" },
	{ VCPUS, "smp", { "{\"cores\": 2, \"drawers\": 1}", "{\"cores\": 2}" }, NONE, NULL },
	{ VCPUS, "count", NUMBER, FIT_FATAL, "-smp" },
	{ VCPUS, "count", { "2", "1" }, FIT_IMPOSSIBLE, "-smp" },
	{ VCPUS, "vCPU 1", TEXT, FIT_FATAL, "-smp" },

	{ CPU, "avx2", LOST, FIT_FATAL, "-cpu" },
	{ CPU, "avx2", FOUND, FIT_WARNING, NULL },
	{ CPU, "family", NUMBER, FIT_FATAL, "-cpu" },
	{ CPU, "vendor", TEXT, FIT_FATAL, "-cpu" },
	{ CPU, "phys-bits", NUMBER, FIT_FATAL, "-cpu" },
	{ CPU, "hv-spinlocks", NUMBER, FIT_FATAL, "-cpu" },
	{ CPU, "level-func7", NUMBER, FIT_WARNING, "-cpu" },
	{ CPU, "level", { "13", "12" }, FIT_FATAL, "-cpu" },
	{ CPU, "xlevel", NUMBER, FIT_WARNING, "-cpu" },
	{ CPU, "xlevel2", { "2", "1" }, FIT_FATAL, "-cpu" },
	{ CPU, "stepping", NUMBER, FIT_WARNING, "-cpu" },
	{ CPU, "ucode-rev", NUMBER, FIT_WARNING, "-cpu" },
	{ CPU, "tsc-frequency", NUMBER, NONE, NULL },	/* host.h knows more */
	{ CPU, "model-id", TEXT, FIT_WARNING, "-cpu" },
	{ CPU, "hv-vendor-id", TEXT, FIT_FATAL, "-cpu" },
	{ CPU, "apic-id", NUMBER, NONE, NULL },
	{ CPU, "socket-id", NUMBER, NONE, NULL },
	{ CPU, "die-id", NUMBER, NONE, NULL },
	{ CPU, "module-id", NUMBER, NONE, NULL },
	{ CPU, "core-id", NUMBER, NONE, NULL },
	{ CPU, "thread-id", NUMBER, NONE, NULL },
	{ CPU, "node-id", NUMBER, NONE, NULL },
	{ CPU, "unavailable-features", { "[]", "[\"x\"]" }, NONE, NULL },
	{ CPU, "feature-words", { "[]", "[1]" }, NONE, NULL },
	{ CPU, "crash-information", NUMBER, NONE, NULL },
	{ CPU, "realized", LOST, NONE, NULL },
	{ CPU, "memory", TEXT, NONE, NULL },
	{ CPU, "start-powered-off", LOST, NONE, NULL },
	{ CPU, "check", LOST, NONE, NULL },
	{ CPU, "enforce", LOST, NONE, NULL },
	{ CPU, "migratable", LOST, NONE, NULL },
	{ CPU, "ht", LOST, NONE, NULL },
	{ CPU, "cmp-legacy", LOST, NONE, NULL },
	{ CPU, "min-level-func7", NUMBER, NONE, NULL },
	{ CPU, "full-cpuid-auto-level", LOST, NONE, NULL },
	{ CPU, "fill-mtrr-mask", LOST, NONE, NULL },
	{ CPU, "host-phys-bits", LOST, NONE, NULL },

	{ PART_RAM, NULL, "address", NUMBER, FIT_IMPOSSIBLE, "pc-dimm" },

	{ PART_DEVICE, "virtio-net-pci", "audiodev", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "account-failed", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "backend_defaults", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "bootindex", NUMBER, NONE, NULL },
	{ PART_DEVICE, "isa-serial", "chardev", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "drive", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "netdev", TEXT, NONE, NULL },
	{ PART_DEVICE, "pc-dimm", "memdev", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-rng-pci", "rng", TEXT, NONE, NULL },
	{ PART_DEVICE, "tpm-crb", "tpmdev", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "romfile", TEXT, NONE, NULL },
	{ PART_DEVICE, "vhost-vsock-pci", "vhostfd", TEXT, NONE, NULL },
	{ PART_DEVICE, "vhost-scsi-pci", "wwpn", TEXT, NONE, NULL },
	{ PART_DEVICE, "usb-tablet", "display", TEXT, NONE, NULL },
	{ PART_DEVICE, "hda-duplex", "debug", NUMBER, NONE, NULL },
	{ PART_DEVICE, "usb-tablet", "pcap", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "ioeventfd", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "rerror", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "werror", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "share-rw", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "write-cache", { "\"off\"", "\"on\"" }, FIT_WARNING, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "write-cache", { "\"auto\"", "\"on\"" }, NONE, NULL },
	{ PART_DEVICE, "virtio-9p-pci", "fsdev", TEXT, NONE, NULL },
	{ PART_DEVICE, "usb-mtp", "rootdir", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-input-host-pci", "evdev", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "ebpf-rss-fds", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "stats-intervals", { "[]", "[60]" }, NONE, NULL },
	{ PART_DEVICE, "virtio-rng-pci", "max-bytes", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-rng-pci", "period", NUMBER, NONE, NULL },
	{ PART_DEVICE, "pci-bridge", "busnr", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "busnr", NUMBER, NONE, NULL },
	{ PART_DEVICE, "usb-tablet", "port", TEXT, NONE, NULL },
	{ PART_DEVICE, "mc146818rtc", "date", { "{\"tm_sec\": 1}", "{\"tm_sec\": 2}" }, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "cyls", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "heads", NUMBER, NONE, NULL },
	{ PART_DEVICE, "scsi-hd", "secs", NUMBER, NONE, NULL },
	{ PART_DEVICE, "ide-hd", "lcyls", NUMBER, NONE, NULL },
	{ PART_DEVICE, "pvpanic-pci", "events", NUMBER, NONE, NULL },
	{ PART_DEVICE, "ICH9-LPC", "x-smi-negotiated-features", NUMBER, NONE, NULL },
	{ PART_DEVICE, "ICH9-LPC", "acpi-pci-hotplug-with-bridge-support", LOST, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "PIIX4_PM", "acpi-root-pci-hotplug", LOST, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "size", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "requested-size", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "prealloc", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "dynamic-memslots", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "memaddr", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "block-size", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "node", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-mem-pci", "unplugged-inaccessible", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "vmgenid", "guid", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "pxb-pcie", "bus_nr", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "intel-iommu", "aw-bits", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pvpanic", "ioport", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "virtio-vga", "max_outputs", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "qemu-xhci", "p2", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "mq", LOST, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "vectors", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "disable-legacy", TEXT, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "cfi.pflash01", "num-blocks", NUMBER, FIT_IMPOSSIBLE, "pflash" },
	{ PART_DEVICE, "i82801b11-bridge", "x-odd", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pci-bridge", "chassis_nr", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "ioh3420", "slot", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "ioh3420", "port", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pcie-pci-bridge", "io-reserve", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "request-merging", LOST, NONE, NULL },
	{ PART_DEVICE, "hda-duplex", "use-timer", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "x-txburst", NUMBER, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "tx", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "failover_pair_id", TEXT, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "iothread-vq-mapping", { "[1]", "[2]" }, NONE, NULL },
	{ PART_DEVICE, "virtio-blk-pci", "addr", NUMBER, NONE, NULL },
	{ PART_DEVICE, "usb-tablet", "attached", LOST, NONE, NULL },
	{ PART_DEVICE, "virtio-balloon-pci", "guest-stats-polling-interval", NUMBER, NONE, NULL },
	{ PART_DEVICE, "VGA", "big-endian-framebuffer", LOST, NONE, NULL },
	{ PART_DEVICE, "usb-storage", "logical_block_size", NUMBER, NONE, NULL },
	{ PART_DEVICE, "usb-storage", "physical_block_size", NUMBER, NONE, NULL },
	{ PART_DEVICE, "usb-storage", "serial", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "scsi-hd", "logical_block_size", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "scsi-hd", "physical_block_size", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "PIIX4_PM", "smb_io_base", NUMBER, NONE, NULL },
	{ PART_DEVICE, "ICH9-LPC", "gpe0_blk", NUMBER, NONE, NULL },
	{ PART_DEVICE, "ICH9-LPC", "pm_io_base", NUMBER, NONE, NULL },
	{ PART_DEVICE, "q35-pcihost", "MCFG", NUMBER, NONE, NULL },
	{ PART_DEVICE, "q35-pcihost", "mcfg_size", NUMBER, NONE, NULL },
	{ PART_DEVICE, "q35-pcihost", "pci-hole64-end", NUMBER, NONE, NULL },
	{ PART_DEVICE, "i440FX-pcihost", "pci-hole-start", NUMBER, NONE, NULL },
	{ PART_DEVICE, "i8042", "kbd-irq", NUMBER, NONE, NULL },
	{ PART_DEVICE, "hpet", "timers", NUMBER, FIT_FATAL, "timers" },
	{ PART_DEVICE, NULL, "type", TEXT, FIT_IMPOSSIBLE, "-device" },
	{ PART_DEVICE, "virtio-scsi-pci", "num_queues", NUMBER, FIT_IMPOSSIBLE, "num_queues" },
	{ PART_DEVICE, "virtio-blk-pci", "num-queues", NUMBER, FIT_IMPOSSIBLE, "num-queues" },
	{ PART_DEVICE, "virtio-net-pci", "romsize", NUMBER, FIT_IMPOSSIBLE, "romfile" },
	{ PART_DEVICE, "VGA", "vgamem_mb", NUMBER, FIT_IMPOSSIBLE, "vgamem_mb" },
	{ PART_DEVICE, "virtio-net-pci", "rombar", { "-1", "1" }, NONE, NULL },
	{ PART_DEVICE, "pcie-root-port", "rombar", { "-1", "1" }, NONE, NULL },
	{ PART_DEVICE, "virtio-net-pci", "rombar", { "0", "1" }, FIT_FATAL, "rombar" },
	{ PART_DEVICE, "virtio-blk-pci", "queue-size", NUMBER, FIT_FATAL, "queue-size" },
	{ PART_DEVICE, "vhost-user-blk-pci", "queue-size", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "virtserialport", "name", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "virtconsole", "name", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "scsi-hd", "wwn", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "ide-hd", "model", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "usb-tablet", "usb_version", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pc-dimm", "node", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pc-dimm", "addr", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "nvdimm", "label-size", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "isa-serial", "irq", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "e1000", "mac", TEXT, FIT_FATAL, "mac" },
	{ PART_DEVICE, "nvme", "serial", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "e1000", "multifunction", LOST, FIT_FATAL, NULL },
	{ PART_DEVICE, "e1000", "acpi-index", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pcie-root-port", "chassis", NUMBER, FIT_FATAL, NULL },
	{ PART_DEVICE, "pcie-root-port", "slot", NUMBER, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "pcie-root-port", "hotplug", LOST, FIT_IMPOSSIBLE, NULL },
	{ PART_DEVICE, "intel-hda", "msi", TEXT, FIT_FATAL, NULL },
	{ PART_DEVICE, "pcie-root-port", "x-speed", TEXT, FIT_IMPOSSIBLE, NULL },
	/* What no row knows. */
	{ PART_DEVICE, "a-new-one", "a-new-property", NUMBER, FIT_WARNING, "a-new-property" },
	{ PART_RAM, NULL, "a-new-property", NUMBER, FIT_WARNING, NULL },

	{ PART_DISK, NULL, "bytes", NUMBER, FIT_FATAL, "image" },
	{ PART_DISK, NULL, "medium", LOST, FIT_FATAL, "blockdev-change-medium" },
	{ PART_DISK, NULL, "read-only", LOST, FIT_FATAL, "read-only=" },
};

#define FACTS	(sizeof(facts) / sizeof(facts[0]))

/* A view with nothing in it but that. */
static json_t *view_with(const struct fact *fact, const char *value)
{
	static const char *const shapes[] = {
		[PART_MACHINE] = "{\"machine\": {\"%s\": %s}}",
		[PART_CPU] = "{\"cpu\": {\"%s\": %s}}",
		[PART_VCPUS] = "{\"vcpus\": {\"%s\": %s}}",
		[PART_RAM] = "{\"ram\": {\"ram0\": {\"%s\": %s}}}",
		[PART_DEVICE] = "{\"devices\": {\"pcie.0/03.0\": {\"plugged\": true, \"props\": {\"%s\": %s}}}}",
		[PART_DISK] = "{\"disks\": {\"pcie.0/03.0\": {\"%s\": %s}}}",
	};
	char text[400];
	json_t *view;

	snprintf(text, sizeof(text), shapes[fact->part], fact->property, value);
	view = json_loads(text, 0, NULL);
	assert_non_null(view);
	if (fact->part == PART_DEVICE)
		json_object_set_new(json_object_get(json_object_get(view, "devices"), "pcie.0/03.0"), "type",
				    fact->type ? json_string(fact->type) : json_loads(value, JSON_DECODE_ANY, NULL));
	return view;
}

/* Does the table say of it what it must? */
static bool holds(const struct fact *fact, const struct policy *p)
{
	json_t *src = view_with(fact, fact->values[0]), *dst = view_with(fact, fact->values[1]);
	struct findings f = { 0 };
	bool ok;

	fit_compare(src, dst, p, &f);
	if (fact->severity == NONE)
		ok = f.n == 0;
	else
		ok = f.n == 1 && f.rows[0].severity == (enum fit_severity)fact->severity &&
		     (!fact->option || strstr(f.rows[0].text, fact->option));
	json_decref(src);
	json_decref(dst);
	findings_free(&f);
	return ok;
}

static void test_facts(void **state)
{
	(void)state;
	for (size_t i = 0; i < FACTS; i++) {
		if (!holds(&facts[i], &policy))
			print_error("%s %s\n", facts[i].type ? facts[i].type : "", facts[i].property);
		assert_true(holds(&facts[i], &policy));
	}
}

/* Each row is needed: without it some fact does not hold. */
static void test_no_row_is_lost(void **state)
{
	struct policy_row *rows = calloc(policy.n, sizeof(*rows));
	struct policy without = { policy.n - 1, rows };

	(void)state;
	assert_non_null(rows);
	for (unsigned int i = 0; i < policy.n; i++) {
		bool noticed = false;

		memcpy(rows, policy.rows, i * sizeof(*rows));
		memcpy(rows + i, policy.rows + i + 1, (policy.n - i - 1) * sizeof(*rows));
		for (size_t k = 0; k < FACTS && !noticed; k++)
			noticed = !holds(&facts[k], &without);
		if (!noticed)
			print_error("no fact needs the row of %s %s\n", policy.rows[i].type ? policy.rows[i].type : "any",
				    policy.rows[i].property);
		assert_true(noticed);
	}
	free(rows);
}

static void test_what_is_asked_for(void **state)
{
	(void)state;
	assert_true(policy_wants("virtio-net-pci", "mac", "str"));
	assert_true(policy_wants("virtio-net-pci", "addr", "str"));	/* its place is made of it */
	assert_true(policy_wants("qemu64-x86_64-cpu", "tsc-frequency", "str"));
	assert_false(policy_wants("virtio-net-pci", "netdev", "str"));
	assert_true(policy_wants("qemu64-x86_64-cpu", "avx2", "str"));
	assert_false(policy_wants("qemu64-x86_64-cpu", "apic-id", "str"));
	assert_true(policy_wants("a-new-one", "a-new-property", "str"));
	assert_false(policy_wants_in_brief("qemu64-x86_64-cpu", "avx2", "bool"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "hv-relaxed", "bool"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "mds-no", "bool"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "invtsc", "bool"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "l3-cache", "bool"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "family", "int"));
	assert_true(policy_wants_in_brief("qemu64-x86_64-cpu", "feature-words", "X86CPUFeatureWordInfo"));
	assert_false(policy_wants_in_brief("qemu64-x86_64-cpu", "apic-id", "uint32"));
	assert_true(policy_wants_in_brief("virtio-net-pci", "mq", "bool"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_no_row_is_lost),
		cmocka_unit_test(test_what_is_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
