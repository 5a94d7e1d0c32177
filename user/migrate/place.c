// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "migrate/place.h"
#include "page/page.h"
#include "vmm/huge.h"

/* What is full, and what makes it larger. code: what the kernel has answered. */
static int no_room(const struct ram_block *b, int code, struct err *e)
{
	const unsigned int kib = b->page_size / 1024;

	if (b->hugetlb)
		return err_set(e, GW_INTERNAL, code,
			       "no room at the destination for RAM \"%s\": too few huge pages of %u KiB are free, or its mount or a cgroup limits them (%s); raise /sys/kernel/mm/hugepages/hugepages-%ukB/nr_hugepages",
			       b->name, kib, strerror(code), kib);
	return err_set(e, GW_INTERNAL, code,
		       "no room at the destination for RAM \"%s\": its tmpfs or its memory cgroup is full (%s); make room, or remount with a larger size=",
		       b->name, strerror(code));
}

/* Pages [first, first + count) become a hole. */
static int punch(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e)
{
	if (fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(first * PAGE_BYTES),
		      (off_t)(count * PAGE_BYTES)) < 0)
		return err_set(e, GW_INTERNAL, errno, "cannot empty the destination's RAM \"%s\": %s", b->name, strerror(errno));
	return 0;
}

static int zero_page(const struct placement *p, unsigned int block, uint64_t page, struct err *e);

/*
 * A file that is there as a whole (prealloc=on): the operator wants that no page of the guest's can lack memory later. It
 * stays whole: what the QEMU that waits has put there (firmware) is zeroed, and no hole is ever made.
 */
static bool is_whole(const struct ram_block *b)
{
	struct stat st;

	return !b->hugetlb && !fstat(b->fd, &st) && (uint64_t)st.st_blocks * 512 >= b->pages * PAGE_BYTES;
}

static int open_whole(struct placement *p, unsigned int i, struct err *e)
{
	const struct zero_filter *filter = zero_filter_best();
	const struct ram_block *b = &p->vm->blocks[i];
	int r = 0;

	p->whole[i] = true;
	p->base[i] = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (p->base[i] == MAP_FAILED) {
		p->base[i] = NULL;
		return err_set(e, GW_INTERNAL, errno, "cannot map the destination's RAM \"%s\": %s", b->name, strerror(errno));
	}
	for (uint64_t page = 0; page < b->pages && !r; page++)
		if (!filter->is_zero(p->base[i] + page * PAGE_BYTES))
			r = zero_page(p, i, page, e);
	return r;
}

static int open_block(struct placement *p, unsigned int i, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[i];
	int r;

	p->pages[i] = b->pages;
	p->placed[i] = calloc(b->pages / 64 + 1, sizeof(*p->placed[i]));
	if (!p->placed[i])
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (is_whole(b))
		return open_whole(p, i, e);
	r = punch(b, 0, b->pages, e);
	if (r)
		return r;
	if (!b->hugetlb) {
		p->base[i] = huge_map(b, PROT_READ | PROT_WRITE);
		if (!p->base[i])
			fresh_open(&p->fresh[i], b);
		return 0;
	}
	/* Reserves huge pages for all of the block, which is a hole: a pool that is too small is found here. */
	p->base[i] = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (p->base[i] != MAP_FAILED)
		return 0;
	p->base[i] = NULL;
	if (errno == ENOMEM)
		return no_room(b, ENOMEM, e);
	return err_set(e, GW_INTERNAL, errno, "cannot map the destination's RAM \"%s\": %s", b->name, strerror(errno));
}

int place_open(struct placement *p, const struct vm *vm, struct err *e)
{
	int r;

	memset(p, 0, sizeof(*p));
	p->vm = vm;
	p->zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	r = p->zeros < 0 ? err_set(e, GW_INTERNAL, errno, "cannot open /dev/zero: %s", strerror(errno)) : 0;
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		p->fresh[i].fd = -1;
		pthread_mutex_init(&p->writing[i], NULL);
	}
	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = open_block(p, i, e);
	return r;
}

