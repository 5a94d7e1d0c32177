/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's own list of all its RAM blocks, the guest's and its devices', and their addresses in QEMU.
 */
#ifndef GODWIT_RAMBLOCKS_H
#define GODWIT_RAMBLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "qmp/qmp.h"
#include "wire/blocks.h"

#define RAMBLOCKS_MAX 512	/* in a list; each PCI device with a ROM has one */

/**
 * struct ramblock - a line of the list; a block without a name is left out, as it does not migrate
 * @name: as in QEMU's migration stream
 * @offset: in QEMU's own numbering of RAM
 * @bytes: in use
 * @max: that it may grow to
 * @hva: its first address in the VMM; 0: not known
 */
struct ramblock {
	char name[WIRE_NAME_MAX + 1];
	uint64_t offset;
	uint64_t bytes;
	uint64_t max;
	uint64_t hva;
};

/**
 * struct ramblocks - all blocks of a QEMU
 * @located: QEMU's list had no addresses: ramblocks_locate() was to find them
 * @why: "" if they all have addresses; else none has, for this reason
 */
struct ramblocks {
	unsigned int n;
	bool located;
	char why[256];
	struct ramblock b[RAMBLOCKS_MAX];
};

/*
 * Parses text, the output of "info ramblock", and cuts it into pieces. 0; 1: the list has no
 * addresses (QEMU before 8.0), so all are 0; -EPROTO: the text is no such list; -E2BIG: more than
 * RAMBLOCKS_MAX.
 */
int ramblocks_parse(char *text, struct ramblocks *all);
/* Parses names and sizes alone, which every version has. Malformed lines are left out. */
void ramblocks_sizes(const char *text, struct ramblocks *all);
/*
 * Asks QEMU, which is process pid. Errors: GW_NOT_QEMU (a list that makes no sense), GW_VM_STATE
 * (too many blocks), those of proc_load_range(), and those of qmp_call() but GW_QMP.
 */
int ramblocks_query(struct qmp *q, pid_t pid, struct ramblocks *all, struct err *e);
/*
 * The first half of ramblocks_query(): the list as QEMU sends it, for free(). Equal texts mean the
 * same RAM and, if they have addresses, in the same places. "" when QEMU refuses the command.
 */
int ramblocks_text(struct qmp *q, char **text, struct err *e);
/* The second half of ramblocks_query(). */
int ramblocks_read(struct qmp *q, pid_t pid, const char *text, struct ramblocks *all,
		   struct err *e);
/*
 * Finds the addresses of blocks that have none: of all, or all->why says why of none. Reads QEMU's
 * heap, and takes two monitor commands for each block that the guest sees.
 */
int ramblocks_locate(struct qmp *q, pid_t pid, struct ramblocks *all, struct err *e);
/*
 * Of an equal list: are all blocks still where ramblocks_locate() has found them? A block that was
 * unplugged and plugged again may be elsewhere, under the same numbers. GW_VM_STATE: no.
 */
int ramblocks_check_located(pid_t pid, const struct ramblocks *was, struct err *e);
/* NULL: no block of that name. */
const struct ramblock *ramblocks_find(const struct ramblocks *all, const char *name);
/*
 * The block of the memory backend id, which has so many bytes. Where the backend is a
 * device's (virtio-mem), QEMU calls the block "PATH/ID", and other blocks of devices are named so,
 * too: "0000:00:01.0/vga.vram". NULL: no block fits, or several do.
 */
const struct ramblock *ramblocks_find_backend(const struct ramblocks *all, const char *id,
					      uint64_t bytes);
/*
 * Is block the RAM block of the backend name? Before machine type 4.0 it is called "/objects/NAME".
 */
bool ramblocks_is(const char *block, const char *name);

#endif
