/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chooses how device state travels: in migrate mode by QEMU's own migration, in save mode by
 * xen-save-devices-state (save.h). The source chooses before it asks the receiver.
 */
#ifndef GODWIT_MODE_H
#define GODWIT_MODE_H

#include <stdbool.h>

#include "base/err.h"
#include "devstate/private_ram.h"
#include "qmp/qmp.h"
#include "vmm/vm.h"

/* The operator's choice, --device-state. WISH_AUTO leaves the choice to mode_choose(). */
enum mode_wish { WISH_AUTO, WISH_MIGRATE, WISH_SAVE };
/* "auto", "migrate", "save". GW_USAGE. */
int mode_parse(const char *text, enum mode_wish *wish, struct err *e);

/*
 * MODE_EITHER: save mode is better, if the destination can load what it saves; else migrate mode.
 */
enum devstate_mode { MODE_MIGRATE, MODE_EITHER, MODE_SAVE };

/**
 * mode_choose() - the mode for this VM
 * @must_save: migrate mode cannot fill the destination's RAM
 * @vm: gets the addresses of its blocks in the guest, as far as QEMU reports them, unless
 *	*@mode becomes
 *	MODE_MIGRATE
 * @running: the guest runs
 * @ram: becomes QEMU's private RAM; empty with MODE_MIGRATE. private_ram_free() in any case
 * Errors: GW_RAM_PRIVATE, GW_QMP, GW_VM_STATE: save mode is impossible, and the VM needs it or the
 * operator wants it.
 */
int mode_choose(enum mode_wish wish, bool must_save, struct qmp *q, struct vm *vm, bool running,
		enum devstate_mode *mode, struct private_ram *ram, struct err *e);
/* GW_RAM_DIFFERS: the receiver cannot load what save mode saves, and migrate mode is impossible. */
int mode_refused(enum mode_wish wish, struct err *e);

#endif
