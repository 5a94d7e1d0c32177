// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page/page.h"
#include "receive/ram_write.h"
#include "ram/thp.h"

/* Names what is full and how to make it larger. code: the kernel's error. */
static int ram_no_room(const struct ram_block *b, int code, struct err *e)
{
	const unsigned int kib = b->page_size / 1024;

	if (b->hva && !b->hugetlb)
		return err_set(e, GW_INTERNAL, code,
			       "no memory at the destination for RAM \"%s\", which is private to process %d (%s); free memory on that host, or raise the limit of the memory cgroup of the process",
			       b->name, (int)b->pid, strerror(code));
	if (b->hugetlb)
		return err_set(e, GW_INTERNAL, code,
			       "no room at the destination for RAM \"%s\": too few huge pages of %u KiB are free, or its mount or a cgroup limits them (%s); raise /sys/kernel/mm/hugepages/hugepages-%ukB/nr_hugepages",
			       b->name, kib, strerror(code), kib);
	return err_set(e, GW_INTERNAL, code,
		       "no room at the destination for RAM \"%s\": its tmpfs or its memory cgroup is full (%s); make room, or remount with a larger size=",
		       b->name, strerror(code));
}

static int ram_failed(const struct ram_block *b, const char *what, int code, struct err *e)
{
	return err_set(e, GW_INTERNAL, code, "cannot %s the destination's RAM \"%s\": %s", what,
		       b->name, strerror(code));
}

/* code: of ram_ops' write or clear. */
static int ram_write_failed(const struct ram_block *b, const char *what, int code, struct err *e)
{
	if (code == ESRCH)
		return err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU, process %d, has exited",
			       (int)b->pid);
	if (code == ENOSPC || code == ENOMEM || (b->hva && code == EFAULT))
		return ram_no_room(b, code, e);
	return ram_failed(b, what, code, e);
}

/* Pages [first, first + count) become zeros: a hole, where there can be one. */
static int ram_clear(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e)
{
	int r = ram_ops(b)->clear(b, first, count);

	return r ? ram_write_failed(b, "empty", -r, e) : 0;
}

/* The kernel writes the zeros: without room it answers EFAULT, a store would end in SIGBUS. */
static int ram_zero_page(const struct ram_writer *p, unsigned int block, uint64_t page,
			 struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[block];
	ssize_t n = read(p->zeros, p->base[block] + page * PAGE_BYTES, PAGE_BYTES);

	if (n == PAGE_BYTES)
		return 0;
	return n < 0 && errno != EFAULT ? ram_failed(b, "empty", errno, e) : ram_no_room(b, ENOSPC, e);
}

/*
 * The file has all its pages (prealloc=on): the operator wants that no page of the guest's can lack
 * memory later. The writer keeps all pages: it zeroes what the waiting QEMU has put there
 * (firmware), and never makes a hole.
 */
static bool ram_is_preallocated(const struct ram_block *b)
{
	return !b->hugetlb && !b->hva && ram_ops(b)->allocated(b) >= b->pages;
}

/* Maps all of the block. NULL: errno says why not. */
static uint8_t *ram_map(const struct ram_block *b)
{
	void *base =
		mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

	return base == MAP_FAILED ? NULL : base;
}

static int ram_open_preallocated(struct ram_writer *p, unsigned int i, struct err *e)
{
	const struct zero_filter *filter = zero_filter_best();
	const struct ram_block *b = &p->vm->blocks[i];
	int r = 0;

	p->preallocated[i] = true;
	p->base[i] = ram_map(b);
	if (!p->base[i])
		return ram_failed(b, "map", errno, e);
	for (uint64_t page = 0; page < b->pages && !r; page++)
		if (!filter->is_zero(p->base[i] + page * PAGE_BYTES))
			r = ram_zero_page(p, i, page, e);
	return r;
}

