/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of vm_check_devices() and vm_check_direct_io(). */
#ifndef GODWIT_DEVICES_H
#define GODWIT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "vmm/qmp.h"

/**
 * struct device_file - an open file by which a device writes RAM, and no page table shows it
 * @part: of what /proc/PID/fd says
 * @what: it is
 * @way_out: for a process beside the VMM. NULL: the device pins what it writes, so where no guest RAM is pinned it has none
 */
struct device_file {
	const char *part;
	const char *what;
	const char *way_out;
};

/* NULL: no such file. */
const struct device_file *device_that_writes(const char *link);
/**
 * struct hidden_io - direct I/O whose reads into guest RAM cannot be seen
 * @what: on which file system
 * @or_move: one more way out: another one; "" if that is not enough
 */
struct hidden_io {
	char what[80];
	const char *or_move;
};

/* path: .../fd/N, opened with O_DIRECT. 1: it is so; 0: it can be seen, -errno. */
int direct_io_hides(const char *path, struct hidden_io *io, struct err *e);
/* NULL: direct reads on this file system (statfs f_type) are block I/O that can be seen; else its name. */
const char *fs_that_hides_reads(uint64_t type);
/*
 * Does XFS on this device read into pages of its own, and fill the reader's later? sys: "/sys", or what a test puts in
 * its place; release: the kernel's, as uname says it.
 */
bool xfs_copies_reads(const char *sys, dev_t dev, const char *release);
/* proc: "/proc/PID", or what a test puts in its place. */
int devices_check_pins(const char *proc, struct err *e);
int devices_check_tracer(const char *proc, const char *whom, struct err *e);
int devices_check_direct(const char *proc, struct err *e);
int devices_check_balloon(struct qmp *q, struct err *e);

#endif
