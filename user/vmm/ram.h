/* SPDX-License-Identifier: GPL-2.0-only */
/* From QEMU's memory backends to the files that hold them. "proc" as in proc_io.h. */
#ifndef GODWIT_RAM_H
#define GODWIT_RAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "err.h"
#include "vmm/proc.h"
#include "vmm/vm.h"

/**
 * struct backend - a memory backend that can be migrated, by QEMU's own account
 * @mem_path: where its file is or, if that is a directory, was before it was unlinked; as the command line said it. NULL: it
 *            is a memfd, which has no name
 * @hva: of a memfd: where it begins in the VMM; 0: QEMU does not say
 */
struct backend {
	char id[WIRE_NAME_MAX + 1];
	uint64_t bytes;
	char *mem_path;
	uint64_t hva;
};

struct backends {
	struct backend b[WIRE_BLOCKS_MAX];
	unsigned int n;
};

/* All of them, by id; QEMU's own order is that of a hash table. backends_free() also after an error. */
int backends_query(struct qmp *q, struct backends *all, struct err *e);
void backends_free(struct backends *all);
/* GW_VM_STATE: vm->blocks are not all of them any more, as RAM was plugged or unplugged. One command, for the switchover. */
int backends_same(struct qmp *q, const struct vm *vm, struct err *e);

/* GW_RAM_PRIVATE: why, and the command line that helps. */
int ram_refuse(const char *id, uint64_t bytes, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/**
 * ram_path_matches() - can this mapping be that backend's?
 * @path: of the mapping, as struct proc_map says
 * @seen: what the process's mem-path leads to now; NULL: nothing
 */
bool ram_path_matches(const struct backend *b, const struct proc_map *m, const struct stat *seen);
/* The mapping of the start of the backend's file; GW_RAM_PRIVATE when there is none, or more than one file. */
int ram_find_mapping(const struct backend *b, const struct proc_maps *maps, const char *proc,
		     const struct proc_map **out, struct err *e);
/* Opens it and fills in the block. */
int ram_open(const struct backend *b, const struct proc_map *m, const char *proc, bool write, struct ram_block *out,
	     struct err *e);

/* All blocks of the VM. On error vm->blocks[0 .. vm->nblocks) are open. */
int ram_find(struct qmp *q, const char *proc, bool write, struct vm *vm, struct err *e);

/*
 * GW_VM_STATE: an ivshmem device shows one of them. QEMU cannot leave it out of its migration: it compares guest addresses, and
 * in a destination that waits the device has none yet.
 */
int ram_refuse_ivshmem(struct qmp *q, struct err *e);

/* The same without asking the VMM: the shared files of tmpfs and hugetlbfs that it maps, by their names. */
int ram_find_mapped(const char *proc, struct vm *vm, struct err *e);

#endif
