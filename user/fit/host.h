/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What matters to the guest about the two hosts: room for its RAM, clocks, nested virtualization,
 * and what is behind its devices at the destination. Each end adds its facts to its view; the
 * sender compares them.
 */
#ifndef GODWIT_FIT_HOST_H
#define GODWIT_FIT_HOST_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "fit/findings.h"
#include "plan/window.h"
#include "qmp/qmp.h"
#include "vmm/vm.h"

/*
 * The object "host" of a view. A fact that is missing is not known, and not compared. Sizes are in
 * bytes. D: only a destination's view has it.
 *
 *	kvm			bool: the VM runs under KVM
 *	tsc-set			bool: the VMM's command line sets a TSC frequency
 *	tcp-wmem		the most that TCP gives a connection to send from; only the source's
 *	tcp-rmem		D: and to receive into
 *	ram.NAME		of each RAM block:
 *	    bytes		how large it is
 *	    page-size		of the file system, or of the mapping
 *	    allocated		how much of that its file holds, or the process has
 *	    private		true: it is memory of QEMU's own; left out if not
 *	    fs			D: id of the file system that its file is on
 *	    reserved		D: huge pages that are reserved for it, and not allocated
 *	fs.ID			D: of each file system that RAM files are on:
 *	    type		"tmpfs", "hugetlbfs"; "memory" of private RAM in no file system
 *	    mount		where it is mounted; a memfd's is not mounted
 *	    page		how large its pages are
 *	    size, free		if it has a limit
 *	pool.BYTES		D: huge pages of that size that are neither used nor reserved
 *	memory.available	D: MemAvailable
 *	memory.swap		D: SwapFree
 *	cgroups[]		D: memory cgroups of the receiver with a limit, from inner to outer:
 *	    path		its directory
 *	    limit, room		memory.max, and how much can be charged until then
 *	    high, high-room	memory.high, likewise
 *	    swap		how much of it may go to swap
 *	qemu-cgroups[]		D: likewise of QEMU, if any RAM is private
 *	tsc-hz			D: TSC frequency of the first vCPU; QEMU knows it under KVM
 *	tsc-scaling		D: bool: KVM can give a guest another TSC frequency than the host's
 *	nested.vmx, nested.svm	D: bool: KVM offers it to guests
 *	backends.NAME		D: of each tap and vhost-user device, by id of netdev or device:
 *	    type		"tap", "vhost-user" (a netdev), or the device's type
 *	    interface, up	tap: its name, bool
 *	    chardev, connected	vhost-user: its label, bool
 */

/**
 * host_view() - add the object "host" to a view
 * @vm: its RAM blocks are open
 * @proc: "/proc", or a test's
 * @sys: "/sys", or a test's
 * Sends about ten commands, none of which changes anything. Leaves out what it cannot read.
 * Errors: those of qmp_call() but GW_QMP.
 */
int host_view(json_t *view, struct qmp *q, const struct vm *vm, const char *proc, const char *sys,
	      bool destination, struct err *e);

/**
 * host_compare() - find what does not fit about the hosts
 * @src: the source's view, with vmx, svm, invtsc and tsc-frequency in its object "cpu"
 * @dst: the destination's, as the peer sent it
 */
void host_compare(const json_t *src, const json_t *dst, struct findings *f);

/**
 * host_compare_clocks() - compare wall clocks, as measured by PINGs
 * @offset_ns: destination minus source, off by half of @rtt_ns at most
 */
void host_compare_clocks(int64_t offset_ns, uint64_t rtt_ns, struct findings *f);

/* Of both views, what buffers TCP may have; 0 where a view does not say. */
void host_window(const json_t *src, const json_t *dst, struct window *w);
/* Do they hold back a long link? w: the other members are known. */
void host_compare_window(const json_t *src, const json_t *dst, struct window *w,
			 struct findings *f);

/**
 * host_lost_links() - find the vhost-user network backends that nothing is connected to
 * @links: becomes an array of {"name": the netdev's id, "chardev": its label}; NULL: there is none
 * QEMU has taken their links down. One command, where all that has a socket is connected.
 */
int host_lost_links(struct qmp *q, const struct vm *vm, json_t **links, struct err *e);

#endif
