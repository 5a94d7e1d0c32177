// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "migrate/round.h"
#include "page/page.h"

#define CHUNK_PAGES	16384u	/* 64 MiB: cleared, then read; a larger one would be dirty again before it is read */
#define FRAME_PAGES	(WIRE_RAM_MAX / PAGE_BYTES)

struct round {
	const struct ram_view *view;
	struct channel *ch;
	struct ram_frame *frame;
	struct round_count *count;
};

int ram_view_open(struct ram_view *v, const struct vm *vm, bool by_read, struct err *e)
{
	memset(v, 0, sizeof(*v));
	v->vm = vm;
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];
		void *p;

		if (by_read && b->hugetlb)
			continue;
		p = mmap(NULL, b->pages * PAGE_BYTES, PROT_READ, MAP_SHARED, b->fd, 0);
		if (p == MAP_FAILED) {
			int err = errno;

			ram_view_close(v);
			return err_set(e, GW_INTERNAL, err, "cannot map RAM \"%s\": %s", b->name, strerror(err));
		}
		v->base[i] = p;
	}
	return 0;
}

void ram_view_close(struct ram_view *v)
{
	for (unsigned int i = 0; i < v->vm->nblocks; i++)
		if (v->base[i])
			munmap((void *)v->base[i], v->vm->blocks[i].pages * PAGE_BYTES);
}

static int fresh_frame(struct round *rd, struct err *e)
{
	int r;

	if (rd->frame) {
		r = channel_push(rd->ch, rd->frame, e);
		rd->frame = NULL;
		if (r)
			return r;
	}
	return channel_frame(rd->ch, &rd->frame, e);
}

/* Adds one page to the frame: to the last extent, if it continues that one. */
static void add_page(struct round *rd, unsigned int block, uint64_t page, const void *bytes)
{
	bool zero = zero_filter_best()->is_zero(bytes);
	uint16_t kind = zero ? WIRE_ZERO : WIRE_DATA;
	struct ram_frame *f = rd->frame;
	struct wire_extent *x = f->nr ? &f->extents[f->nr - 1] : NULL;
	struct iovec *iov = f->nr_iov ? &f->iov[f->nr_iov - 1] : NULL;
	bool joins = x && x->block == block && x->kind == kind && x->first + x->pages == page && x->pages < UINT32_MAX;

	if (joins) {
		x->pages++;
	} else {
		f->extents[f->nr++] = (struct wire_extent) { .block = (uint16_t)block, .kind = kind, .pages = 1, .first = page };
	}
	if (zero) {
		rd->count->zero_pages++;
		return;
	}
	rd->count->data_pages++;
	f->bytes += PAGE_BYTES;
	if (joins && iov && (const uint8_t *)iov->iov_base + iov->iov_len == bytes)
		iov->iov_len += PAGE_BYTES;
	else
		f->iov[f->nr_iov++] = (struct iovec) { (void *)bytes, PAGE_BYTES };
}

static bool frame_full(const struct ram_frame *f)
{
	return f->nr == WIRE_EXTENTS_MAX || f->nr_iov == WIRE_EXTENTS_MAX || f->bytes == WIRE_RAM_MAX;
}

/* Where page `page` can be read: in place, or in the frame's own buffer, which is as long as a frame's data. */
static const void *page_bytes(struct round *rd, unsigned int block, uint64_t page, struct err *e)
{
	const struct ram_block *b = &rd->view->vm->blocks[block];
	uint8_t *bounce = rd->frame->bounce + rd->frame->bytes;

	if (rd->view->base[block])
		return rd->view->base[block] + page * PAGE_BYTES;
	if (pread(b->fd, bounce, PAGE_BYTES, (off_t)(page * PAGE_BYTES)) != PAGE_BYTES) {
		err_set(e, GW_INTERNAL, EIO, "cannot read RAM \"%s\" at page %llu: %s", b->name, (unsigned long long)page,
			strerror(errno));
		return NULL;
	}
	return bounce;
}

static int send_run(struct round *rd, unsigned int block, const struct run *run, struct err *e)
{
	const uint8_t *base = rd->view->base[block];
	int r;

	/* They are allocated: one call maps them all, instead of a fault for each. An error only costs the faults. */
	if (base && run->count >= 16)
		madvise((void *)(base + run->first * PAGE_BYTES), run->count * PAGE_BYTES, MADV_POPULATE_READ);
	for (uint64_t page = run->first; page < run->first + run->count; page++) {
		const void *bytes;

		if (!rd->frame || frame_full(rd->frame)) {
			r = fresh_frame(rd, e);
			if (r)
				return r;
		}
		bytes = page_bytes(rd, block, page, e);
		if (!bytes)
			return -EIO;
		add_page(rd, block, page, bytes);
	}
	return 0;
}

