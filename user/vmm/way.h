/* SPDX-License-Identifier: GPL-2.0-only */
/* By which way the device state of a VM can leave its QEMU: what the source decides, before the receiver is asked. */
#ifndef GODWIT_WAY_H
#define GODWIT_WAY_H

#include <stdbool.h>

#include "err.h"
#include "vmm/private.h"
#include "vmm/qmp.h"
#include "vmm/vm.h"

/* What the user wants: QEMU's own migration, xen-save-devices-state (saved.h), or whatever is better. */
enum way_wish { WISH_AUTO, WISH_MIGRATE, WISH_SAVE };
/* "auto", "migrate", "save". GW_USAGE. */
int way_parse(const char *text, enum way_wish *wish, struct err *e);

/* WAY_EITHER: it is better saved, if the destination can load that. */
enum way { WAY_MIGRATE, WAY_EITHER, WAY_SAVE };

/**
 * way_choose() - for this VM
 * @vm: with another way than WAY_MIGRATE the addresses of its blocks are known, as far as QEMU tells them
 * @running: the guest runs
 * @ram: QEMU's private RAM; nothing is in it with WAY_MIGRATE. private_free() in any case
 * Errors: GW_RAM_PRIVATE, GW_QMP, GW_VM_STATE: only saving would do, or is wished, and that is impossible.
 */
int way_choose(enum way_wish wish, struct qmp *q, struct vm *vm, bool running, enum way *way, struct private_ram *ram,
	       struct err *e);
/* The receiver cannot load what is saved, and nothing else would do: GW_RAM_DIFFERS. */
int way_refused(enum way_wish wish, struct err *e);

#endif
