// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "host.h"
#include "ram.h"
#include "vm.h"

/* On a mount of its own, in a mount namespace of its own: both go with the process. */
static int open_thp(void)
{
	require(!unshare(CLONE_NEWNS), "unshare");
	require(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), "mount --make-rprivate");
	require(!mount("tmpfs", "/mnt", "tmpfs", 0, "huge=always,size=1G"),
		"mount of a tmpfs with huge pages");
	return open("/mnt/ram", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static int open_kind(enum ram_kind kind)
{
	static const unsigned int flags[] = {
		[RAM_TMPFS] = 0,
		[RAM_2M] = MFD_HUGETLB | MFD_HUGE_2MB,
		[RAM_1G] = MFD_HUGETLB | MFD_HUGE_1GB,
	};

	return kind == RAM_THP ? open_thp() : memfd_create("kst-ram", MFD_CLOEXEC | flags[kind]);
}

int sized_memfd(uint64_t bytes, unsigned int flags)
{
	int fd = memfd_create("kst", MFD_CLOEXEC | flags);

	require(fd >= 0 && !ftruncate(fd, bytes), "memfd");
	return fd;
}

uint8_t *aligned_room(uint64_t bytes, uint64_t align)
{
	uint8_t *room = mmap(NULL, bytes + align, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	require(room != MAP_FAILED, "address space");
	return (uint8_t *)(((uintptr_t)room + align - 1) & ~(align - 1));
}

uint8_t *ram_map(const struct ram *r)
{
	uint8_t *at = aligned_room(r->bytes, r->bytes >= GIB ? GIB : 2 * MIB);

	if (mmap(at, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, r->fd, 0) ==
	    MAP_FAILED)
		return NULL;
	return at;
}

int ram_create(struct ram *r, enum ram_kind kind, uint64_t bytes)
{
	static const uint64_t page[] = {
		[RAM_TMPFS] = PAGE, [RAM_THP] = 2 * MIB, [RAM_2M] = 2 * MIB, [RAM_1G] = GIB,
	};
	int err;

	*r = (struct ram){ .bytes = bytes, .page = page[kind], .fd = open_kind(kind) };
	if (r->fd < 0)
		return -errno;
	if (!ftruncate(r->fd, bytes))
		r->map = ram_map(r);
	if (r->map)
		return 0;
	err = -errno;
	close(r->fd);
	return err;
}

void ram_destroy(struct ram *r)
{
	munmap(r->map, r->bytes);
	close(r->fd);
}

void shadow_init(struct shadow *sh, const struct ram *r, uint64_t bytes)
{
	sh->ram = r;
	sh->bytes = bytes;
	sh->copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(sh->copy != MAP_FAILED, "a copy of RAM");
}

void shadow_free(struct shadow *sh)
{
	munmap(sh->copy, sh->bytes);
}

/* The first page from at on whose bit is (not) set. */
static uint64_t find_page(const struct bitmap *b, uint64_t at, uint64_t end, bool set)
{
	while (at < end && bit_set(b, at) != set)
		at = at % 64 || b->words[at / 64] != (set ? 0 : ~0ULL) ? at + 1 : at + 64;
	return at < end ? at : end;
}

static void copy_range(struct shadow *sh, uint64_t first, uint64_t npages)
{
	ssize_t bytes = npages * PAGE;

	require(pread(sh->ram->fd, sh->copy + first * PAGE, bytes, first * PAGE) == bytes, "pread");
}

void shadow_take_range(struct shadow *sh, struct bitmap *b, uint64_t first, uint64_t npages)
{
	uint64_t at, stop = first, end = first + npages;

	while ((first = find_page(b, stop, end, true)) < end) {
		stop = find_page(b, first, end, false);
		for (at = first; at < stop; at++)
			bit_take(b, at);
		copy_range(sh, first, stop - first);
	}
}

void shadow_take(struct shadow *sh, struct bitmap *b)
{
	shadow_take_range(sh, b, 0, sh->bytes / PAGE);
	bits_forget(b);
}

void shadow_take_holes(struct shadow *sh)
{
	off_t hole = 0, data, end = sh->bytes;

	while ((hole = lseek(sh->ram->fd, hole, SEEK_HOLE)) >= 0 && hole < end) {
		data = lseek(sh->ram->fd, hole, SEEK_DATA);
		if (data < 0 || data > end)
			data = end;
		memset(sh->copy + hole, 0, data - hole);
		hole = data;
	}
}

uint64_t pages_differ(int fd, uint64_t at, const uint8_t *copy, uint64_t bytes)
{
	static uint8_t now[2 * MIB];
	uint64_t done, i, differs = 0;

	for (done = 0; done < bytes; done += sizeof(now)) {
		uint64_t len = bytes - done < sizeof(now) ? bytes - done : sizeof(now);

		require(pread(fd, now, len, at + done) == (ssize_t)len, "pread");
		for (i = 0; i < len; i += PAGE)
			differs += !!memcmp(now + i, copy + done + i, PAGE);
	}
	return differs;
}

uint64_t shadow_differs(const struct shadow *sh)
{
	return pages_differ(sh->ram->fd, 0, sh->copy, sh->bytes);
}
