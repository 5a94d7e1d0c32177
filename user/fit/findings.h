/* SPDX-License-Identifier: GPL-2.0-only */
/* What a comparison of source and destination has found, see compare.h. */
#ifndef GODWIT_FINDINGS_H
#define GODWIT_FINDINGS_H

#include <stddef.h>

#include "base/err.h"

/**
 * enum fit_class - what a difference is about; --accept names these
 * FIT_MACHINE: machine type, its options, chipset
 * FIT_CPU: vCPUs: number, topology, features; KVM or TCG
 * FIT_MEMORY: where RAM lies in the guest
 * FIT_DEVICE: devices, their places and properties
 * FIT_DISK: what a disk holds: size, read-only
 * FIT_BACKEND: what is behind a device on the host: an offload, a link that is down
 * FIT_HOST: the destination's host itself: nested virtualization, clocks
 * FIT_ROOM: memory for the guest at the destination
 */
enum fit_class {
	FIT_MACHINE,
	FIT_CPU,
	FIT_MEMORY,
	FIT_DEVICE,
	FIT_DISK,
	FIT_BACKEND,
	FIT_HOST,
	FIT_ROOM,
	FIT_CLASSES
};

/**
 * enum fit_severity - what a difference means, the worst last
 * FIT_WARNING: the guest can be migrated
 * FIT_FATAL: the guest would come to harm there, unless the operator knows better (--accept)
 * FIT_IMPOSSIBLE: QEMU, or the host, refuses the guest: --accept does not help
 */
enum fit_severity { FIT_WARNING, FIT_FATAL, FIT_IMPOSSIBLE };

/**
 * struct finding - one difference
 * @text: one line: the object as the operator wrote it, both values, the way out
 */
struct finding {
	enum fit_class class;
	enum fit_severity severity;
	char text[600];
};

#define FINDINGS_MAX 200u

/**
 * struct findings - all differences; a struct of zeros has none
 * @accepted: 1 << FIT_CPU and the like: fatal differences of these classes become warnings
 * @n: how many there are; beyond FINDINGS_MAX they are counted, not kept
 * @nfatal: how many of them prevent the migration
 */
struct findings {
	unsigned int accepted;
	unsigned int n;
	unsigned int nfatal;
	struct finding *rows;
};

/* Adds a finding. printf format; control characters become '?'. */
void findings_add(struct findings *f, enum fit_class class, enum fit_severity severity,
		  const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts the worst first; equally bad ones in the order of their classes. */
void findings_sort(struct findings *f);
/* How many are kept. */
unsigned int findings_kept(const struct findings *f);
/*
 * 0, or -errno: *e is the worst finding, with the number of the others and its exit status:
 * GW_MISFIT or GW_NO_ROOM.
 */
int findings_verdict(const struct findings *f, struct err *e);
/* The exit status of a finding. */
enum gw_exit finding_exit(const struct finding *row);
void findings_free(struct findings *f);

/* "cpu", "device", ... */
const char *fit_class_name(enum fit_class class);
/* The value of --accept, "cpu,disk": classes as bits. Errors: GW_USAGE. */
int fit_accept(const char *words, unsigned int *accepted, struct err *e);

#endif
