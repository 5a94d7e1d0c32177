// SPDX-License-Identifier: GPL-2.0-only
/* Source: include/uapi/linux/fs.h of Linux 6.11, PROCMAP_QUERY. */
#include <assert.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "proc/map_query.h"

struct map_query {
	uint64_t size;
	uint64_t query_flags;
	uint64_t query_addr;
	uint64_t vma_start, vma_end;
	uint64_t vma_flags;
	uint64_t vma_page_size;
	uint64_t vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size;
	uint32_t build_id_size;
	uint64_t vma_name_addr;
	uint64_t build_id_addr;
};

static_assert(sizeof(struct map_query) == 104, "not the kernel's");

#define MAP_QUERY	_IOWR('f', 17, struct map_query)

#define VMA_WRITABLE	0x02u
#define VMA_SHARED	0x08u
#define COVERING_OR_NEXT	0x10u
#define OF_A_FILE	0x20u

int map_query(int fd, bool shared, map_query_fn fn, void *arg)
{
	struct map_query q = { .vma_end = 0 };

	do {
		struct proc_map m = { .path = "" };

		q = (struct map_query) {
			.size = sizeof(q), .query_addr = q.vma_end,
			.query_flags = COVERING_OR_NEXT | OF_A_FILE | (shared ? VMA_SHARED : 0),
		};
		/* ENOENT: no such mapping at that address, or behind it. */
		if (ioctl(fd, MAP_QUERY, &q) < 0)
			return errno == ENOENT ? 0 : -errno;
		m.start = q.vma_start;
		m.end = q.vma_end;
		m.offset = q.vma_offset;
		m.dev = makedev(q.dev_major, q.dev_minor);
		m.ino = q.inode;
		m.writable = q.vma_flags & VMA_WRITABLE;
		m.shared = q.vma_flags & VMA_SHARED;
		if (fn(&m, arg))
			return 1;
	} while (q.vma_end > q.vma_start);
	return 0;
}
