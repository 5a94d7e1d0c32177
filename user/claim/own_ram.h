/* SPDX-License-Identifier: GPL-2.0-only */
/* The host and the files that a VM's RAM is in, so that godwit migrates no guest onto itself. */
#ifndef GODWIT_OWN_RAM_H
#define GODWIT_OWN_RAM_H

#include "base/err.h"
#include "net/channel.h"
#include "vmm/vm.h"

/* Sends RAM_FILES of this VM. */
int own_ram_send(struct channel *ch, const struct vm *vm, struct err *e);
/* Takes the body of RAM_FILES. *own: a block of vm that is in one of those files, or NULL. */
int own_ram_receive(struct channel *ch, const struct wire_header *h, const struct vm *vm,
		    const struct ram_block **own, struct err *e);
/* Sets GW_RAM_IN_USE for this block. */
int own_ram_refuse(const struct ram_block *own, struct err *e);

#endif
