/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of vm_check_devices() and vm_check_direct_io(). */
#ifndef GODWIT_DEVICES_H
#define GODWIT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "vmm/qmp.h"

/* What an open file of the VMM is, when it means that a device holds guest RAM for DMA; else NULL. */
const char *device_that_pins(const char *link);
/* NULL: direct reads on this file system (statfs f_type) are block I/O that can be seen; else its name. */
const char *fs_that_hides_reads(uint64_t type);
/*
 * Does XFS on this device read into pages of its own, and fill the reader's later? sys: "/sys", or what a test puts in
 * its place; release: the kernel's, as uname says it.
 */
bool xfs_copies_reads(const char *sys, dev_t dev, const char *release);
/* proc: "/proc/PID", or what a test puts in its place. */
int devices_check_pins(const char *proc, struct err *e);
int devices_check_direct(const char *proc, struct err *e);
int devices_check_balloon(struct qmp *q, struct err *e);

#endif
