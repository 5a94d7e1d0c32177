/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A block of guest RAM, whatever holds it: a file that QEMU maps shared, or memory of QEMU's own
 * (anonymous, or a private mapping of a file). What is above this folder reads and writes the pages
 * of a block, and does not ask which of both it is.
 */
#ifndef GODWIT_RAM_BLOCK_H
#define GODWIT_RAM_BLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "wire/blocks.h"

/**
 * struct ram_block - one memory backend of the VM
 * @name: the backend's id, or the name of QEMU's RAM block
 * @pages: 4 KiB pages
 * @address: where it begins in the guest, see mtree.h; WIRE_NO_ADDRESS: not known, or not asked
 * @page_size: bytes of a page of the file system, or of the mapping (4096, 2 MiB, 1 GiB)
 * @fd: the RAM file, O_RDONLY for a source, O_RDWR for a destination. Of private memory: the
 *	file behind it, O_RDONLY;
 *	-1: none, it is anonymous
 * @dev: @ino: of that file
 * @hugetlb: on hugetlbfs (lseek knows no holes there)
 * @waits: on this kernel a hole may be a huge page that is being filled: ask once more (tmpfs)
 * @memfd: it has no name, so QEMU 8.1 and newer do not leave it out of their own stream
 * @ivshmem: an ivshmem device shows it. QEMU compares guest addresses of what it leaves out of its
 *	stream, and in a destination that waits the device has none yet
 * @hva: private memory: where it begins in process @pid; 0: it is a shared file, and what
 *	follows means nothing
 * @pidfd: of that process; the VM's, which closes it
 * @pagemap: its /proc/PID/pagemap
 * @mem: its /proc/PID/mem, where KSM is at work; else -1
 */
struct ram_block {
	char name[WIRE_NAME_MAX + 1];
	uint64_t pages;
	uint64_t address;
	uint32_t page_size;
	int fd;
	dev_t dev;
	ino_t ino;
	bool hugetlb;
	bool waits;
	bool memfd;
	bool ivshmem;
	uint64_t hva;
	pid_t pid;
	int pidfd;
	int pagemap;
	int mem;
};

/**
 * struct ram_ops - a kind of RAM. [first, first + count) lies within the block.
 * @read: exactly these pages. Callers read only what @next_data has found: to read what is not
 *	there makes page tables, or pages. Errors: GW_VM_GONE, GW_INTERNAL.
 * @write: exactly these pages. 0 or -errno: -ENOSPC, -ENOMEM and, of private memory, -EFAULT:
 *	there is no memory for them. -ESRCH: the process has exited.
 * @patch: @len bytes from byte @at on, of pages that are there. Return: as @write
 * @next_data: the first run of pages in [first, end) that are there: 1 and *run, 0: none, or -errno
 *	and *e. What is not there reads as zeros. Not @exact: the run may be cut short and, of a
 *	file, hold such pages: so it costs what is looked at, and not what the file has.
 * @clear: pages become zeros; those that are not there stay so. Return: as @write
 * @allocated: so many pages are there, or were preallocated
 */
struct ram_ops {
	int (*read)(const struct ram_block *b, uint64_t first, uint64_t count, void *buf,
		    struct err *e);
	int (*write)(const struct ram_block *b, uint64_t first, uint64_t count, const void *buf);
	int (*patch)(const struct ram_block *b, uint64_t at, size_t len, const void *buf);
	int (*next_data)(const struct ram_block *b, uint64_t first, uint64_t end, bool exact,
			 uint64_t *run_first, uint64_t *run_count, struct err *e);
	int (*clear)(const struct ram_block *b, uint64_t first, uint64_t count);
	uint64_t (*allocated)(const struct ram_block *b);
};

extern const struct ram_ops ram_file_ops, ram_process_ops;

static inline const struct ram_ops *ram_ops(const struct ram_block *b)
{
	return b->hva ? &ram_process_ops : &ram_file_ops;
}

/**
 * ram_process_open() - memory of a process as a block
 * @b: @hva, @pages, @pid, @pidfd and @fd are known
 * Errors: GW_VM_GONE; GW_INTERNAL (permission; names the /proc file)
 */
int ram_process_open(struct ram_block *b, struct err *e);

/* Closes what it has open, but for @pidfd. */
void ram_block_close(struct ram_block *b);

/*
 * SEEK_DATA and SEEK_HOLE, for files that have them; the same on the whole range for those that do
 * not.
 */
int file_next_data(int fd, uint64_t first, uint64_t end, bool exact, uint64_t *run_first,
		   uint64_t *run_count, struct err *e);

#endif
