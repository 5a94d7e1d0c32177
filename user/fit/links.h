/* SPDX-License-Identifier: GPL-2.0-only */
/* Links of the guest that QEMU has taken down, as their backends died: they come up to move. */
#ifndef GODWIT_FIT_LINKS_H
#define GODWIT_FIT_LINKS_H

#include "base/err.h"
#include "qmp/qmp.h"
#include "txn/journal.h"
#include "vmm/vm.h"

/**
 * links_raise() - bring up the links that host_lost_links() finds
 * The guest is stopped. A link that QEMU does not bring up stays down, and the guest moves all the
 * same.
 */
int links_raise(struct qmp *q, const struct vm *vm, struct journal *j, struct err *e);

#endif
