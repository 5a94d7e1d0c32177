// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page/page.h"
#include "place/ram_write_internal.h"
#include "ram/thp.h"

int ram_no_room(const struct ram_block *b, int code, struct err *e)
{
	const unsigned int kib = b->page_size / 1024;

	if (b->hva && !b->hugetlb)
		return err_set(e, GW_NO_ROOM, code,
			       "no memory at the destination for RAM \"%s\", which is private to process %d (%s); free memory on that host, or raise the limit of the memory cgroup of the process",
			       b->name, (int)b->pid, strerror(code));
	if (b->hugetlb)
		return err_set(e, GW_NO_ROOM, code,
			       "no room at the destination for RAM \"%s\": too few huge pages of %u KiB are free, or its mount or a cgroup limits them (%s); raise /sys/kernel/mm/hugepages/hugepages-%ukB/nr_hugepages",
			       b->name, kib, strerror(code), kib);
	return err_set(e, GW_NO_ROOM, code,
		       "no room at the destination for RAM \"%s\": its tmpfs or its memory cgroup is full (%s); make room, or remount with a larger size=",
		       b->name, strerror(code));
}

int ram_failed(const struct ram_block *b, const char *what, int code, struct err *e)
{
	return err_set(e, GW_INTERNAL, code, "cannot %s the destination's RAM \"%s\": %s", what,
		       b->name, strerror(code));
}

int ram_write_failed(const struct ram_block *b, const char *what, int code, struct err *e)
{
	if (code == ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU, process %d, has exited",
			       (int)b->pid);
	if (code == ENOSPC || code == ENOMEM || (b->hva && code == EFAULT))
		return ram_no_room(b, code, e);
	return ram_failed(b, what, code, e);
}

int ram_clear(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e)
{
	int r = ram_ops(b)->clear(b, first, count);

	return r ? ram_write_failed(b, "empty", -r, e) : 0;
}

int ram_zero_page(const struct ram_writer *p, unsigned int block, uint64_t page, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[block];
	ssize_t n = read(p->zeros, p->base[block] + page * PAGE_BYTES, PAGE_BYTES);

	if (n == PAGE_BYTES)
		return 0;
	return n < 0 && errno != EFAULT ? ram_failed(b, "empty", errno, e) : ram_no_room(b, ENOSPC, e);
}

int ram_writer_take_over(struct ram_writer *p, const struct vm *vm, struct err *e)
{
	memset(p, 0, sizeof(*p));
	p->vm = vm;
	p->zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		p->pages[i] = vm->blocks[i].pages;
		p->uffd[i].fd = -1;
		pthread_mutex_init(&p->file_lock[i], NULL);
	}
	return p->zeros >= 0 ? 0 : err_set(e, GW_INTERNAL, errno, "cannot open /dev/zero: %s",
					   strerror(errno));
}

void ram_writer_close(struct ram_writer *p)
{
	if (p->vm && p->zeros >= 0)
		close(p->zeros);
	for (unsigned int i = 0; p->vm && i < p->vm->nblocks; i++) {
		if (p->base[i])
			munmap(p->base[i], p->pages[i] * PAGE_BYTES);
		uffd_copy_close(&p->uffd[i]);
		free(p->placed[i]);
		free(p->refused[i]);
		pthread_mutex_destroy(&p->file_lock[i]);
	}
}

/*
 * Clears the page's bit in @placed, and says whether it was set, so that only one thread zeroes the
 * page. In the last round a short hole may come twice, from two streams: as a page of zeros that
 * the sender read, and as a hole.
 */
static bool ram_take_placed(const struct ram_writer *p, unsigned int block, uint64_t page)
{
	uint64_t bit = (uint64_t)1 << page % 64;

	return __atomic_fetch_and(&p->placed[block][page / 64], ~bit, __ATOMIC_RELAXED) & bit;
}

static int ram_punch_huge(const struct ram_writer *p, unsigned int block, uint64_t first,
			  struct err *e)
{
	for (uint64_t page = first; page < first + THP_PAGES; page++)
		ram_take_placed(p, block, page);
	return ram_clear(&p->vm->blocks[block], first, THP_PAGES, e);
}

/* Punches whole huge pages of a tmpfs, and zeroes parts of one: a hole there would split it. */
static int ram_zero_mapped(const struct ram_writer *p, const struct wire_extent *x, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[x->block];
	uint64_t end = x->first + x->pages, page = x->first;
	int r = 0;

	while (!r && (page = bitmap_next_shared(p->placed[x->block], page, end)) < end) {
		uint64_t huge = page - page % THP_PAGES;

		if (!b->hugetlb && !p->preallocated[x->block] && huge >= x->first &&
		    huge + THP_PAGES <= end)
			r = ram_punch_huge(p, x->block, huge, e);
		else if (ram_take_placed(p, x->block, page))
			r = ram_zero_page(p, x->block, page, e);
	}
	return r;
}

/* The writer punches from the first page with data on, and holes in between. */
int ram_write_zeros(const struct ram_writer *p, const struct wire_extent *x, struct err *e)
{
	uint64_t end = x->first + x->pages, placed;

	if (p->base[x->block])
		return ram_zero_mapped(p, x, e);
	placed = bitmap_next_shared(p->placed[x->block], x->first, end);
	return placed < end ? ram_clear(&p->vm->blocks[x->block], placed, end - placed, e) : 0;
}
