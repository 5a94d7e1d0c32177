/* SPDX-License-Identifier: GPL-2.0-only */
/* What the guest can see of a QEMU, and what the host behind it offers, as compare.h has it. */
#ifndef GODWIT_VIEW_H
#define GODWIT_VIEW_H

#include <jansson.h>

#include "vmm/vm.h"

#define VIEW_BYTES_MAX (4u << 20) /* of its text; 64 vCPUs and 60 devices make 200 KB */

/**
 * view_make() - look at a QEMU
 * Reads only; hundreds of commands, between any two of which QEMU serves its guest.
 * @vm: its RAM blocks; their addresses are filled in (vmm/mtree.h)
 * @destination: also what only matters there: room, backends that are not ready
 * @brief: of the vCPUs' features by name only what is in no CPUID leaf; QEMU 10.1 and newer
 *	say all of them anyway
 * @view: a new reference
 * Errors: those of qmp_call_all(), GW_NOT_QEMU.
 */
int view_make(struct qmp *q, struct vm *vm, bool destination, bool brief, json_t **view,
	      struct err *e);

/* Its text, for free(). Errors: GW_INTERNAL (larger than VIEW_BYTES_MAX). */
int view_encode(const json_t *view, char **text, size_t *len, struct err *e);
/* NULL: that is no JSON object. Trusts nothing of what is in it, as fit_compare() does not. */
json_t *view_decode(const char *text, size_t len);

#endif