void place_close(struct placement *p)
{
	if (p->vm && p->zeros >= 0)
		close(p->zeros);
	for (unsigned int i = 0; p->vm && i < p->vm->nblocks; i++) {
		if (p->base[i])
			munmap(p->base[i], p->pages[i] * PAGE_BYTES);
		fresh_close(&p->fresh[i]);
		free(p->placed[i]);
		pthread_mutex_destroy(&p->writing[i]);
	}
}

/* By the kernel: where there is no room it answers EFAULT; a write of our own would end in SIGBUS. */
static int zero_page(const struct placement *p, unsigned int block, uint64_t page, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[block];
	ssize_t n = read(p->zeros, p->base[block] + page * PAGE_BYTES, PAGE_BYTES);

	if (n == PAGE_BYTES)
		return 0;
	if (n < 0 && errno != EFAULT)
		return err_set(e, GW_INTERNAL, errno, "cannot empty the destination's RAM \"%s\": %s", b->name, strerror(errno));
	return no_room(b, ENOSPC, e);
}

/*
 * One thread zeroes a page that holds data, and it holds none from then on. In the last round a short
 * hole may come twice, from two streams: as a page of zeros that was read, and as a hole.
 */
static bool take_placed(const struct placement *p, unsigned int block, uint64_t page)
{
	uint64_t bit = (uint64_t)1 << page % 64;

	return __atomic_fetch_and(&p->placed[block][page / 64], ~bit, __ATOMIC_RELAXED) & bit;
}

static int punch_huge(const struct placement *p, unsigned int block, uint64_t first, struct err *e)
{
	for (uint64_t page = first; page < first + HUGE_PAGES; page++)
		take_placed(p, block, page);
	return punch(&p->vm->blocks[block], first, HUGE_PAGES, e);
}

/* Whole huge pages of a tmpfs become a hole. To punch a part of one would split it: that is zeroed. */
static int zero_mapped(const struct placement *p, const struct wire_extent *x, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[x->block];
	uint64_t end = x->first + x->pages, page = x->first;
	int r = 0;

	while (!r && (page = bitmap_next_shared(p->placed[x->block], page, end)) < end) {
		uint64_t huge = page - page % HUGE_PAGES;

		if (!b->hugetlb && !p->whole[x->block] && huge >= x->first && huge + HUGE_PAGES <= end)
			r = punch_huge(p, x->block, huge, e);
		else if (take_placed(p, x->block, page))
			r = zero_page(p, x->block, page, e);
	}
	return r;
}

