// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/device.h"

#define DEVICE "/dev/godwit"

int device_open(struct err *e)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return err_set(e, GW_NO_MODULE, errno, "cannot open " DEVICE ": %s; run godwit as root (CAP_SYS_ADMIN)",
			       strerror(errno));
	return err_set(e, GW_NO_MODULE, errno,
		       "godwit.ko is not loaded (" DEVICE ": %s): load it with \"modprobe godwit\" or \"insmod kmod/godwit.ko\", or migrate with the guest stopped throughout (--pause)",
		       strerror(errno));
}

/* What every call may answer; what is its own, its caller has dealt with. */
static int failed(const char *what, struct err *e)
{
	int err = errno;

	switch (err) {
	case EOWNERDEAD:
		return err_set(e, GW_VM_GONE, err, "the VM has exited while godwit.ko watched it");
	case EAGAIN:
		return err_set(e, GW_BUSY, err, "%s: the VMM does not stop changing its memory slots, or a process that maps its RAM is busy with its address space; try again later", what);
	case EFBIG:
		return err_set(e, GW_VM_STATE, err, "%s: the guest has been given more of a RAM file than its memory backend has; migrate again", what);
	case ENOSPC:
		return err_set(e, GW_VM_STATE, err, "%s: the RAM is mapped in more pieces (some thousands) than godwit.ko can watch: see /proc/PID/maps of the VMM and of its vhost-user backends",
			       what);
	default:
		return err_set(e, GW_INTERNAL, err, "godwit.ko: %s: %s (see dmesg)", what, strerror(err));
	}
}

int device_attach(int dev, int vm_fd, struct err *e)
{
	struct godwit_attach a = { .vm_fd = vm_fd };

	if (ioctl(dev, GODWIT_ATTACH, &a) < 0) {
		if (errno == EBUSY)
			return err_set(e, GW_BUSY, EBUSY, "another godwit session has this VM: wait for it, or end it");
		if (errno == EOPNOTSUPP)
			return err_set(e, GW_DIRTY_RING, EOPNOTSUPP,
				       "the VM uses KVM's dirty ring, or its memory is private to it: start QEMU without \"-accel kvm,dirty-ring-size=...\" and without confidential-guest-support");
		return failed("attach", e);
	}
	if (a.abi != GODWIT_ABI_VERSION)
		return err_set(e, GW_NO_MODULE, EPROTO, "godwit.ko speaks ABI %u and this godwit %u: install both from one version",
			       a.abi, GODWIT_ABI_VERSION);
	if (!a.manual_protect)
		return err_set(e, GW_DIRTY_RING, EOPNOTSUPP,
			       "the VMM does not use KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, so its own migration would steal dirty pages: QEMU 5.0 or newer is needed");
	return 0;
}

int device_add_ram(int dev, int ram_fd, uint64_t pages, uint64_t **map, uint64_t *map_bytes, struct err *e)
{
	struct godwit_add_ram a = { .fd = ram_fd, .npages = pages };
	void *p;

	if (ioctl(dev, GODWIT_ADD_RAM, &a) < 0) {
		if (errno == ERANGE)
			return err_set(e, GW_RAM_PRIVATE, ERANGE, "the RAM file is shorter than the RAM, which has %llu pages: the VMM has truncated it",
				       (unsigned long long)pages);
		return failed("add RAM", e);
	}
	p = mmap(NULL, a.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev, (off_t)a.map_offset);
	if (p == MAP_FAILED)
		return failed("mmap", e);
	*map = p;
	*map_bytes = a.map_bytes;
	return 0;
}

int device_start(int dev, struct err *e)
{
	struct godwit_start a = { 0 };

	if (ioctl(dev, GODWIT_START, &a) < 0) {
		if (errno == ENOENT)
			return err_set(e, GW_VM_STATE, ENOENT, "no memory slot of the VM shows its RAM files: is it the right VM?");
		if (errno == EBUSY)
			return err_set(e, GW_BUSY, EBUSY,
				       "another godwit session watches a RAM file that this VM shares with another VM (\"godwit list\" names it): migrate them one after the other");
		if (errno == EINPROGRESS)
			return err_set(e, GW_BUSY, EINPROGRESS,
				       "somebody is writing to a RAM file, or giving its memory back, and has not ended within a second: try again later");
		return failed("start", e);
	}
	return 0;
}

int device_harvest(int dev, struct godwit_harvest *h, struct err *e)
{
	memset(h, 0, sizeof(*h));
	return ioctl(dev, GODWIT_HARVEST, h) < 0 ? failed("harvest", e) : 0;
}

int device_clear(int dev, unsigned int ram, uint64_t first, uint64_t count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = count };

	return ioctl(dev, GODWIT_CLEAR, &r) < 0 ? failed("clear", e) : 0;
}

static int next(int dev, unsigned long call, const char *what, struct godwit_range *r, uint64_t *run_first, uint64_t *run_count,
		struct err *e)
{
	if (ioctl(dev, call, r) < 0)
		return errno == ENXIO ? 0 : failed(what, e);
	*run_first = r->first_page;
	*run_count = r->npages;
	return 1;
}

int device_next_data(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		     uint64_t *run_count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = end - first };

	return next(dev, GODWIT_NEXT_DATA, "next data", &r, run_first, run_count, e);
}

int device_next_pinned(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		       uint64_t *run_count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = end - first };

	return next(dev, GODWIT_NEXT_PINNED, "next pinned", &r, run_first, run_count, e);
}

int device_mappers(int dev, uint32_t *pids, unsigned int room, struct err *e)
{
	struct godwit_mappers m = { .pids = (uintptr_t)pids, .room = room };

	return ioctl(dev, GODWIT_MAPPERS, &m) < 0 ? failed("mappers", e) : (int)m.count;
}