static int ram_open_block(struct ram_writer *p, unsigned int i, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[i];
	int r;

	p->pages[i] = b->pages;
	p->placed[i] = calloc(b->pages / 64 + 1, sizeof(*p->placed[i]));
	if (!p->placed[i])
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (ram_is_preallocated(b))
		return ram_open_preallocated(p, i, e);
	r = ram_clear(b, 0, b->pages, e);
	if (r || b->hva)
		return r;
	if (!b->hugetlb) {
		p->base[i] = thp_map(b, PROT_READ | PROT_WRITE);
		if (!p->base[i])
			uffd_copy_open(&p->uffd[i], b);
		return 0;
	}
	/* Reserves huge pages for all of the block: fails if the pool is too small. */
	p->base[i] = ram_map(b);
	if (p->base[i])
		return 0;
	return errno == ENOMEM ? ram_no_room(b, ENOMEM, e) : ram_failed(b, "map", errno, e);
}

int ram_writer_open(struct ram_writer *p, const struct vm *vm, struct err *e)
{
	int r;

	memset(p, 0, sizeof(*p));
	p->vm = vm;
	p->zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	r = p->zeros >= 0 ? 0 : err_set(e, GW_INTERNAL, errno, "cannot open /dev/zero: %s",
					strerror(errno));
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		p->uffd[i].fd = -1;
		pthread_mutex_init(&p->file_lock[i], NULL);
	}
	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = ram_open_block(p, i, e);
	return r;
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

/* A hole stays one. The writer punches from the first page with data on, and holes in between. */
static int ram_write_zeros(const struct ram_writer *p, const struct wire_extent *x, struct err *e)
{
	uint64_t end = x->first + x->pages, placed;

	if (p->base[x->block])
		return ram_zero_mapped(p, x, e);
	placed = bitmap_next_shared(p->placed[x->block], x->first, end);
	return placed < end ? ram_clear(&p->vm->blocks[x->block], placed, end - placed, e) : 0;
}

/**
 * struct ram_cursor - which page bytes of a frame come next
 * @x: the next extent; of kind WIRE_DATA
 * @done: pages of @x that have been read
 */
struct ram_cursor {
	const struct wire_extent *x;
	const struct wire_extent *end;
	uint32_t done;
};

/**
 * struct ram_part - pages of one extent
 * @unplaced: no data has been put into any of them yet
 * @bytes: their content, if it does not go into the mapping
 */
struct ram_part {
	uint64_t first;
	uint32_t pages;
	uint16_t block;
	bool unplaced;
	const uint8_t *bytes;
};

static void ram_skip_zeros(struct ram_cursor *f)
{
	while (f->x < f->end && f->x->kind != WIRE_DATA)
		f->x++;
}

/* The next pages of one extent, at most @most: up to the first that holds data, or from it on. */
static struct ram_part ram_next_part(const struct ram_writer *p, struct ram_cursor *f,
				     uint32_t most)
{
	const struct wire_extent *x = f->x;
	struct ram_part part = { x->first + f->done, x->pages - f->done, x->block, false, NULL };
	uint64_t *placed = p->placed[part.block], old;

	if (part.pages > most)
		part.pages = most;
	old = bitmap_next_shared(placed, part.first, part.first + part.pages);
	part.unplaced = old > part.first;
	if (part.unplaced)
		part.pages = (uint32_t)(old - part.first);
	/* Before the pages hold data: a write that fails in the middle may have changed them. */
	bitmap_set_shared(placed, part.first, part.pages);
	f->done += part.pages;
	if (f->done == x->pages) {
		f->x++;
		f->done = 0;
		ram_skip_zeros(f);
	}
	return part;
}

static void ram_new_pages(const struct ram_writer *p, struct ram_part *part)
{
	uint64_t n = uffd_copy_put(&p->uffd[part->block], part->first, part->bytes, part->pages);

	part->first += n;
	part->pages -= (uint32_t)n;
	part->bytes += n * PAGE_BYTES;
}

static int ram_write_part(const struct ram_block *b, const struct ram_part *part, struct err *e)
{
	int r = ram_ops(b)->write(b, part->first, part->pages, part->bytes);

	return r ? ram_write_failed(b, "write", -r, e) : 0;
}

