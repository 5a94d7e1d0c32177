// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "migrate/place.h"
#include "page/page.h"
#include "source/source.h"

/* Pages [first, first + count) become a hole. */
static int punch(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e)
{
	if (fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(first * PAGE_BYTES),
		      (off_t)(count * PAGE_BYTES)) < 0)
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
		int r = punch(b, 0, b->pages, e);

		if (r)
			return r;
		p->pages[i] = b->pages;
		if (!b->hugetlb)
			continue;
		base = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
		if (base == MAP_FAILED)
			return err_set(e, GW_INTERNAL, errno, "cannot map the destination's RAM \"%s\": %s", b->name, strerror(errno));
		p->base[i] = base;
	}
	return 0;
}

void place_close(struct placement *p)
{
	for (unsigned int i = 0; p->vm && i < p->vm->nblocks; i++)
		if (p->base[i])
			munmap(p->base[i], p->pages[i] * PAGE_BYTES);
}

/*
 * lseek() knows no holes on hugetlbfs, but mincore() knows which huge pages this mapping, the only writer, has touched.
 * Where another thread is about to touch one for its own pages, ours are zero in it.
 */
static int zero_huge(const struct placement *p, const struct wire_extent *x)
{
	uint64_t per_huge = p->vm->blocks[x->block].page_size / PAGE_BYTES, page = x->first, end = x->first + x->pages;

	while (page < end) {
		uint64_t in_huge = per_huge - page % per_huge;
		uint64_t n = end - page < in_huge ? end - page : in_huge;
		uint8_t *at = p->base[x->block] + page * PAGE_BYTES;
		unsigned char present = 1;

		mincore(at, PAGE_BYTES, &present);
		if (present & 1)
			memset(at, 0, n * PAGE_BYTES);
		page += n;
	}
	return 0;
}

/* A hole is zero already, and stays one. What an earlier round has put there becomes one, and holes in between again. */
static int place_zeros(const struct placement *p, const struct wire_extent *x, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[x->block];
	uint64_t end = x->first + x->pages, data;
	int r;

	if (p->base[x->block])
		return zero_huge(p, x);
	r = file_first_data(b->fd, x->first, end, &data, e);
	return r > 0 ? punch(b, data, end - data, e) : r;
}

static int write_pages(const struct ram_block *b, const uint8_t *buf, uint64_t first, uint64_t count, struct err *e)
{
	size_t len = count * PAGE_BYTES;
	off_t at = (off_t)(first * PAGE_BYTES);

	while (len) {
		ssize_t n = pwrite(b->fd, buf, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == ENOSPC || errno == ENOMEM))
			return err_set(e, GW_INTERNAL, errno,
				       "no room at the destination for RAM \"%s\": its tmpfs or its memory cgroup is full (%s); make room, or remount with a larger size=",
				       b->name, strerror(errno));
		if (n <= 0)
			return err_set(e, GW_INTERNAL, n ? errno : EIO, "cannot write the destination's RAM \"%s\": %s", b->name,
				       n ? strerror(errno) : "nothing is taken");
		buf += n;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

/**
 * struct fill - where the bytes of a frame go, in steps of one buffer
 * @x: the extent that is next; WIRE_DATA
 * @done: its pages that are in place
 */
struct fill {
	const struct wire_extent *x;
	const struct wire_extent *end;
	uint32_t done;
};

static void skip_zeros(struct fill *f)
{
	while (f->x < f->end && f->x->kind != WIRE_DATA)
		f->x++;
}

/* The next pages of one extent, at most so many. */
static uint32_t next_pages(struct fill *f, uint32_t most, struct wire_extent *out)
{
	uint32_t n = f->x->pages - f->done;

	*out = *f->x;
	out->first += f->done;
	out->pages = n < most ? n : most;
	f->done += out->pages;
	if (f->done == f->x->pages) {
		f->x++;
		f->done = 0;
		skip_zeros(f);
	}
	return out->pages;
}

/* Into the mapping, or into buf and from there into the files: which of them is the block's nature. */
static int place_data(const struct placement *p, struct channel *ch, struct fill *f, uint8_t *buf, struct err *e)
{
	struct wire_extent part[PLACE_BUFFER / PAGE_BYTES];
	struct iovec iov[PLACE_BUFFER / PAGE_BYTES];
	uint32_t pages = 0, at = 0;
	unsigned int n = 0;
	int r;

	for (; f->x < f->end && pages < PLACE_BUFFER / PAGE_BYTES; n++) {
		uint8_t *to = buf + (size_t)pages * PAGE_BYTES;

		pages += next_pages(f, PLACE_BUFFER / PAGE_BYTES - pages, &part[n]);
		if (p->base[part[n].block])
			to = p->base[part[n].block] + part[n].first * PAGE_BYTES;
		iov[n] = (struct iovec) { to, (size_t)part[n].pages * PAGE_BYTES };
	}
	r = channel_bodyv(ch, iov, n, e);
	for (unsigned int i = 0; i < n && !r; at += part[i++].pages)
		if (!p->base[part[i].block])
			r = write_pages(&p->vm->blocks[part[i].block], buf + (size_t)at * PAGE_BYTES, part[i].first, part[i].pages, e);
	return r;
}

int place_frame(const struct placement *p, struct channel *ch, const struct wire_header *h, uint8_t *buf,
		struct place_count *count, struct err *e)
{
	struct wire_extent x[WIRE_EXTENTS_MAX];
	struct fill f = { .x = x, .end = x + h->arg };
	int r;

	static_assert(WIRE_EXTENTS_MAX * WIRE_EXTENT <= PLACE_BUFFER, "a frame's extents fit into the buffer");
	r = channel_body(ch, buf, h->arg * WIRE_EXTENT, e);
	if (r)
		return r;
	r = wire_get_ram(h, buf, h->arg * WIRE_EXTENT, p->pages, p->vm->nblocks, x);
	if (r == -ERANGE)
		return err_set(e, GW_BAD_PEER, ERANGE, "the sender sent a page outside of the guest's RAM: nothing was written there");
	if (r)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a RAM frame that makes no sense");
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		if (x[i].kind == WIRE_ZERO) {
			r = place_zeros(p, &x[i], e);
			count->zero_pages += x[i].pages;
		} else {
			count->data_pages += x[i].pages;
		}
	}
	skip_zeros(&f);
	while (!r && f.x < f.end)
		r = place_data(p, ch, &f, buf, e);
	return r;
}
