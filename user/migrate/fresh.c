// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "migrate/fresh.h"
#include "page/page.h"

static int watch_missing(const struct fresh *f)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = {
		.range = { (uintptr_t)f->base, f->pages * PAGE_BYTES }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (ioctl(f->fd, UFFDIO_API, &api) || ioctl(f->fd, UFFDIO_REGISTER, &area))
		return -errno;
	return area.ioctls & 1ull << _UFFDIO_COPY ? 0 : -EOPNOTSUPP;
}

void fresh_open(struct fresh *f, const struct ram_block *b)
{
	void *base = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

	*f = (struct fresh) { .fd = -1 };
	if (base == MAP_FAILED)
		return;
	f->base = base;
	f->pages = b->pages;
	/* The flag makes it everybody's, whatever vm.unprivileged_userfaultfd says. */
	f->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (f->fd < 0 || watch_missing(f))
		fresh_close(f);
}

void fresh_close(struct fresh *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->base)
		munmap(f->base, f->pages * PAGE_BYTES);
	*f = (struct fresh) { .fd = -1 };
}

uint64_t fresh_put(const struct fresh *f, uint64_t first, const uint8_t *bytes, uint64_t count)
{
	uint64_t done = 0;

	while (f->fd >= 0 && done < count) {
		struct uffdio_copy c = {
			.dst = (uintptr_t)(f->base + (first + done) * PAGE_BYTES),
			.src = (uintptr_t)(bytes + done * PAGE_BYTES),
			.len = (count - done) * PAGE_BYTES,
		};

		/* Cut short, it says how far it came, and the next call why. */
		if (ioctl(f->fd, UFFDIO_COPY, &c) && c.copy <= 0)
			break;
		done += (uint64_t)c.copy / PAGE_BYTES;
	}
	return done;
}
