/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAM that QEMU keeps to itself: of displays, flash and ROMs, some 17 MiB. It is read and written in QEMU's own memory, for
 * a migration whose device state is saved (saved.h): then nobody else sends it.
 */
#ifndef GODWIT_PRIVATE_H
#define GODWIT_PRIVATE_H

#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "vmm/qmp.h"
#include "vmm/vm.h"

/**
 * struct private_block - one RAM block
 * @pages: 4 KiB pages in use
 * @hva: where it begins in the VMM
 */
struct private_block {
	char name[WIRE_NAME_MAX + 1];
	uint64_t pages;
	uint64_t hva;
};

/**
 * struct private_ram - all of a VM that migrates and is not in vm->blocks
 * @pid: the VMM
 * @told: QEMU says where its RAM is; so it is 8.0 or newer
 * @list: what it said, for private_same()
 */
struct private_ram {
	pid_t pid;
	bool told;
	unsigned int n;
	char *list;
	struct private_block b[WIRE_BLOCKS_MAX];
};

/**
 * private_find() - ask QEMU
 * Return: 0; if @told is false then there is nothing in it. Else GW_RAM_PRIVATE names the block that cannot be read like
 * this: not of whole pages, larger than all of them may be, or shared with others (ivshmem).
 */
int private_find(struct qmp *q, const struct vm *vm, struct private_ram *out, struct err *e);
/* With the guest at rest: is all RAM, the guest's own as well, what and where it was? GW_VM_STATE. */
int private_same(struct qmp *q, const struct private_ram *ram, struct err *e);
/* Nothing is in it then. */
void private_free(struct private_ram *ram);

/* All of them together; more than that is no display's. */
#define PRIVATE_MAX	(1ull << 30)

/* Pages [first, first + pages) of a block. GW_VM_GONE, GW_INTERNAL. */
int private_read(const struct private_ram *ram, unsigned int block, uint64_t first, uint64_t pages, void *buf, struct err *e);
int private_write(const struct private_ram *ram, unsigned int block, uint64_t first, uint64_t pages, const void *buf,
		  struct err *e);

#endif
