// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two kinds of writes to guest RAM show neither in KVM's dirty log, nor in a page table, nor in the
 * block layer's tracepoints: those of devices to long-term pins, and direct reads on file systems
 * that are not plain block I/O: network and FUSE, but also those that decompress or check through a
 * kernel mapping. godwit admits only file systems of which it knows that their reads are seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "kernel/release.h"
#include "proc/proc_io.h"
#include "vmm/devices.h"
#include "vmm/vm.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define RING_NAPS	100u	/* of 1 ms */

/* A part may stand anywhere in the link: a container may have its /dev elsewhere. */
static const struct device_file device_files[] = {
	{ "/dev/vfio/", "a VFIO device", NULL },
	{ "anon_inode:[vfio-device]", "a VFIO device", NULL },
	{ "/dev/iommu", "an IOMMUFD device", NULL },
	{ "/dev/vhost-vdpa-", "a vDPA device", NULL },
	{ "/dev/infiniband/", "an RDMA device", NULL },
	/* Holds page references while a request lasts, which nothing tells from others. */
	{ "/dev/vhost-scsi", "vhost-scsi",
	  "give the guest its disks by virtio-scsi or vhost-user-scsi" },
	/* The driver in user space gives its device physical addresses. */
	{ "/dev/uio", "a UIO device", "bind the device to vfio-pci, which shows what it may write" },
	/* Goes through the process' own page tables, by the IOMMU, and pins nothing. */
	{ "/dev/dsa/", "a DSA work queue", "let that process work without the accelerator" },
	{ "/dev/iax/", "an IAA work queue", "let that process work without the accelerator" },
};

const struct device_file *device_that_writes(const char *link)
{
	for (size_t i = 0; i < ARRAY_SIZE(device_files); i++)
		if (strstr(link, device_files[i].part))
			return &device_files[i];
	return NULL;
}

/*
 * File systems whose direct reads godwit.ko sees, or which copy through the reader's own mapping;
 * see xfs_copies_reads() and ext2_zeroes_holes(). Read in Linux 6.1, 6.12 and 7.3: ext4, XFS and
 * f2fs submit the reader's own bio (iomap_dio_submit_bio(), f2fs_dio_read_submit_io()), which
 * names the pages when it ends last; btrfs clones of it (btrfs_submit_direct(), btrfs_split_bio()),
 * which share its vector. Holes are cleared as the user's memory (iov_iter_zero()).
 */
static const uint64_t seen_fs[] = {
	EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC,
};

static const struct {
	uint64_t type;
	const char *name;
} hidden_fs[] = {	/* names for messages: a file system in neither table is refused, too */
	{ NFS_SUPER_MAGIC, "NFS" },
	{ CIFS_SUPER_MAGIC, "CIFS" },
	{ SMB2_SUPER_MAGIC, "SMB" },
	{ SMB_SUPER_MAGIC, "SMB" },
	{ CEPH_SUPER_MAGIC, "CephFS" },
	{ FUSE_SUPER_MAGIC, "FUSE" },
	{ V9FS_MAGIC, "9p" },
	{ AFS_FS_MAGIC, "AFS" },
	{ OCFS2_SUPER_MAGIC, "OCFS2" },
	{ 0x01161970, "GFS2" },
	{ 0x0bd00bd0, "Lustre" },
	{ 0x47504653, "GPFS" },
	{ 0x2fc12fc1, "ZFS" },
	{ 0xca451a4e, "bcachefs" },
	{ OVERLAYFS_SUPER_MAGIC, "overlayfs" },
};

const char *fs_that_hides_reads(uint64_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(seen_fs); i++)
		if (type == seen_fs[i])
			return NULL;
	for (size_t i = 0; i < ARRAY_SIZE(hidden_fs); i++)
		if (type == hidden_fs[i].type)
			return hidden_fs[i].name;
	return "a file system that godwit does not know";
}

static int devices_refuse(const char *what, const char *link, const char *way_out, struct err *e)
{
	char shown[256];

	return err_set(e, GW_PINNED, EBUSY, "%s (%s) writes guest RAM unseen by godwit: %s", what,
		       one_line(shown, sizeof(shown), link), way_out);
}

/* Reads an attribute of a disk, or of the disk that a partition is on, from sysfs. */
static bool devices_read_disk(const char *sys, dev_t dev, const char *attribute, char *value,
			      int len)
{
	static const char *const up[] = { "", "../" };
	char path[PATH_MAX];
	bool found = false;

	for (size_t i = 0; i < ARRAY_SIZE(up) && !found; i++) {
		CLEANUP_FCLOSE FILE *f = NULL;

		snprintf(path, sizeof(path), "%s/dev/block/%u:%u/%s%s", sys, major(dev), minor(dev),
			 up[i], attribute);
		f = fopen(path, "re");
		found = f && fgets(value, len, f);
	}
	return found;
}

/*
 * XFS does so from 7.0 on where a page must not change while the device works on it: RAID 5,
 * protection information.
 */
bool xfs_copies_reads(const char *sys, dev_t dev, const char *release)
{
	char value[32];

	if (release_before(release, 7, 0))
		return false;
	if (devices_read_disk(sys, dev, "queue/stable_writes", value, sizeof(value)) &&
	    value[0] == '1')
		return true;
	if (!devices_read_disk(sys, dev, "integrity/format", value, sizeof(value)))
		return false;
	return strcmp(value, "none\n") && strcmp(value, "nop\n");
}

