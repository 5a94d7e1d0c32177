// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sources: QEMU's properties as device-list-properties of 7.2, 10.0 and 11.1 has them, what QEMU's
 * own loading of a device state refuses, and which differences libvirt's check of a domain's ABI
 * refuses.
 */
#include <fnmatch.h>
#include <stddef.h>
#include <string.h>

#include "fit/policy.h"

static const struct policy_row rows[] = {
	/* The machine. */
	{ PART_MACHINE, NULL, "type", POLICY_QEMU, "-machine" },
	/* The files of the guest's firmware and kernel, which are in its RAM by now. */
	{ PART_MACHINE, NULL, "append", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "dtb", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "dumpdtb", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "firmware", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "initrd", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "kernel", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "shim", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "pflash*", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "boot", POLICY_ANY, NULL },
	/* How QEMU works on its host. */
	{ PART_MACHINE, NULL, "*audiodev", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "aux-ram-share", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "dump-guest-core", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "mem-merge", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "memory-backend", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "graphics", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "suppress-vmdesc", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "bus-lock-ratelimit", POLICY_ANY, NULL },
	/* Of the moment. */
	{ PART_MACHINE, NULL, "rtc-time", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "device-memory-region-size", POLICY_ANY, NULL },
	{ PART_MACHINE, NULL, "smp", POLICY_ANY, NULL },	/* compared with the vCPUs */
	{ PART_MACHINE, NULL, "memory", POLICY_QEMU, "-m size,slots=,maxmem=" },
	{ PART_MACHINE, NULL, "hpet", POLICY_QEMU, "-machine" },
	{ PART_MACHINE, NULL, "uuid", POLICY_SAME, "-uuid" },
	{ PART_MACHINE, NULL, "nodes", POLICY_SAME, "-numa" },
	{ PART_MACHINE, NULL, "*", POLICY_SAME, "-machine" },

	/* All vCPUs. */
	{ PART_VCPUS, NULL, "model", POLICY_ANY, NULL },
	{ PART_VCPUS, NULL, "count", POLICY_AT_LEAST, "-smp" },
	{ PART_VCPUS, NULL, "accelerator", POLICY_SAME, "-accel" },
	{ PART_VCPUS, NULL, "*", POLICY_SAME, "-smp" },

	/* One vCPU. A property that is not listed here is a feature, true or false. */
	{ PART_CPU, NULL, "model-id", POLICY_SHOULD, "-cpu" },
	/* The topology of all vCPUs is compared as a whole. */
	{ PART_CPU, NULL, "apic-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "socket-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "die-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "module-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "core-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "thread-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "node-id", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "feature-words", POLICY_ELSEWHERE, NULL },
	{ PART_CPU, NULL, "*-features", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "crash-information", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "realized", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "memory", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "start-powered-off", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "check", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "enforce", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "migratable", POLICY_ANY, NULL },
	/*
	 * These follow from the topology, which is compared by itself. Since QEMU 9 they show here
	 * what CPUID always had.
	 */
	{ PART_CPU, NULL, "ht", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "cmp[-_]legacy", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "min-*level*", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "full-cpuid-auto-level", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "fill-mtrr-mask", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "host-phys-bits*", POLICY_ANY, NULL },
	{ PART_CPU, NULL, "tsc-frequency", POLICY_ELSEWHERE, NULL },
	{ PART_CPU, NULL, "level*", POLICY_GROWS, "-cpu" },
	{ PART_CPU, NULL, "xlevel*", POLICY_GROWS, "-cpu" },
	{ PART_CPU, NULL, "stepping", POLICY_SHOULD, "-cpu" },
	{ PART_CPU, NULL, "ucode-rev", POLICY_SHOULD, "-cpu" },
	{ PART_CPU, NULL, "*", POLICY_FEATURE, "-cpu" },

	/* RAM. */
	{ PART_RAM, NULL, "address", POLICY_QEMU, "-numa and -device pc-dimm" },

	/* Devices: what is on the host behind them. */
	{ PART_DEVICE, NULL, "*audiodev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "account-*", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "backend_defaults", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "bootindex", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "chardev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "drive", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "netdev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "memdev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "rng", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "tpmdev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "romfile", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "vhostfd", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "wwpn", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "display", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "debug", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "pcap", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "ioeventfd", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "rerror", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "werror", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "share-rw", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "write-cache", POLICY_SHOULD, NULL },
	{ PART_DEVICE, NULL, "fsdev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "rootdir", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "evdev", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "ebpf-rss-fds", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "stats-intervals", POLICY_ANY, NULL },
	{ PART_DEVICE, "virtio-rng-*", "max-bytes", POLICY_ANY, NULL },
	{ PART_DEVICE, "virtio-rng-*", "period", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "request-merging", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "use-timer", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "x-tx*", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "tx", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "failover_pair_id", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "iothread*", POLICY_ANY, NULL },
	/* Of the moment, or part of the device's place. */
	/* In the guest's memory, not on a bus. */
	{ PART_DEVICE, "*dimm", "addr", POLICY_QEMU, NULL },
	{ PART_DEVICE, NULL, "addr", POLICY_ELSEWHERE, NULL },
	{ PART_DEVICE, NULL, "attached", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "busnr", POLICY_ANY, NULL },	/* firmware numbers them */
	{ PART_DEVICE, "usb-*", "port", POLICY_ANY, NULL },
	{ PART_DEVICE, "mc146818rtc", "date", POLICY_ANY, NULL },
	/* QEMU guesses these from the size of a disk when it starts; the size is compared. */
	{ PART_DEVICE, NULL, "cyls", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "heads", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "secs", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "l[chs]*s", POLICY_ANY, NULL },
	/* 7.2 and 11.1 differ for one machine type. */
	{ PART_DEVICE, "pvpanic*", "events", POLICY_ANY, NULL },
	{ PART_DEVICE, "ICH9-LPC", "x-smi-negotiated-features", POLICY_ANY, NULL },
	{ PART_DEVICE, NULL, "guest-stats*", POLICY_ANY, NULL },
	{ PART_DEVICE, "*VGA*", "big-endian-framebuffer", POLICY_ANY, NULL },
	/*
	 * The guest sees those of its scsi-hd, which are compared: 7.2 does not pass these on, and
	 * 11.1 has 0 where none was given.
	 */
	{ PART_DEVICE, "usb-storage", "*_block_size", POLICY_ANY, NULL },
	{ PART_DEVICE, "PIIX4_PM", "smb_io_base", POLICY_ANY, NULL },
	{ PART_DEVICE, "ICH9-LPC", "gpe0_blk", POLICY_ANY, NULL },
	{ PART_DEVICE, "ICH9-LPC", "pm_io_base", POLICY_ANY, NULL },
	{ PART_DEVICE, "q35-pcihost", "MCFG", POLICY_ANY, NULL },
	{ PART_DEVICE, "q35-pcihost", "mcfg_size", POLICY_ANY, NULL },
	{ PART_DEVICE, "*-pcihost", "pci-hole*-end", POLICY_ANY, NULL },
	{ PART_DEVICE, "*-pcihost", "pci-hole*-start", POLICY_ANY, NULL },
	{ PART_DEVICE, "i8042", "kbd-irq", POLICY_ANY, NULL },
	{ PART_DEVICE, "hpet", "timers", POLICY_SAME, NULL },
	{ PART_DEVICE, "ICH9-LPC", "acpi-*", POLICY_QEMU, NULL },
	{ PART_DEVICE, "PIIX4_PM", "acpi-*", POLICY_QEMU, NULL },
	/* What is plugged, and is to be, comes with the device state. */
	{ PART_DEVICE, "virtio-mem*", "size", POLICY_ANY, NULL },
	{ PART_DEVICE, "virtio-mem*", "requested-size", POLICY_ANY, NULL },
	/* How QEMU gives this memory its pages, and KVM its slots. */
	{ PART_DEVICE, "virtio-mem*", "prealloc", POLICY_ANY, NULL },
	{ PART_DEVICE, "virtio-mem*", "dynamic-memslots", POLICY_ANY, NULL },
	{ PART_DEVICE, "vmgenid", "guid", POLICY_SAME, NULL },
	{ PART_DEVICE, "pxb*", "bus_nr", POLICY_SAME, NULL },
	{ PART_DEVICE, "*-iommu", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "ioport", POLICY_SAME, NULL },
	/* QEMU compares these itself, with the guest stopped. */
	{ PART_DEVICE, NULL, "type", POLICY_QEMU, "-device" },
	{ PART_DEVICE, NULL, "rombar", POLICY_ON, NULL },
	{ PART_DEVICE, NULL, "num-queues", POLICY_QEMU, NULL },
	{ PART_DEVICE, NULL, "num_queues", POLICY_QEMU, NULL },
	{ PART_DEVICE, NULL, "romsize", POLICY_QEMU, "romfile (another size)" },
	{ PART_DEVICE, NULL, "vgamem_mb", POLICY_QEMU, NULL },
	{ PART_DEVICE, NULL, "max_outputs", POLICY_QEMU, NULL },
	{ PART_DEVICE, "*xhci", "p[23]", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-net*", "mq", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-*", "vectors", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-*", "disable-*", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-mem*", "memaddr", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-mem*", "block-size", POLICY_QEMU, NULL },
	{ PART_DEVICE, "virtio-mem*", "node", POLICY_QEMU, NULL },
	{ PART_DEVICE, "cfi.pflash01", "num-blocks", POLICY_QEMU,
	  "-drive if=pflash (another size)" },
	{ PART_DEVICE, "pcie-root-port", "chassis", POLICY_SAME, NULL },
	{ PART_DEVICE, "pcie-root-port", "*", POLICY_QEMU, NULL },
	/* A guest sees these as properties of its hardware. */
	{ PART_DEVICE, "virtio-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "vhost-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "virtserialport", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "virtconsole", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "scsi-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "ide-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "usb-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "pc-dimm", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "nvdimm", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "isa-*", "*", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "mac", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "serial", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "multifunction", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "acpi-index", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "chassis*", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "slot", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "port", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "*-reserve", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "msi*", POLICY_SAME, NULL },
	{ PART_DEVICE, "*", "x-*", POLICY_SAME, NULL },

	/* What is in a disk drive, firmware included. */
	{ PART_DISK, NULL, "bytes", POLICY_SAME, "-blockdev (another image)" },
	{ PART_DISK, NULL, "medium", POLICY_SAME, "-blockdev, or blockdev-change-medium" },
	{ PART_DISK, NULL, "read-only", POLICY_SAME, "read-only= of -blockdev" },
};

const struct policy policy = { sizeof(rows) / sizeof(rows[0]), rows };

static bool matches(const struct policy_row *row, enum policy_part part, const char *type,
		    const char *property)
{
	if (row->part != part || fnmatch(row->property, property, 0))
		return false;
	return !row->type || (type && !fnmatch(row->type, type, 0));
}

const struct policy_row *policy_find(const struct policy *p, enum policy_part part,
				     const char *type, const char *property)
{
	for (unsigned int i = 0; i < p->n; i++)
		if (matches(&p->rows[i], part, type, property))
			return &p->rows[i];
	return NULL;
}

static bool is_vcpu(const char *type)
{
	size_t len = strlen(type);

	return len > 4 && !strcmp(type + len - 4, "-cpu");
}

bool policy_wants_in_brief(const char *type, const char *property, const char *kind)
{
	/*
	 * Bits of MSRs (QEMU target/i386/cpu.c, feature_word_info), and of Hyper-V's leaves; and
	 * what host_compare() wants by name.
	 */
	static const char *const no_cpuid[] = {
		"hv-*",
		"*-no",
		"ibrs-all",
		"rsba",
		"rrsba",
		"skip-l1dfl-vmentry",
		"tsx-ctrl",
		"*-clear",
		"split-lock-detect",
		"full-width-write",
		"invtsc",
		"svm",
		"vmx",
		/* Switches of QEMU's that are no bits at all. */
		"cpuid-0xb",
		"host-cache-info",
		"kvm",
		"kvm-no-smi-migration",
		"kvm-pv-enforce-cpuid",
		"l3-cache",
		"legacy-cache",
		"lmce",
		"pmu",
		"tcg-cpuid",
		"vmware-cpuid-freq",
		"xen-vapic",
		"x-*",
	};

	if (is_vcpu(type) && !strcmp(kind, "bool")) {
		size_t i = 0;

		while (i < sizeof(no_cpuid) / sizeof(no_cpuid[0]) &&
		       fnmatch(no_cpuid[i], property, 0))
			i++;
		if (i == sizeof(no_cpuid) / sizeof(no_cpuid[0]))
			return false;
	}
	return policy_wants(type, property, kind);
}

bool policy_wants(const char *type, const char *property, const char *kind)
{
	enum policy_part part = is_vcpu(type) ? PART_CPU : PART_DEVICE;
	const struct policy_row *row = policy_find(&policy, part, type, property);

	(void)kind;
	return !row || row->rule != POLICY_ANY;
}
