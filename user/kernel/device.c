// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/device.h"

#define DEVICE "/dev/godwit"
#define USERFAULTFD "/dev/userfaultfd"

int device_open(struct err *e)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return err_set(e, GW_NO_MODULE, errno,
			       "cannot open " DEVICE ": %s: run godwit as root (CAP_SYS_ADMIN)",
			       strerror(errno));
	return err_set(e, GW_NO_MODULE, errno,
		       "godwit.ko is not loaded (" DEVICE ": %s): load it with \"modprobe godwit\" or \"insmod kmod/godwit.ko\"",
		       strerror(errno));
}

int device_open_or_pause(struct err *e)
{
	struct err why = { 0 };
	int fd = device_open(&why);

	return fd >= 0 ? fd : err_set(e, why.exit, -fd, "%.800s, or migrate with the guest stopped throughout (--pause)", why.text);
}

/* The errors that any ioctl may return; its caller handles those of one ioctl alone. */
static int device_failed(const char *what, struct err *e)
{
	int err = errno;

	switch (err) {
	case EOWNERDEAD:
		return err_set(e, GW_VM_GONE, err, "the VM has exited while godwit.ko watched it");
	case EAGAIN:
		return err_set(e, GW_BUSY, err,
			       "%s: the VMM keeps changing its memory slots, or a process that maps its RAM is busy with its address space: try again later",
			       what);
	case EFBIG:
		return err_set(e, GW_VM_STATE, err,
			       "%s: the VMM shows the guest more of a RAM file than the memory backend has: migrate again",
			       what);
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
			return err_set(e, GW_BUSY, EBUSY,
				       "another godwit session watches this VM: wait until that session ends, or end it");
		if (errno == EINPROGRESS)
			return err_set(e, GW_BUSY, EINPROGRESS,
				       "this guest came by post-copy, and may lack RAM that only its source has: wait until \"godwit receive\" says that all RAM is here; if none runs any more, start \"godwit receive --recover\" for it");
		if (errno == EOPNOTSUPP)
			return err_set(e, GW_DIRTY_RING, EOPNOTSUPP,
				       "the VM uses KVM's dirty ring, or is confidential: start QEMU without \"-accel kvm,dirty-ring-size=...\" and without confidential-guest-support");
		return device_failed("attach", e);
	}
	if (a.abi != GODWIT_ABI_VERSION)
		return err_set(e, GW_NO_MODULE, EPROTO,
			       "godwit.ko speaks ABI %u and this godwit speaks ABI %u: install both from one version",
			       a.abi, GODWIT_ABI_VERSION);
	if (!a.manual_protect)
		return err_set(e, GW_DIRTY_RING, EOPNOTSUPP,
			       "the VMM does not use KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, so its own migration would clear dirty bits that godwit needs: QEMU 5.0 or newer is needed");
	return 0;
}

static int device_map(int dev, const struct godwit_add_ram *a, uint64_t **map, uint64_t *map_bytes,
		      struct err *e)
{
	void *p = mmap(NULL, a->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
		       (off_t)a->map_offset);

	if (p == MAP_FAILED)
		return device_failed("mmap", e);
	*map = p;
	*map_bytes = a->map_bytes;
	return 0;
}

int device_add_ram(int dev, int ram_fd, uint64_t pages, uint64_t **map, uint64_t *map_bytes,
		   struct err *e)
{
	struct godwit_add_ram a = { .fd = ram_fd, .npages = pages };

	if (!ioctl(dev, GODWIT_ADD_RAM, &a))
		return device_map(dev, &a, map, map_bytes, e);
	if (errno == ERANGE)
		return err_set(e, GW_RAM_PRIVATE, ERANGE,
			       "the RAM file is shorter than the RAM, which has %llu pages: the VMM has truncated the file",
			       (unsigned long long)pages);
	return device_failed("add RAM", e);
}

/* What the module finds in private RAM, at ADD_RAM or later, that it cannot watch. */
static int device_refused(int err, const char *what, struct err *e)
{
	static const struct {
		int err;
		const char *is;
	} found[] = {
		{ EADDRNOTAVAIL, "some of it is not mapped: the VMM has changed its memory" },
		{ ENODEV, "some of it is memory of a device" },
		{ ENOTUNIQ, "some of it is a shared mapping" },
		{ EMEDIUMTYPE, "some of it maps a file that is not on tmpfs or hugetlbfs" },
		{ EOPNOTSUPP, "some of it is in a guest_memfd, as a confidential guest's is" },
	};

	for (unsigned int i = 0; i < sizeof(found) / sizeof(found[0]); i++)
		if (err == found[i].err)
			return err_set(e, GW_RAM_PRIVATE, err,
				       "godwit.ko cannot watch the VM's private RAM, %s: start QEMU with memory-backend-ram, or with memory-backend-file,share=on on tmpfs or hugetlbfs",
				       found[i].is);
	errno = err;
	return device_failed(what, e);
}

int device_add_private(int dev, uint64_t hva, uint64_t pages, uint64_t **map, uint64_t *map_bytes,
		       struct err *e)
{
	struct godwit_add_ram a = {
		.fd = -1, .flags = GODWIT_RAM_PRIVATE, .map_offset = hva, .npages = pages,
	};

	if (!ioctl(dev, GODWIT_ADD_RAM, &a))
		return device_map(dev, &a, map, map_bytes, e);
	/* The first module of this ABI knows no flag. */
	if (errno == EINVAL)
		return err_set(e, GW_NO_MODULE, EINVAL,
			       "the VM has private RAM, which this godwit.ko is too old to watch: load the one that came with this godwit");
	return device_refused(errno, "add private RAM", e);
}

