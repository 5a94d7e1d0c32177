// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "migrate/place.h"
#include "page/page.h"
#include "source/source.h"

static int empty(const struct ram_block *b, struct err *e)
{
	if (fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)(b->pages * PAGE_BYTES)) < 0)
		return err_set(e, GW_INTERNAL, errno, "cannot empty the destination's RAM \"%s\": %s", b->name, strerror(errno));
	return 0;
}

int place_open(struct placement *p, const struct vm *vm, struct err *e)
{
	memset(p, 0, sizeof(*p));
	p->vm = vm;
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];
		void *base;
		int r = empty(b, e);

		if (r)
			return r;
		base = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
		if (base == MAP_FAILED)
			return err_set(e, GW_INTERNAL, errno, "cannot map the destination's RAM \"%s\": %s", b->name, strerror(errno));
		p->base[i] = base;
		p->pages[i] = b->pages;
	}
	return 0;
}

void place_close(struct placement *p)
{
	for (unsigned int i = 0; p->vm && i < p->vm->nblocks; i++)
		if (p->base[i])
			munmap(p->base[i], p->vm->blocks[i].pages * PAGE_BYTES);
}

/*
 * Zero pages: a hole is zero already, and stays one. What an earlier round has put there is overwritten. On hugetlbfs
 * lseek() knows no holes, but mincore() knows which huge pages this mapping, the only writer, has touched.
 */
static int place_zeros(struct placement *p, const struct wire_extent *x, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[x->block];
	uint64_t from = x->first, end = x->first + x->pages, first, count;
	int r;

	while ((r = file_next_data(b->fd, from, end, &first, &count, e)) > 0) {
		uint8_t *at = p->base[x->block] + first * PAGE_BYTES;
		unsigned char present = 1;

		if (b->hugetlb) {
			uint64_t per_huge = b->page_size / PAGE_BYTES;
			uint64_t in_huge = per_huge - first % per_huge;

			count = count < in_huge ? count : in_huge;
			mincore(at, PAGE_BYTES, &present);
		}
		if (present & 1)
			memset(at, 0, count * PAGE_BYTES);
		from = first + count;
	}
	return r;
}

int place_frame(struct placement *p, struct channel *ch, const struct wire_header *h, struct err *e)
{
	uint8_t raw[WIRE_EXTENTS_MAX * WIRE_EXTENT];
	struct wire_extent x[WIRE_EXTENTS_MAX];
	struct iovec iov[WIRE_EXTENTS_MAX];
	unsigned int n = 0;
	int r;

	r = channel_body(ch, raw, h->arg * WIRE_EXTENT, e);
	if (r)
		return r;
	r = wire_get_ram(h, raw, h->arg * WIRE_EXTENT, p->pages, p->vm->nblocks, x);
	if (r == -ERANGE)
		return err_set(e, GW_BAD_PEER, ERANGE, "the sender sent a page outside of the guest's RAM: nothing was written there");
	if (r)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a RAM frame that makes no sense");
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		if (x[i].kind == WIRE_ZERO) {
			r = place_zeros(p, &x[i], e);
			p->zero_pages += x[i].pages;
			continue;
		}
		iov[n++] = (struct iovec) { p->base[x[i].block] + x[i].first * PAGE_BYTES, (size_t)x[i].pages * PAGE_BYTES };
		p->data_pages += x[i].pages;
	}
	return r ? r : channel_bodyv(ch, iov, n, e);
}