/* A hole is zero already, and stays one. What an earlier round has put there becomes one, and holes in between again. */
static int place_zeros(const struct placement *p, const struct wire_extent *x, struct err *e)
{
	uint64_t end = x->first + x->pages, placed;

	if (p->base[x->block])
		return zero_mapped(p, x, e);
	placed = bitmap_next_shared(p->placed[x->block], x->first, end);
	return placed < end ? punch(&p->vm->blocks[x->block], placed, end - placed, e) : 0;
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
			return no_room(b, errno, e);
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

/**
 * struct part - pages of one extent
 * @fresh: nothing has been put there yet, into none of them
 * @bytes: where they are, if not in the mapping
 */
struct part {
	uint64_t first;
	uint32_t pages;
	uint16_t block;
	bool fresh;
	const uint8_t *bytes;
};

static void skip_zeros(struct fill *f)
{
	while (f->x < f->end && f->x->kind != WIRE_DATA)
		f->x++;
}

/* The next pages of one extent, at most so many: up to the first that has been placed before, or from there on. */
static struct part next_part(const struct placement *p, struct fill *f, uint32_t most)
{
	struct part part = { .block = f->x->block, .first = f->x->first + f->done, .pages = f->x->pages - f->done };
	uint64_t *placed = p->placed[part.block], old;

	if (part.pages > most)
		part.pages = most;
	old = bitmap_next_shared(placed, part.first, part.first + part.pages);
	part.fresh = old > part.first;
	if (part.fresh)
		part.pages = (uint32_t)(old - part.first);
	/* Before it is true: what fails in the middle may have been written to. */
	bitmap_set_shared(placed, part.first, part.pages);
	f->done += part.pages;
	if (f->done == f->x->pages) {
		f->x++;
		f->done = 0;
		skip_zeros(f);
	}
	return part;
}

static void put_fresh(const struct placement *p, struct part *part)
{
	uint64_t n = fresh_put(&p->fresh[part->block], part->first, part->bytes, part->pages);

	part->first += n;
	part->pages -= (uint32_t)n;
	part->bytes += n * PAGE_BYTES;
}

/*
 * What is there already goes into the file. It takes one writer at a time, and who waits for the other in the kernel spins: a
 * thread that sleeps here, until the other one is through with its buffer, leaves the CPU to the rest.
 */
static int write_parts(struct placement *p, const struct part *part, unsigned int n, struct err *e)
{
	pthread_mutex_t *held = NULL;
	int r = 0;

	for (unsigned int i = 0; i < n && !r; i++) {
		pthread_mutex_t *writing = &p->writing[part[i].block];

		if (!part[i].pages || p->base[part[i].block])
			continue;
		if (held != writing) {
			if (held)
				pthread_mutex_unlock(held);
			pthread_mutex_lock(writing);
			held = writing;
		}
		r = write_pages(&p->vm->blocks[part[i].block], part[i].bytes, part[i].first, part[i].pages, e);
	}
	if (held)
		pthread_mutex_unlock(held);
	return r;
}

/*
 * The kernel could not put what arrives into a mapping, and does not say where or why: fallocate() of the
 * same pages does. *e holds what the channel made of it, which stays if there is room by now.
 */
static int explain(const struct placement *p, const struct part *part, unsigned int n, struct err *e)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct ram_block *b = &p->vm->blocks[part[i].block];
		off_t at = (off_t)(part[i].first * PAGE_BYTES), len = (off_t)part[i].pages * PAGE_BYTES;

		if (!p->base[part[i].block] || !fallocate(b->fd, FALLOC_FL_KEEP_SIZE, at, len))
			continue;
		*e = (struct err) { 0 };
		return no_room(b, errno, e);
	}
	return -EFAULT;
}

/* Into the mapping, or into buf and from there into new pages or the files: which of them is the block's nature. */
static int place_data(struct placement *p, struct channel *ch, struct fill *f, uint8_t *buf, struct err *e)
{
	struct part part[PLACE_BUFFER / PAGE_BYTES];
	struct iovec iov[PLACE_BUFFER / PAGE_BYTES], *end = iov;
	uint32_t pages = 0;
	unsigned int n = 0;
	int r;

	for (; f->x < f->end && pages < PLACE_BUFFER / PAGE_BYTES; pages += part[n++].pages) {
		uint8_t *to = buf + (size_t)pages * PAGE_BYTES;

		part[n] = next_part(p, f, PLACE_BUFFER / PAGE_BYTES - pages);
		part[n].bytes = to;
		if (p->base[part[n].block])
			to = p->base[part[n].block] + part[n].first * PAGE_BYTES;
		if (end > iov && (uint8_t *)end[-1].iov_base + end[-1].iov_len == to)
			end[-1].iov_len += (size_t)part[n].pages * PAGE_BYTES;
		else
			*end++ = (struct iovec) { to, (size_t)part[n].pages * PAGE_BYTES };
	}
	r = channel_bodyv(ch, iov, (unsigned int)(end - iov), e);
	if (r == -EFAULT)
		r = explain(p, part, n, e);
	for (unsigned int i = 0; i < n && !r; i++)
		if (part[i].fresh)
			put_fresh(p, &part[i]);
	return r ? r : write_parts(p, part, n, e);
}

int place_frame(struct placement *p, struct channel *ch, const struct wire_header *h, uint8_t *buf,
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