int device_start(int dev, struct err *e)
{
	struct godwit_start a = { 0 };

	if (ioctl(dev, GODWIT_START, &a) < 0) {
		if (errno == ENOENT)
			return err_set(e, GW_VM_STATE, ENOENT,
				       "no memory slot of the VM shows its RAM files: is this the right VM?");
		if (errno == EBUSY)
			return err_set(e, GW_BUSY, EBUSY,
				       "another godwit session watches a RAM file that this VM shares with another VM (\"godwit list\" names the session): migrate the VMs one after the other");
		if (errno == EINPROGRESS)
			return err_set(e, GW_BUSY, EINPROGRESS,
				       "a process is writing to a RAM file, or freeing its memory, and has not ended within a second: try again later");
		return device_refused(errno, "start", e);
	}
	return 0;
}

int device_harvest(int dev, struct godwit_harvest *h, struct err *e)
{
	memset(h, 0, sizeof(*h));
	return ioctl(dev, GODWIT_HARVEST, h) < 0 ? device_refused(errno, "harvest", e) : 0;
}

int device_clear(int dev, unsigned int ram, uint64_t first, uint64_t count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = count };

	return ioctl(dev, GODWIT_CLEAR, &r) < 0 ? device_failed("clear", e) : 0;
}

static int device_next(int dev, unsigned long call, const char *what, struct godwit_range *r,
		       uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	if (ioctl(dev, call, r) < 0)
		return errno == ENXIO ? 0 : device_failed(what, e);
	*run_first = r->first_page;
	*run_count = r->npages;
	return 1;
}

int device_next_data(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		     uint64_t *run_count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = end - first };

	return device_next(dev, GODWIT_NEXT_DATA, "next data", &r, run_first, run_count, e);
}

int device_next_pinned(int dev, unsigned int ram, uint64_t first, uint64_t end, uint64_t *run_first,
		       uint64_t *run_count, struct err *e)
{
	struct godwit_range r = { .ram = ram, .first_page = first, .npages = end - first };

	return device_next(dev, GODWIT_NEXT_PINNED, "next pinned", &r, run_first, run_count, e);
}

int device_mappers(int dev, uint32_t *pids, unsigned int room, struct err *e)
{
	struct godwit_mappers m = { .pids = (uintptr_t)pids, .room = room };

	if (ioctl(dev, GODWIT_MAPPERS, &m) < 0)
		return device_failed("mappers", e);
	return (int)m.count;
}

int device_keep(int dev, const uint8_t token[GODWIT_TOKEN_BYTES], bool take, struct err *e)
{
	struct godwit_keep k = { .flags = take ? GODWIT_KEEP_TAKE : 0 };

	memcpy(k.token, token, sizeof(k.token));
	if (!ioctl(dev, GODWIT_KEEP, &k))
		return (int)k.count;
	switch (errno) {
	case ENOTTY:
		return err_set(e, GW_NO_MODULE, ENOTTY,
			       "this godwit.ko is too old for post-copy: load the one that came with this godwit");
	case EBUSY:
		return err_set(e, GW_BUSY, EBUSY,
			       "another receiver serves the guest's page faults: wait until that receiver ends, or end it");
	case EEXIST:
		return err_set(e, GW_BUSY, EEXIST,
			       "godwit.ko has page faults of this migration already: a receiver has begun its post-copy, and it can only be taken over");
	case ENOENT:
		return err_set(e, GW_NO_MIGRATION, ENOENT,
			       "godwit.ko keeps no page faults of this migration: its post-copy has ended, or QEMU has exited");
	default:
		return device_failed("keep", e);
	}
}

int device_open_userfaultfd(struct err *e)
{
	int fd = open(USERFAULTFD, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return err_set(e, GW_NO_MODULE, errno,
			       "cannot open " USERFAULTFD ": %s: run godwit as root",
			       strerror(errno));
	return err_set(e, GW_NO_MODULE, errno,
		       "this host has no " USERFAULTFD " (%s), so no post-copy: it needs Linux 6.1 or newer with CONFIG_USERFAULTFD, and the device in a container, too",
		       strerror(errno));
}

int device_uffd(int dev, int mem_fd, int userfaultfd_dev, bool *kept, struct err *e)
{
	struct godwit_uffd u = { .mem_fd = mem_fd, .dev_fd = userfaultfd_dev };

	if (!ioctl(dev, GODWIT_UFFD, &u)) {
		*kept = u.flags & GODWIT_UFFD_KEPT;
		return u.fd;
	}
	switch (errno) {
	case ESRCH:
		return err_set(e, GW_VM_GONE, ESRCH,
			       "a process that maps the guest's RAM has exited, or has become another program");
	case EBUSY:
		return err_set(e, GW_BUSY, EBUSY,
			       "another post-copy serves the page faults of a process that maps the guest's RAM: wait until that one ends");
	case ENOENT:
		return err_set(e, GW_NO_MIGRATION, ENOENT,
			       "godwit.ko keeps page faults of this migration, but not those of this QEMU: it is another guest's");
	case ENOSPC:
		return err_set(e, GW_VM_STATE, ENOSPC,
			       "more than %u processes map the guest's RAM: migrate without post-copy",
			       GODWIT_UFFD_MAX);
	case EOPNOTSUPP:
		return err_set(e, GW_NO_MODULE, EOPNOTSUPP,
			       "this kernel has no userfaultfd (CONFIG_USERFAULTFD), or godwit.ko does not know its /proc: migrate without post-copy");
	default:
		return device_failed("userfaultfd", e);
	}
}

int device_keep_end(int dev, struct err *e)
{
	return ioctl(dev, GODWIT_KEEP_END, 0) < 0 ? device_failed("keep end", e) : 0;
}
