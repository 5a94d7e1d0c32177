/* SPDX-License-Identifier: GPL-2.0-only */
/* What a difference between both ends means: one table. */
#ifndef GODWIT_POLICY_H
#define GODWIT_POLICY_H

#include <stdbool.h>

#include "fit/findings.h"

/**
 * enum policy_rule - what a property must be at the destination
 * POLICY_ANY: does not matter to the guest: a name, path or backend on the host, or a value of the
 *	moment. QEMU is not even asked for it
 * POLICY_ELSEWHERE: compared elsewhere: a device's place is made of it, or host.h knows more
 * POLICY_SAME: the same value
 * POLICY_QEMU: the same value, or else QEMU itself refuses the device state: --accept does not help
 * POLICY_SHOULD: the same value, but a guest survives another: a warning; nothing if one end leaves
 *	it to QEMU ("auto")
 * POLICY_FEATURE: if true at the source, true at the destination; the reverse is a warning
 * POLICY_GROWS: a number; less than at the source is fatal, more is a warning: a newer QEMU knows
 *	more
 * POLICY_AT_LEAST: a number; QEMU refuses less than at the source, and more is fatal
 * POLICY_ON: a switch: the same, where any number but 0 is on
 */
enum policy_rule {
	POLICY_ANY,
	POLICY_ELSEWHERE,
	POLICY_SAME,
	POLICY_QEMU,
	POLICY_SHOULD,
	POLICY_FEATURE,
	POLICY_GROWS,
	POLICY_AT_LEAST,
	POLICY_ON
};

/*
 * Where a property is: of the machine, of a vCPU, of all vCPUs together, of a RAM block, of a
 * device, of what is in a disk.
 */
enum policy_part { PART_MACHINE, PART_CPU, PART_VCPUS, PART_RAM, PART_DEVICE, PART_DISK };

/**
 * struct policy_row - one row; the first that matches counts
 * @type: of the device, a pattern as of fnmatch(); NULL: any
 * @property: a pattern
 * @option: what the operator changes; NULL: the option of that name
 */
struct policy_row {
	enum policy_part part;
	const char *type, *property;
	enum policy_rule rule;
	const char *option;
};

struct policy {
	unsigned int n;
	const struct policy_row *rows;
};

/* The table. A difference in a property that it does not list is a warning (POLICY_SHOULD). */
extern const struct policy policy;

/* The first row that matches, or NULL. */
const struct policy_row *policy_find(const struct policy *p, enum policy_part part,
				     const char *type, const char *property);
/* Must qom_read() ask for this property? A type of vCPU ends in "-cpu". */
bool policy_wants(const char *type, const char *property, const char *kind);
/*
 * The same, but without those features of a vCPU that are bits of CPUID: "feature-words" has all of
 * them. Also without those of VMX, which only matter to a guest that has VMX.
 */
bool policy_wants_in_brief(const char *type, const char *property, const char *kind);

#endif
