/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A VM as seen from outside: its process, its KVM file descriptor, its RAM blocks and the files
 * behind them.
 */
#ifndef GODWIT_VM_H
#define GODWIT_VM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "qmp/qmp.h"
#include "ram/ram_block.h"
#include "wire/blocks.h"

/**
 * struct vm - a VM that vm_find() found
 * @pid: the VMM
 * @pidfd: refers to it, readable when it has exited
 * @vm_fd: our copy of its anon_inode:kvm-vm descriptor; -1 when not asked for
 */
struct vm {
	pid_t pid;
	int pidfd;
	int vm_fd;
	unsigned int nblocks;
	struct ram_block blocks[WIRE_BLOCKS_MAX];
};

#define VM_WRITE	(1u << 0)	/* a destination: open the RAM files for writing */
#define VM_KVM		(1u << 1)	/* get vm_fd too */

/**
 * vm_find() - fill in struct vm
 * @q: NULL: asks no QEMU; the blocks are what @pid maps that may be a guest's RAM, which is good
 *	enough to measure with (ram_find_mapped())
 * @pid: 0: the process that listens on the QMP socket
 * @flags: VM_WRITE, VM_KVM
 * Blocks: query-memdev lists the backends. One with share=off is memory of the VMM's own, where
 * ramblocks_query() says; a file behind it must lie on tmpfs or hugetlbfs. The others are files
 * there: of a memory-backend-file godwit finds it in /proc/PID/maps: a MAP_SHARED mapping whose
 * path is the backend's mem-path, or, if mem-path is a directory,
 * mem-path/qemu_back_mem.NAME.XXXXXX (even "(deleted)"), or whose file is what mem-path leads to; a
 * memfd is where ramblocks_query() says, or else the only one of its size. godwit opens the file
 * through /proc/PID/map_files, so mount namespaces and unlinked files do not matter. A backend
 * begins at the start of its file, and no two backends share a file. The blocks are sorted by name.
 * Errors: GW_RAM_PRIVATE (names the backend and the -object line to use), GW_VM_GONE, GW_NOT_QEMU
 * (no kvm-vm descriptor: the VM does not run under KVM), GW_INTERNAL (permission; names the file in
 * /proc and the need for root).
 */
int vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e);
/**
 * vm_find_known() - the same, to write, of a VM that was found before
 * @known: the @name, @pages, @address, @memfd, @ivshmem, @dev and @ino of each of its blocks, files
 *	all of them, in the order wanted
 * Asks no QEMU, so it need not answer. Errors: GW_VM_GONE; GW_RAM_DIFFERS: the process does not map
 * such a file.
 */
int vm_find_known(pid_t pid, const struct ram_block *known, unsigned int n, struct vm *vm,
		  struct err *e);
/*
 * Fills in vm_fd of a VM that was found without VM_KVM. After an error the VM stays open. Errors:
 * those of vm_find().
 */
int vm_find_kvm(struct vm *vm, struct err *e);
void vm_close(struct vm *vm);	/* all zeros, or closed already, is fine */
/*
 * How many pages of RAM are there, pages of fallocate() included. Reads a counter of each file,
 * where source_allocated() walks the file; of private RAM it looks at the page map.
 */
uint64_t vm_allocated_pages(const struct vm *vm);

/**
 * vm_check_devices() - refuse devices that write guest RAM unseen by godwit.ko
 * Reads the VMM's open files: VFIO (/dev/vfio/N, anon_inode:[vfio-device]), vDPA
 * (/dev/vhost-vdpa-N), RDMA (/dev/infiniband/...), /dev/iommu, vhost-scsi, UIO, DSA, IAA, an
 * io_uring with fixed buffers. Refuses a tracer, too, which may write by ptrace() or /proc/PID/mem
 * (but brake: the sender's own; 0: none), and a
 * virtio-balloon with free-page-hint (qom: property free-page-hint true). Errors: GW_PINNED, naming
 * the device or the tracer, and what to do (unplug, detach). For other processes:
 * source_check_mappers().
 */
int vm_check_devices(struct qmp *q, pid_t pid, pid_t brake, struct err *e);
/* Its two parts: what /proc tells, asked by any thread; and what QEMU tells. */
int vm_check_open_devices(pid_t pid, pid_t brake, struct err *e);
int vm_check_balloon(struct qmp *q, struct err *e);

/**
 * vm_check_direct_io() - refuse direct reads into guest RAM that are unseen by godwit.ko
 * Refuses regular files that are open with O_DIRECT (fdinfo flags), unless their file system
 * (statfs type) is known to read through the block layer into the guest's pages, or to copy:
 * ext2-4, XFS, btrfs, f2fs, tmpfs. XFS on a disk that needs stable pages is refused, and so is
 * ext2's own driver of old; see xfs_copies_reads(), ext2_zeroes_holes().
 * Errors: GW_PINNED, naming the file and what to do (another cache mode).
 */
int vm_check_direct_io(pid_t pid, struct err *e);

#endif