/* The next run of pages that count as written and are allocated, at most CHUNK_PAGES. 1, 0 at the end, -errno. */
static int next_run(const struct vm *vm, struct dirty_source *s, unsigned int block, uint64_t from, struct run *data,
		    struct run *out, struct err *e)
{
	uint64_t pages = vm->blocks[block].pages;
	struct run dirty;
	int r;

	while (bitmap_next_run(s->map[block], pages, from, &dirty)) {
		uint64_t lo, hi;

		/* data is the last run that was found; ask again only beyond it. */
		if (dirty.first >= data->first + data->count) {
			r = s->ops->next_data(s, block, dirty.first, pages, &data->first, &data->count, e);
			if (r <= 0)
				return r;
		}
		lo = dirty.first > data->first ? dirty.first : data->first;
		hi = dirty.first + dirty.count < data->first + data->count ? dirty.first + dirty.count :
									     data->first + data->count;
		if (lo < hi) {
			out->first = lo;
			out->count = hi - lo < CHUNK_PAGES ? hi - lo : CHUNK_PAGES;
			return 1;
		}
		from = data->first;	/* the whole run lies in a hole */
	}
	return 0;
}

int round_send(const struct ram_view *v, struct dirty_source *s, struct channel *ch, bool arm,
	       struct round_count *count, int (*idle)(void *arg, struct err *e), void *arg, struct err *e)
{
	struct round rd = { .view = v, .ch = ch, .count = count };
	uint64_t since_idle = 0;
	int r;

	for (unsigned int b = 0; b < v->vm->nblocks; b++) {
		struct run data = { 0, 0 }, run = { 0, 0 };

		while ((r = next_run(v->vm, s, b, run.first + run.count, &data, &run, e)) > 0) {
			/* First the log forgets, then the bit goes, then the page is read: see source.h. */
			if (arm)
				r = s->ops->clear(s, b, run.first, run.count, e);
			if (r < 0)
				return r;
			bitmap_clear(s->map[b], run.first, run.count);
			r = send_run(&rd, b, &run, e);
			since_idle += run.count;
			if (!r && idle && since_idle >= 16 * FRAME_PAGES) {
				r = idle(arg, e);
				since_idle = 0;
			}
			if (r)
				return r;
		}
		if (r < 0)
			return r;
	}
	return rd.frame ? channel_push(ch, rd.frame, e) : 0;
}

/* Pages [first, end) of a block, as zeros. */
static int send_hole(struct round *rd, unsigned int block, uint64_t first, uint64_t end, struct err *e)
{
	while (first < end) {
		uint32_t n = end - first < UINT32_MAX ? (uint32_t)(end - first) : UINT32_MAX;
		int r = !rd->frame || frame_full(rd->frame) ? fresh_frame(rd, e) : 0;

		if (r)
			return r;
		rd->frame->extents[rd->frame->nr++] = (struct wire_extent) {
			.block = (uint16_t)block, .kind = WIRE_ZERO, .pages = n, .first = first,
		};
		first += n;
	}
	return 0;
}

int round_send_holes(const struct vm *vm, struct dirty_source *s, struct channel *ch, struct err *e)
{
	struct round rd = { .ch = ch };
	int r = 0;

	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		uint64_t from = 0, pages = vm->blocks[b].pages, first, count;

		while ((r = s->ops->next_data(s, b, from, pages, &first, &count, e)) > 0) {
			r = send_hole(&rd, b, from, first, e);
			if (r)
				return r;
			from = first + count;
		}
		if (!r)
			r = send_hole(&rd, b, from, pages, e);
	}
	return r < 0 || !rd.frame ? r : channel_push(ch, rd.frame, e);
}

int round_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		struct run data = { 0, 0 }, run = { 0, 0 };

		while ((r = next_run(vm, s, b, run.first + run.count, &data, &run, e)) > 0)
			*pages += run.count;
	}
	return r;
}

int round_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e)
{
	int r = 0;

	*pages = 0;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++) {
		uint64_t from = 0, first, count;

		while ((r = s->ops->next_data(s, b, from, vm->blocks[b].pages, &first, &count, e)) > 0) {
			*pages += count;
			from = first + count;
		}
	}
	return r;
}
