/* SPDX-License-Identifier: GPL-2.0-only */
/* From QEMU's memory backends to the files that hold them. "proc" as in proc_io.h. */
#ifndef GODWIT_RAM_H
#define GODWIT_RAM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "proc/proc.h"
#include "vmm/vm.h"

/**
 * enum backend_kind - what holds the RAM of a backend
 * @BACKEND_FILE: memory-backend-file, share=on: a file of that name
 * @BACKEND_MEMFD: memory-backend-memfd, share=on
 * @BACKEND_SHARED: memory-backend-ram, share=on: a file without a name
 * @BACKEND_PRIVATE: share=off, which is what QEMU does if nothing else is said: memory of its own
 */
enum backend_kind { BACKEND_FILE, BACKEND_MEMFD, BACKEND_SHARED, BACKEND_PRIVATE };

/**
 * struct backend - a memory backend, as QEMU reports it
 * @mem_path: of BACKEND_FILE: its file, as the command line named it, or the directory in
 *	which QEMU
 *	made and unlinked it
 * @hva: of the others: where it begins in the VMM; 0: that is not known
 * @why: it is not, for this reason
 */
struct backend {
	char id[WIRE_NAME_MAX + 1];
	enum backend_kind kind;
	uint64_t bytes;
	char *mem_path;
	uint64_t hva;
	char why[256];
};

struct backends {
	struct backend b[WIRE_BLOCKS_MAX];
	unsigned int n;
};

/*
 * All backends of the QEMU that is process pid, sorted by id: QEMU lists a hash table.
 * backends_free() also after an error.
 */
int backends_query(struct qmp *q, pid_t pid, struct backends *all, struct err *e);
void backends_free(struct backends *all);
/*
 * GW_VM_STATE: QEMU's backends are not vm->blocks any more, as RAM was plugged or unplugged. One
 * command, for the switchover.
 */
int backends_same(struct qmp *q, const struct vm *vm, struct err *e);

/*
 * GW_VM_STATE: the VMM does not map the file of a block any more: RAM was unplugged, and other RAM
 * plugged under its name, which backends_same() does not tell from it. One walk over its mappings.
 */
int ram_check_mapped(const struct vm *vm, const char *proc, struct err *e);

/* GW_RAM_PRIVATE: the reason, and the command line that QEMU needs. */
int ram_refuse(const char *id, uint64_t bytes, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/**
 * ram_path_matches() - can this mapping be that backend's?
 * @b: the backend
 * @m: the mapping
 * @seen: the file that the backend's mem-path leads to now; NULL: none
 */
bool ram_path_matches(const struct backend *b, const struct proc_map *m, const struct stat *seen);
/*
 * The mapping of the start of the backend's file. GW_RAM_PRIVATE: there is none, or more than one
 * file fits the backend, or the VMM maps less than the backend.
 */
int ram_find_mapping(const struct backend *b, const struct proc_maps *maps, const char *proc,
		     const struct proc_map **out, struct err *e);
/*
 * Opens the file of a mapping as b->fd, and fills in what the file says of a block: @dev, @ino,
 * @hugetlb, @page_size. On error b->fd is -1. -EAGAIN: the mapping is of another file now.
 * Return: 1: RAM may be in it, a regular file of tmpfs or hugetlbfs; 0: another file; or -errno
 */
int ram_open_mapped(const struct proc_map *m, const char *proc, bool write, struct ram_block *b,
		    struct stat *st, struct err *e);
/* Opens the mapping's file and fills in the block. */
int ram_open(const struct backend *b, const struct proc_map *m, const char *proc, bool write,
	     struct ram_block *out, struct err *e);

/*
 * Opens private memory as a block: BACKEND_PRIVATE. Errors: GW_RAM_PRIVATE: it is not known where
 * it is, or it is no memory that godwit can read by address.
 */
int ram_open_private(const struct backend *b, const char *proc, const struct vm *vm,
		     struct ram_block *out, struct err *e);

/* All blocks of the VM. On error vm->blocks[0 .. vm->nblocks) are open. */
int ram_find(struct qmp *q, const char *proc, bool write, struct vm *vm, struct err *e);

/*
 * Marks the backends that ivshmem-plain devices show to the guest (@ivshmem). Errors: those of
 * qmp_call(); GW_RAM_PRIVATE: there is an ivshmem-doorbell.
 */
int ram_find_ivshmem(struct qmp *q, struct vm *vm, struct err *e);

/*
 * Opens the file of a block by its @dev and @ino, to write, and fills in what the file says.
 * Errors: GW_RAM_DIFFERS: no mapping shows it.
 */
int ram_open_known(const struct proc_maps *maps, const char *proc, struct ram_block *b,
		   struct err *e);

/*
 * ram_find() without asking the VMM: the shared files of tmpfs and hugetlbfs that it maps, by their
 * names, and private memory that is not small beside the largest block, by its address.
 */
int ram_find_mapped(const char *proc, struct vm *vm, struct err *e);

#endif
