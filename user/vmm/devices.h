/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of vm_check_devices() and vm_check_direct_io(). */
#ifndef GODWIT_DEVICES_H
#define GODWIT_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "proc/proc.h"
#include "qmp/qmp.h"

/**
 * struct device_file - an open file by which a device writes RAM, unseen in any page table
 * @part: what the link /proc/PID/fd/N contains
 * @what: the kind of device
 * @way_out: what the operator can do, for a process beside the VMM. NULL: the device pins what it
 *	writes, so it writes no guest RAM as long as none is pinned
 */
struct device_file {
	const char *part;
	const char *what;
	const char *way_out;
};

/* The entry for this link; NULL: no such device. */
const struct device_file *device_that_writes(const char *link);

/*
 * Loads the fdinfo of an open file with this link. *what: it is an io_uring with fixed buffers, or
 * one that does not say; else NULL. Errors: those of proc_load_fdinfo().
 */
int devices_load_fdinfo(const char *proc, const char *number, const char *link,
			struct proc_fdinfo *info, const char **what, struct err *e);

/**
 * struct hidden_io - direct I/O that reads into guest RAM unseen by godwit.ko
 * @what: "direct I/O on NFS"
 * @or_move: another way out: a different file system; "" if that is not enough
 */
struct hidden_io {
	char what[80];
	const char *or_move;
};

/*
 * path: .../fd/N, opened with O_DIRECT. 1: its reads are unseen, and *io says why; 0: they are
 * seen; or -errno.
 */
int direct_io_hides(const char *path, struct hidden_io *io, struct err *e);
/*
 * NULL: direct reads on this file system (statfs f_type) are block I/O that godwit.ko sees. Else
 * the file system's name.
 */
const char *fs_that_hides_reads(uint64_t type);
/*
 * Does XFS on this device read into pages of its own, and copy to the reader's pages later? sys:
 * "/sys", or a test's directory; release: the kernel's, as uname reports it.
 */
bool xfs_copies_reads(const char *sys, dev_t dev, const char *release);
/* Is ext2, 3 or 4 on this device ext2's own driver, and does it clear holes unseen? */
bool ext2_zeroes_holes(const char *sys, dev_t dev, const char *release);

/* proc: "/proc/PID", or a test's directory. Errors: GW_PINNED, and those of proc_failed(). */
int devices_check_pins(const char *proc, struct err *e);
/* except: a process that may trace it */
int devices_check_tracer(const char *proc, const char *whom, pid_t except, struct err *e);
int devices_check_direct(const char *proc, struct err *e);

#endif