/*
 * Its own driver (not ext4's, which most kernels have for it) reads by fs/direct-io.c until 6.5,
 * and that clears a hole through the kernel's mapping of the page. Only ext4 shows itself in sysfs.
 */
bool ext2_zeroes_holes(const char *sys, dev_t dev, const char *release)
{
	char path[PATH_MAX], link[PATH_MAX];
	ssize_t n;

	if (!release_before(release, 6, 5))
		return false;
	snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sys, major(dev), minor(dev));
	n = readlink(path, link, sizeof(link) - 1);
	if (n < 0)
		return true;
	link[n] = '\0';
	snprintf(path, sizeof(path), "%s/fs/ext4/%s", sys, basename(link));
	return access(path, F_OK) < 0;
}

int direct_io_hides(const char *path, struct hidden_io *io, struct err *e)
{
	struct utsname kernel;
	struct stat st;
	struct statfs fs;
	const char *name;

	*io = (struct hidden_io) { .or_move = "" };
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return 0;
	if (statfs(path, &fs) < 0)
		return errno == ENOENT ? 0 : proc_failed(path, errno, e);
	uname(&kernel);
	if (fs.f_type == XFS_SUPER_MAGIC && xfs_copies_reads("/sys", st.st_dev, kernel.release))
		name = "XFS on a disk that needs stable pages";
	else if (fs.f_type == EXT4_SUPER_MAGIC &&
		 ext2_zeroes_holes("/sys", st.st_dev, kernel.release))
		name = "ext2 by a driver of its own";
	else
		name = fs_that_hides_reads((uint64_t)fs.f_type);
	if (!name)
		return 0;
	if (fs.f_type != XFS_SUPER_MAGIC)
		io->or_move = ", or move its image to ext4, XFS, btrfs or f2fs";
	snprintf(io->what, sizeof(io->what), "direct I/O on %s", name);
	return 1;
}

/*
 * From Linux 6.15 on (6.14.8) a ring says nothing while something holds its lock, as a thread does
 * that submits. A file that was closed meanwhile has no flags.
 */
int devices_load_fdinfo(const char *proc, const char *number, const char *link,
			struct proc_fdinfo *info, const char **what, struct err *e)
{
	const bool ring = !strcmp(link, "anon_inode:[io_uring]");
	int r = proc_load_fdinfo(proc, number, info, e);

	for (unsigned int i = RING_NAPS; !r && ring && info->flags && !info->says_bufs && i; i--) {
		nap_ms(1);
		r = proc_load_fdinfo(proc, number, info, e);
	}
	*what = NULL;
	if (info->user_bufs)
		*what = "an io_uring with fixed buffers";
	else if (ring && info->flags && !info->says_bufs)
		*what = "an io_uring that is too busy to say whether it has fixed buffers";
	return r;
}

static int devices_check_pin(void *arg, const char *number, const char *link, struct err *e)
{
	const struct device_file *device = device_that_writes(link);
	const char *proc = arg, *ring;
	struct proc_fdinfo info;
	int r;

	if (device)
		return devices_refuse(device->what, link, "unplug it first (device_del)", e);
	r = devices_load_fdinfo(proc, number, link, &info, &ring, e);
	if (r || !ring)
		return r;
	return devices_refuse(ring, link, "use another driver or aio= for the disks", e);
}

static int devices_check_direct_fd(void *arg, const char *number, const char *link, struct err *e)
{
	const char *proc = arg;
	struct proc_fdinfo info;
	char path[PATH_MAX], way_out[160];
	struct hidden_io io;
	int r = proc_load_fdinfo(proc, number, &info, e);

	if (r || !(info.flags & O_DIRECT))
		return r;
	snprintf(path, sizeof(path), "%s/fd/%s", proc, number);
	r = direct_io_hides(path, &io, e);
	snprintf(way_out, sizeof(way_out),
		 "give that disk another cache mode (cache=writeback)%s", io.or_move);
	return r <= 0 ? r : devices_refuse(io.what, link, way_out, e);
}

int devices_check_tracer(const char *proc, const char *whom, pid_t except, struct err *e)
{
	char path[PATH_MAX], name[64];
	pid_t tracer;
	int r = proc_tracer(proc, except, &tracer, e);

	if (r || !tracer)
		return r;
	snprintf(path, sizeof(path), "%s/../%d", proc, (int)tracer);
	proc_name(path, name, sizeof(name));
	return err_set(e, GW_PINNED, EBUSY,
		       "process %d (%s) traces %s, and may write guest RAM unseen by godwit: detach that process (end the debugger)",
		       (int)tracer, name, whom);
}

int devices_check_pins(const char *proc, struct err *e)
{
	return proc_each_fd(proc, devices_check_pin, (void *)proc, e);
}

int devices_check_direct(const char *proc, struct err *e)
{
	return proc_each_fd(proc, devices_check_direct_fd, (void *)proc, e);
}

int vm_check_open_devices(pid_t pid, pid_t brake, struct err *e)
{
	char proc[32];
	int r;

	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	r = devices_check_pins(proc, e);
	return r ? r : devices_check_tracer(proc, "QEMU", brake, e);
}

int vm_check_devices(struct qmp *q, pid_t pid, pid_t brake, struct err *e)
{
	int r = vm_check_open_devices(pid, brake, e);

	return r ? r : vm_check_balloon(q, e);
}

int vm_check_direct_io(pid_t pid, struct err *e)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	return devices_check_direct(proc, e);
}
