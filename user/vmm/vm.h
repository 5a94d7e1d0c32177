/* SPDX-License-Identifier: GPL-2.0-only */
/* A VM as seen from outside: its process, its KVM file descriptor, its RAM blocks and the files behind them. */
#ifndef GODWIT_VM_H
#define GODWIT_VM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "vmm/qmp.h"
#include "wire/wire.h"

/**
 * struct ram_block - one memory backend of the VM
 * @name: the backend's id, which QEMU uses as its RAM block's name
 * @pages: 4 KiB pages
 * @page_size: bytes of the file system's page (4096, 2 MiB, 1 GiB)
 * @fd: the RAM file, O_RDONLY for a source, O_RDWR for a destination
 * @dev: @ino: of that file
 * @address: where it begins in the guest, see mtree.h; WIRE_NO_ADDRESS: not known, or not asked
 * @hugetlb: on hugetlbfs (lseek knows no holes there)
 * @memfd: it has no name, so QEMU 8.1 and newer do not leave it out of their own stream
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
	bool memfd;
};

/**
 * struct vm - what vm_find() found
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
 * vm_find() - find out all of struct vm
 * @q: NULL: nobody is asked, the blocks are all shared files of tmpfs and hugetlbfs that @pid maps; to measure with
 * @pid: 0: whoever listens on the QMP socket
 * Blocks: query-memdev lists the backends; each must be share=true, of QOM type memory-backend-file or -memfd (qom-get
 * /objects/ID type) and lie on tmpfs or hugetlbfs. Its file is found in /proc/PID/maps: a MAP_SHARED mapping whose
 * path is the backend's mem-path, or, if mem-path is a directory, mem-path/qemu_back_mem.NAME.XXXXXX (even "(deleted)"),
 * or whose file is what mem-path leads to; a memfd is where x-query-ramblock says. It is opened through
 * /proc/PID/map_files, so mount namespaces and unlinked files do not matter. A backend begins at the start of its file, and no two share one. The blocks are sorted by name.
 * Errors: GW_RAM_PRIVATE (names the backend and the -object line to use), GW_VM_GONE, GW_NOT_QEMU (no kvm-vm
 * descriptor: the VM does not run under KVM), GW_INTERNAL (permission; names /proc file and the need for root).
 */
int vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e);
/* Gets vm_fd of a VM that was found without it. The VM stays open on errors, which are those of vm_find(). */
int vm_find_kvm(struct vm *vm, struct err *e);
void vm_close(struct vm *vm);	/* all zeros, or closed already, is fine */
/* How many pages the RAM files hold. At once, where round_allocated() walks them; pages of fallocate() count as well. */
uint64_t vm_allocated_pages(const struct vm *vm);

/**
 * vm_check_devices() - refuse devices that write guest RAM where nobody can see it
 * Looks at the VMM's open files: VFIO (/dev/vfio/N, anon_inode:[vfio-device]), vDPA (/dev/vhost-vdpa-N), RDMA
 * (/dev/infiniband/...), /dev/iommu, vhost-scsi, UIO, an io_uring with fixed buffers; and for a tracer, which may write by
 * ptrace() or /proc/PID/mem. virtio-balloon with free-page-hint (qom: property free-page-hint true) is refused too. Errors:
 * GW_PINNED, naming the device or the tracer, and what to do (unplug, detach). Other processes: source_check_mappers().
 */
int vm_check_devices(struct qmp *q, pid_t pid, struct err *e);

/**
 * vm_check_direct_io() - refuse direct reads into guest RAM that nobody can see
 * Those are of regular files that are open with O_DIRECT (fdinfo flags), unless their file system (statfs type) is known to
 * read through the block layer into the guest's pages, or to copy: ext2-4, XFS, btrfs, f2fs, tmpfs.
 * Errors: GW_PINNED, naming the file and what to do (another cache mode).
 */
int vm_check_direct_io(pid_t pid, struct err *e);

#endif
