/* SPDX-License-Identifier: GPL-2.0-only */
/* Which host, and which files there, a VM's RAM is in: so that nobody migrates a guest onto itself. */
#ifndef GODWIT_OWN_RAM_H
#define GODWIT_OWN_RAM_H

#include "err.h"
#include "io/channel.h"
#include "vmm/vm.h"

/* RAM_FILES, of this VM. */
int own_ram_send(struct channel *ch, const struct vm *vm, struct err *e);
/* The body of RAM_FILES. *own: a block of vm that is in one of those files, or NULL. */
int own_ram_receive(struct channel *ch, const struct wire_header *h, const struct vm *vm, const struct ram_block **own,
		    struct err *e);
/* GW_RAM_IN_USE. */
int own_ram_refuse(const struct ram_block *own, struct err *e);

#endif