/*
 * Writes pages that the file has already by pwrite(). The kernel lets one thread at a time write to
 * a file, and the others spin: a thread that sleeps here, until the first has written its buffer,
 * leaves the CPU to others. Memory of a process takes many.
 */
static int ram_write_parts(struct ram_writer *p, const struct ram_part *part, unsigned int n,
			   struct err *e)
{
	pthread_mutex_t *held = NULL;
	int r = 0;

	for (unsigned int i = 0; i < n && !r; i++) {
		const struct ram_block *b = &p->vm->blocks[part[i].block];
		pthread_mutex_t *lock = b->hva ? NULL : &p->file_lock[part[i].block];

		if (!part[i].pages || p->base[part[i].block])
			continue;
		if (held != lock) {
			if (held)
				pthread_mutex_unlock(held);
			if (lock)
				pthread_mutex_lock(lock);
			held = lock;
		}
		r = ram_write_part(b, &part[i], e);
	}
	if (held)
		pthread_mutex_unlock(held);
	return r;
}

/*
 * The kernel could not receive into a mapping, and does not say where or why: fallocate() of the
 * same pages does. *e holds the channel's error, which stays if there is room by now.
 */
static int ram_explain(const struct ram_writer *p, const struct ram_part *part, unsigned int n,
		       struct err *e)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct ram_block *b = &p->vm->blocks[part[i].block];
		off_t at = (off_t)(part[i].first * PAGE_BYTES);
		off_t len = (off_t)part[i].pages * PAGE_BYTES;

		if (!p->base[part[i].block] || !fallocate(b->fd, FALLOC_FL_KEEP_SIZE, at, len))
			continue;
		*e = (struct err) { 0 };
		return ram_no_room(b, errno, e);
	}
	return -EFAULT;
}

/* Reads the next page bytes into the block's mapping, or into buf and from there into its file. */
static int ram_write_data(struct ram_writer *p, struct channel *ch, struct ram_cursor *f,
			  uint8_t *buf, struct err *e)
{
	struct ram_part part[RAM_WRITER_BUFFER / PAGE_BYTES];
	struct iovec iov[RAM_WRITER_BUFFER / PAGE_BYTES], *end = iov;
	uint32_t pages = 0;
	unsigned int n = 0;
	int r;

	for (; f->x < f->end && pages < RAM_WRITER_BUFFER / PAGE_BYTES; pages += part[n++].pages) {
		uint8_t *to = buf + (size_t)pages * PAGE_BYTES;

		part[n] = ram_next_part(p, f, RAM_WRITER_BUFFER / PAGE_BYTES - pages);
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
		r = ram_explain(p, part, n, e);
	for (unsigned int i = 0; i < n && !r; i++)
		if (part[i].unplaced)
			ram_new_pages(p, &part[i]);
	return r ? r : ram_write_parts(p, part, n, e);
}

int ram_writer_frame(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     uint8_t *buf, struct ram_writer_count *count, struct err *e)
{
	struct wire_extent x[WIRE_EXTENTS_MAX];
	struct ram_cursor f = { .x = x, .end = x + h->arg };
	int r;

	static_assert(WIRE_EXTENTS_MAX * WIRE_EXTENT <= RAM_WRITER_BUFFER,
		      "a frame's extents fit into the buffer");
	r = channel_body(ch, buf, h->arg * WIRE_EXTENT, e);
	if (r)
		return r;
	r = wire_get_ram(h, buf, h->arg * WIRE_EXTENT, p->pages, p->vm->nblocks, x);
	if (r == -ERANGE)
		return err_set(e, GW_BAD_PEER, ERANGE, "the sender sent a page outside of the guest's RAM, and the receiver did not write it");
	if (r)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed RAM frame");
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		if (x[i].kind == WIRE_ZERO) {
			r = ram_write_zeros(p, &x[i], e);
			count->zero_pages += x[i].pages;
		} else {
			count->data_pages += x[i].pages;
		}
	}
	ram_skip_zeros(&f);
	while (!r && f.x < f.end)
		r = ram_write_data(p, ch, &f, buf, e);
	return r;
}
