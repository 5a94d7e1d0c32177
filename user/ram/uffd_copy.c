// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "page/page.h"
#include "ram/uffd_copy.h"

static int uffd_copy_register(const struct uffd_copy *f)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = {
		.range = { (uintptr_t)f->base, f->pages * PAGE_BYTES },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (ioctl(f->fd, UFFDIO_API, &api) || ioctl(f->fd, UFFDIO_REGISTER, &area))
		return -errno;
	return area.ioctls & 1ull << _UFFDIO_COPY ? 0 : -EOPNOTSUPP;
}

void uffd_copy_open(struct uffd_copy *f, const struct ram_block *b)
{
	const size_t len = b->pages * PAGE_BYTES;
	void *base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

	*f = (struct uffd_copy) { .fd = -1 };
	if (base == MAP_FAILED)
		return;
	f->base = base;
	f->pages = b->pages;
	/* With the flag no privilege is needed, whatever vm.unprivileged_userfaultfd says. */
	f->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (f->fd < 0 || uffd_copy_register(f))
		uffd_copy_close(f);
}

void uffd_copy_close(struct uffd_copy *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->base)
		munmap(f->base, f->pages * PAGE_BYTES);
	*f = (struct uffd_copy) { .fd = -1 };
}

uint64_t uffd_copy_put(const struct uffd_copy *f, uint64_t first, const uint8_t *bytes,
		       uint64_t count)
{
	uint64_t done = 0;

	while (f->fd >= 0 && done < count) {
		struct uffdio_copy c = {
			.dst = (uintptr_t)(f->base + (first + done) * PAGE_BYTES),
			.src = (uintptr_t)(bytes + done * PAGE_BYTES),
			.len = (count - done) * PAGE_BYTES,
		};

		/* If the kernel stops early c.copy says where, and the next call fails. */
		if (ioctl(f->fd, UFFDIO_COPY, &c) && c.copy <= 0)
			break;
		done += (uint64_t)c.copy / PAGE_BYTES;
	}
	return done;
}
