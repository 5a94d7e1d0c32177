// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/sock.h"
#include "migrate/reader.h"

int reader_end(struct reader *rd, struct err *e)
{
	struct ram_frame *f = rd->frame;
	int r = 0;

	if (!f)
		return 0;
	rd->frame = NULL;
	if (rd->pace)
		r = channel_pause(rd->ch, pace_take(rd->pace, WIRE_HEADER + f->nr * WIRE_EXTENT + f->bytes, now_ns()), e);
	return r ? r : channel_push(rd->ch, f, e);
}

/* How many pages the frame under construction takes at least; a full one goes out first. */
static int room(struct reader *rd, uint64_t *pages, struct err *e)
{
	uint32_t limit = rd->pace ? pace_burst(rd->pace) : UINT32_MAX;
	int r;

	if (limit > FRAME_BYTES)
		limit = FRAME_BYTES;
	if (rd->frame && (rd->frame->nr == WIRE_EXTENTS_MAX || rd->frame->used >= limit)) {
		r = reader_end(rd, e);
		if (r)
			return r;
	}
	if (!rd->frame) {
		r = channel_frame(rd->ch, &rd->frame, e);
		if (r)
			return r;
	}
	*pages = (limit - rd->frame->used) / PAGE_BYTES;
	if (*pages > WIRE_EXTENTS_MAX - rd->frame->nr)
		*pages = WIRE_EXTENTS_MAX - rd->frame->nr;
	return 0;
}

/* Pages that follow each other, to the last extent if they continue that one. */
static void add_extent(struct ram_frame *f, unsigned int block, uint16_t kind, uint64_t first, uint32_t pages)
{
	struct wire_extent *x = f->nr ? &f->extents[f->nr - 1] : NULL;

	if (x && x->block == block && x->kind == kind && x->first + x->pages == first && pages <= UINT32_MAX - x->pages)
		x->pages += pages;
	else
		f->extents[f->nr++] = (struct wire_extent) { .block = (uint16_t)block, .kind = kind, .pages = pages, .first = first };
}

/* used: of the frame's buffer, if this page is sent. */
static void add_page(struct reader *rd, unsigned int block, uint64_t page, uint8_t *bytes, uint32_t used)
{
	struct ram_frame *f = rd->frame;
	struct iovec *iov = f->nr_iov ? &f->iov[f->nr_iov - 1] : NULL;

	if (zero_filter_best()->is_zero(bytes)) {
		add_extent(f, block, WIRE_ZERO, page, 1);
		rd->count.zero_pages++;
		return;
	}
	add_extent(f, block, WIRE_DATA, page, 1);
	rd->count.data_pages++;
	f->bytes += PAGE_BYTES;
	f->used = used;
	if (iov && (uint8_t *)iov->iov_base + iov->iov_len == bytes)
		iov->iov_len += PAGE_BYTES;
	else
		f->iov[f->nr_iov++] = (struct iovec) { bytes, PAGE_BYTES };
}

static int read_pages(const struct ram_block *b, uint64_t first, uint64_t count, uint8_t *to, struct err *e)
{
	ssize_t n = pread(b->fd, to, count * PAGE_BYTES, (off_t)(first * PAGE_BYTES));

	if (n == (ssize_t)(count * PAGE_BYTES))
		return 0;
	return err_set(e, GW_INTERNAL, EIO, "cannot read RAM \"%s\" at page %llu: %s", b->name, (unsigned long long)first,
		       n < 0 ? strerror(errno) : "its file is shorter than it was");
}

/*
 * Pages of a mapping that can be read there. To read a hole would make a page, and where the tmpfs is
 * full the kernel answers that with SIGBUS; pread() reads zeros, and makes nothing.
 */
static bool all_there(uint8_t *at, uint64_t n)
{
	unsigned char there[FRAME_PAGES];

	if (mincore(at, n * PAGE_BYTES, there))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!(there[i] & 1))
			return false;
	return true;
}

static int send_run(struct reader *rd, unsigned int block, struct run run, struct err *e)
{
	uint8_t *base = rd->base[block];

	while (run.count) {
		uint32_t used;
		uint64_t n;
		uint8_t *at;
		int r = room(rd, &n, e);

		if (r)
			return r;
		if (n > run.count)
			n = run.count;
		used = rd->frame->used;
		at = base ? base + run.first * PAGE_BYTES : NULL;
		if (!at || !all_there(at, n)) {
			at = rd->frame->buf + used;
			r = read_pages(&rd->vm->blocks[block], run.first, n, at, e);
		}
		/* Zeros fill no frame, and an earlier one may be half sent. */
		if (!r)
			r = channel_go_on(rd->ch, e);
		if (r)
			return r;
		for (uint64_t i = 0; i < n; i++)
			add_page(rd, block, run.first + i, at + i * PAGE_BYTES, used + (uint32_t)(i + 1) * PAGE_BYTES);
		run.first += n;
		run.count -= n;
	}
	return 0;
}

static int send_hole(struct reader *rd, unsigned int block, struct run run, struct err *e)
{
	while (run.count) {
		uint32_t n = run.count < UINT32_MAX ? (uint32_t)run.count : UINT32_MAX;
		uint64_t unused;
		int r = room(rd, &unused, e);

		if (r)
			return r;
		add_extent(rd->frame, block, WIRE_ZERO, run.first, n);
		run.first += n;
		run.count -= n;
	}
	return 0;
}

int reader_send(struct reader *rd, const struct piece *p, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < p->nr && !r; i++)
		r = p->hole ? send_hole(rd, p->block, p->runs[i], e) : send_run(rd, p->block, p->runs[i], e);
	return r;
}
