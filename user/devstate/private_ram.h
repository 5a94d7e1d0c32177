/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Private RAM: RAM that QEMU keeps to itself, of displays, flash and ROMs, some 17 MiB. In save
 * mode (save.h) QEMU does not send it: godwit reads and writes it in QEMU's own memory.
 */
#ifndef GODWIT_PRIVATE_RAM_H
#define GODWIT_PRIVATE_RAM_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "qmp/qmp.h"
#include "vmm/ramblocks.h"
#include "vmm/vm.h"

/**
 * struct private_block - one RAM block
 * @pages: 4 KiB pages in use
 * @hva: its first address in the VMM
 */
struct private_block {
	char name[WIRE_NAME_MAX + 1];
	uint64_t pages;
	uint64_t hva;
};

/**
 * struct private_ram - all RAM of a VM that migrates and is not in vm->blocks
 * @pid: the VMM; @pidfd: of the struct vm: another process that has that number is not touched
 * @has_addresses: it is known where QEMU's RAM is
 * @why: it is not, for this reason
 * @list: what QEMU reported, for private_ram_same()
 * @located: NULL, or all blocks of a QEMU that does not report where they are
 */
struct private_ram {
	pid_t pid;
	int pidfd;
	bool has_addresses;
	unsigned int n;
	char why[256];
	char *list;
	struct ramblocks *located;
	struct private_block b[WIRE_BLOCKS_MAX];
};

/**
 * private_ram_find() - ask QEMU for all private RAM
 * Return: 0; without @has_addresses the list of blocks is empty. GW_RAM_PRIVATE names a block that
 * cannot be read in QEMU's memory: not of whole pages, one that exceeds the limit of blocks or of
 * PRIVATE_RAM_MAX, or shared with other processes (ivshmem). GW_NOT_QEMU: the list makes no sense.
 */
int private_ram_find(struct qmp *q, const struct vm *vm, struct private_ram *out, struct err *e);
/*
 * With the guest stopped: is all RAM, the guest's as well, what and where it was? GW_VM_STATE: no.
 */
int private_ram_same(struct qmp *q, const struct private_ram *ram, struct err *e);
/* Leaves no block in *ram. */
void private_ram_free(struct private_ram *ram);

/* Bytes of all blocks together; no display has more. */
#define PRIVATE_RAM_MAX	(1ull << 30)

/* Pages [first, first + pages) of a block. GW_VM_GONE, GW_INTERNAL. */
int private_ram_read(const struct private_ram *ram, unsigned int block, uint64_t first,
		     uint64_t pages, void *buf, struct err *e);
int private_ram_write(const struct private_ram *ram, unsigned int block, uint64_t first,
		      uint64_t pages, const void *buf, struct err *e);

#endif
