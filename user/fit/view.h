/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the guest can see of a QEMU, and what its host offers, in the form that compare.h describes.
 */
#ifndef GODWIT_VIEW_H
#define GODWIT_VIEW_H

#include <jansson.h>

#include "qom/qom.h"
#include "vmm/vm.h"

#define VIEW_BYTES_MAX (4u << 20) /* of its text; 64 vCPUs and 60 devices make 200 KB */

/**
 * view_make() - make the view of a QEMU
 * Reads only; sends a hundred commands or more, between any two of which QEMU serves its guest.
 * @vm: its RAM blocks; view_make() fills in their addresses (vmm/mtree.h)
 * @known: of this QEMU, see qom.h
 * @destination: also what only matters there: room, backends that are not ready
 * @brief: only those features of the vCPUs by name that are in no CPUID leaf; QEMU 10.1 and newer
 *	report all of them anyway
 * @view: a new reference
 * Errors: those of qmp_call_all(), GW_NOT_QEMU.
 */
int view_make(struct qmp *q, struct vm *vm, struct qom_known *known, bool destination, bool brief,
	      json_t **view, struct err *e);

/*
 * What a brief view needs of that QEMU and never changes goes to *known: view_make() does not ask
 * for it when the other end waits.
 */
int view_learn(struct qmp *q, struct qom_known *known, struct err *e);

/* The view's text, for free(). Errors: GW_INTERNAL (larger than VIEW_BYTES_MAX). */
int view_encode(const json_t *view, char **text, size_t *len, struct err *e);
/*
 * NULL: the text is no JSON object. Does not trust its content, and fit_compare() does not either.
 */
json_t *view_decode(const char *text, size_t len);

#endif
