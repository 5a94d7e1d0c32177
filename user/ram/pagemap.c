// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "page/page.h"
#include "ram/pagemap.h"

#ifndef PAGEMAP_SCAN
/* Linux 6.7's, for the headers of older ones: Documentation/admin-guide/mm/pagemap.rst. */
#define PAGE_IS_PRESENT	(1 << 3)
#define PAGE_IS_SWAPPED	(1 << 4)
#define PAGE_IS_PFNZERO	(1 << 5)
struct page_region {
	uint64_t start, end, categories;
};
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN	_IOWR('f', 16, struct pm_scan_arg)
#endif

#define THERE		(3ull << 62)	/* present, or swapped out */
#define ENTRIES		512u		/* of a page table */
#define TRIES		100u

static int scan(int fd, uint64_t from, uint64_t end, uint64_t *run, uint64_t *len)
{
	struct page_region found = { 0 };
	struct pm_scan_arg a = {
		.size = sizeof(a),
		.start = from,
		.end = end,
		.vec = (uintptr_t)&found,
		.vec_len = 1,
		.category_inverted = PAGE_IS_PFNZERO,
		.category_mask = PAGE_IS_PFNZERO,
		.category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
		.return_mask = PAGE_IS_PFNZERO,
	};
	int n = ioctl(fd, PAGEMAP_SCAN, &a);

	if (n < 0)
		return -errno;
	if (!n)
		return 0;
	*run = found.start;
	*len = found.end - found.start;
	return 1;
}

/*
 * So many entries from at on. A table that goes while the kernel reads makes an answer short, with
 * later entries in the place of earlier ones: such an answer is not believed. None goes beyond the
 * table's 2 MiB.
 */
static int read_table(int fd, uint64_t at, uint64_t end, uint64_t *entry, uint64_t *n)
{
	off_t offset = (off_t)(at / PAGE_BYTES * sizeof(*entry));
	uint64_t most = ENTRIES - at / PAGE_BYTES % ENTRIES;

	*n = (end - at) / PAGE_BYTES < most ? (end - at) / PAGE_BYTES : most;
	for (unsigned int tries = 0; tries < TRIES; tries++) {
		ssize_t got = pread(fd, entry, *n * sizeof(*entry), offset);

		if (got == (ssize_t)(*n * sizeof(*entry)))
			return 0;
		if (got <= 0)
			return got ? -errno : -ESRCH;
	}
	return -EAGAIN;
}

/* One entry a page, eight bytes of it. */
static int read_entries(int fd, uint64_t from, uint64_t end, uint64_t *run, uint64_t *len)
{
	uint64_t entry[ENTRIES], at = from, n;
	bool found = false;

	*run = from;
	while (at < end) {
		int r = read_table(fd, at, end, entry, &n);

		if (r)
			return r;
		for (uint64_t i = 0; i < n; i++, at += PAGE_BYTES) {
			bool there = entry[i] & THERE;

			if (there && !found)
				*run = at;
			if (!there && found)
				goto out;
			found |= there;
		}
	}
out:
	*len = at - *run;
	return found;
}

int pagemap_next(int fd, uint64_t from, uint64_t end, uint64_t *run, uint64_t *len)
{
	int r;

	if (from >= end)
		return 0;
	r = scan(fd, from, end, run, len);
	return r == -ENOTTY ? read_entries(fd, from, end, run, len) : r;
}
