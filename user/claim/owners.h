/* SPDX-License-Identifier: GPL-2.0-only */
/* The other owners of a VM's RAM files: processes beside the VMM that map them. */
#ifndef GODWIT_OWNERS_H
#define GODWIT_OWNERS_H

#include "base/err.h"
#include "vmm/vm.h"

enum owners_end {
	/*
	 * Stores of other processes are tracked like the VMM's own. But RAM of two VMs cannot move
	 * with one of them: another VMM that maps a file shared is refused.
	 */
	OWNERS_SOURCE,
	/*
	 * The receiver empties the files and writes them. Only the VMM may map them, shared or
	 * private, and those processes at the other ends of its unix sockets (vhost-user backends)
	 * that are not VMMs.
	 */
	OWNERS_DESTINATION,
	/*
	 * At the destination of a post-copy, whose receiver watches the VMM's mappings: no other
	 * process may map the files.
	 */
	OWNERS_ALONE,
	/* A file that a receiver is to read: no VMM may map it, as it is no old RAM then. */
	OWNERS_REUSED,
};

/**
 * owners_check() - refuse RAM files that another process maps
 * @proc: "/proc", or what a test puts in its place
 * It does not see processes of other pid namespaces, nor those that godwit is not permitted to
 * inspect, nor a process that maps a file later: call it again right before the first change.
 * Errors: GW_RAM_IN_USE: names the process, the file and the way out.
 */
int owners_check(const char *proc, const struct vm *vm, enum owners_end end, struct err *e);

#endif
