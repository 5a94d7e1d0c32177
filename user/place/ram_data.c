// SPDX-License-Identifier: GPL-2.0-only
/* The page bytes of a frame: received or unpacked, and written. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "page/page.h"
#include "place/ram_write_internal.h"

/**
 * struct ram_cursor - which page bytes of a frame come next
 * @x: the next extent, not of kind WIRE_ZERO
 * @done: pages of @x that have been read
 */
struct ram_cursor {
	const struct wire_extent *x;
	const struct wire_extent *end;
	uint32_t done;
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

#define BUFFER_PAGES	(RAM_WRITER_BUFFER / PAGE_BYTES)

/* The next parts, as many as the buffer has pages for. */
static unsigned int ram_next_parts(const struct ram_writer *p, struct ram_cursor *f,
				   uint8_t *buf, struct ram_part part[BUFFER_PAGES])
{
	uint32_t pages = 0;
	unsigned int n = 0;

	for (; f->x < f->end && pages < BUFFER_PAGES; pages += part[n++].pages) {
		part[n] = ram_next_part(p, f, BUFFER_PAGES - pages);
		part[n].bytes = buf + (size_t)pages * PAGE_BYTES;
	}
	return n;
}

static uint8_t *ram_mapped_at(const struct ram_writer *p, const struct ram_part *part)
{
	uint8_t *base = p->base[part->block];

	return base ? base + part->first * PAGE_BYTES : NULL;
}

/* The parts whose bytes are in the buffer, and are to go from there to a file or a process. */
static int ram_write_buffered(struct ram_writer *p, struct ram_part *part, unsigned int n,
			      struct err *e)
{
	for (unsigned int i = 0; i < n; i++)
		if (part[i].unplaced)
			ram_new_pages(p, &part[i]);
	return ram_write_parts(p, part, n, e);
}

/* Reads the next page bytes into the block's mapping, or into buf and from there into its file. */
static int ram_receive_data(struct ram_writer *p, struct channel *ch, struct ram_cursor *f,
			    uint8_t *buf, struct err *e)
{
	struct ram_part part[BUFFER_PAGES];
	struct iovec iov[BUFFER_PAGES], *end = iov;
	unsigned int n = ram_next_parts(p, f, buf, part);
	int r;

	for (unsigned int i = 0; i < n; i++) {
		uint8_t *to = ram_mapped_at(p, &part[i]);

		if (!to)
			to = part[i].bytes;
		if (end > iov && (uint8_t *)end[-1].iov_base + end[-1].iov_len == to)
			end[-1].iov_len += (size_t)part[i].pages * PAGE_BYTES;
		else
			*end++ = (struct iovec) { to, (size_t)part[i].pages * PAGE_BYTES };
	}
	r = channel_bodyv(ch, iov, (unsigned int)(end - iov), e);
	if (r == -EFAULT)
		r = ram_explain(p, part, n, e);
	return r ? r : ram_write_buffered(p, part, n, e);
}

/*
 * The kernel writes into the mapping what the thread has made in its buffer, which is a memfd for
 * that: without room read() says EFAULT, where a store would end in SIGBUS.
 */
int ram_copy_mapped(const struct ram_writer *p, const struct ram_scratch *s,
		    const struct ram_part *part, size_t skip, size_t left, struct err *e)
{
	uint8_t *to = ram_mapped_at(p, part) + skip;
	off_t at = part->bytes - s->buf;

	while (left) {
		ssize_t n = pread(s->fd, to, left, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			int code = n ? errno : EIO;

			if (code == EFAULT && ram_explain(p, part, 1, e) != -EFAULT)
				return -ENOSPC;
			return ram_failed(&p->vm->blocks[part->block], "write", code, e);
		}
		to += n;
		at += n;
		left -= (size_t)n;
	}
	return 0;
}

/* Writes the next pages of the cursor, whose bytes are in the buffer from @at on. */
static int ram_write_made(struct ram_writer *p, struct ram_cursor *f, const struct ram_scratch *s,
			  uint8_t *at, struct err *e)
{
	struct ram_part part[BUFFER_PAGES];
	unsigned int n = ram_next_parts(p, f, at, part);
	int r = 0;

	for (unsigned int i = 0; i < n && !r; i++)
		if (p->base[part[i].block])
			r = ram_copy_mapped(p, s, &part[i], 0,
					    (size_t)part[i].pages * PAGE_BYTES, e);
	return r ? r : ram_write_buffered(p, part, n, e);
}

int ram_write_extent(struct ram_writer *p, const struct wire_extent *x, const struct ram_scratch *s,
		     uint8_t *at, struct err *e)
{
	struct ram_cursor f = { .x = x, .end = x + 1 };

	return ram_write_made(p, &f, s, at, e);
}

/* Pages of one byte. */
static int ram_write_same(struct ram_writer *p, const struct wire_extent *x,
			  const struct ram_scratch *s, struct err *e)
{
	struct ram_cursor f = { .x = x, .end = x + 1 };
	int r = 0;

	memset(s->buf, WIRE_SAME_BYTE(x->kind),
	       (x->pages < BUFFER_PAGES ? x->pages : BUFFER_PAGES) * (size_t)PAGE_BYTES);
	while (!r && f.x < f.end)
		r = ram_write_made(p, &f, s, s->buf, e);
	return r;
}

int ram_unpack(struct ram_writer *p, struct channel *ch, uint64_t number, size_t len,
	       struct ram_scratch *s, size_t bytes, struct err *e)
{
	int r = channel_body(ch, s->packed, len, e);

	static_assert(WIRE_PACKED_MAX <= RAM_WRITER_BUFFER, "a frame is unpacked in one step");
	if (r)
		return r;
	if (number < 1 || number > CODECS || !(codecs[number - 1]->feature & p->features))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender packed RAM in a way that was not agreed on (%llu)",
			       (unsigned long long)number);
	if (p->unpacking)
		thread_slots_take(p->unpacking);
	r = codec_unpack(&s->states, (unsigned int)number, s->packed, len, s->buf, bytes);
	if (p->unpacking)
		thread_slots_give(p->unpacking);
	if (r == -ENOMEM)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	return r ? err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a block of %s that does not unpack to its %zu bytes",
			   codecs[number - 1]->name, bytes) : 0;
}

int ram_unpack_pages(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, size_t bytes, struct err *e)
{
	uint8_t head[WIRE_PACKED_HEAD];
	int r = channel_body(ch, head, sizeof(head), e);

	return r ? r : ram_unpack(p, ch, wire_get_u64(head),
				  h->length - h->arg * WIRE_EXTENT - WIRE_PACKED_HEAD, s, bytes, e);
}

int ram_scratch_open(struct ram_scratch *s, struct err *e)
{
	void *buf = MAP_FAILED;

	*s = (struct ram_scratch) { .fd = memfd_create("godwit-pages", MFD_CLOEXEC) };
	if (s->fd >= 0 && !ftruncate(s->fd, RAM_WRITER_BUFFER))
		buf = mmap(NULL, RAM_WRITER_BUFFER, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
	if (buf == MAP_FAILED)
		return err_set(e, GW_INTERNAL, errno, "no memory for a stream's buffer: %s",
			       strerror(errno));
	s->buf = buf;
	/* Whole now, and not in the middle of a frame. */
	if (fallocate(s->fd, 0, 0, RAM_WRITER_BUFFER))
		return err_set(e, GW_INTERNAL, errno, "no memory for a stream's buffer: %s",
			       strerror(errno));
	s->packed = malloc(WIRE_PACKED_MAX);
	return s->packed ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

void ram_scratch_close(struct ram_scratch *s)
{
	if (s->buf)
		munmap(s->buf, RAM_WRITER_BUFFER);
	if (s->fd >= 0)
		close(s->fd);
	free(s->packed);
	lazy_unit_free(&s->part);
	reuse_hasher_close(&s->hasher);
	codec_states_free(&s->states);
}

/* Decodes the extents of a frame. */
static int ram_get_extents(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
			   uint8_t *buf, struct wire_extent *x, struct err *e)
{
	int r;

	static_assert(WIRE_EXTENTS_MAX * WIRE_EXTENT <= RAM_WRITER_BUFFER,
		      "a frame's extents fit into the buffer");
	r = channel_body(ch, buf, h->arg * WIRE_EXTENT, e);
	if (r)
		return r;
	r = wire_get_ram(h, buf, h->arg * WIRE_EXTENT, p->pages, p->vm->nblocks, x);
	if (r == -ERANGE)
		return err_set(e, GW_BAD_PEER, ERANGE, "the sender sent a page outside of the guest's RAM, and the receiver did not write it");
	for (unsigned int i = 0; i < h->arg && !r; i++)
		if (WIRE_IS_SAME(x[i].kind) && !(p->features & WIRE_FILL))
			r = -EPROTO;
	return r ? err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed RAM frame") : 0;
}

int ram_writer_frame(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, struct ram_writer_count *count, struct err *e)
{
	struct wire_extent x[WIRE_EXTENTS_MAX];
	struct ram_cursor f = { .x = x };
	size_t bytes = 0;
	int r;

	if (h->type == WIRE_REFERENCES)
		return ram_write_reused(p, ch, h, s, count, e);
	f.end = x + h->arg;
	r = ram_get_extents(p, ch, h, s->buf, x, e);
	if (r)
		return r;
	if (p->lazy)
		return ram_lazy_extents(p, ch, h, x, s, count, e);
	for (unsigned int i = 0; i < h->arg && !r; i++) {
		if (x[i].kind == WIRE_ZERO) {
			r = ram_write_zeros(p, &x[i], e);
			count->zero_pages += x[i].pages;
			continue;
		}
		count->data_pages += x[i].pages;
		if (x[i].kind == WIRE_DATA)
			bytes += (size_t)x[i].pages * PAGE_BYTES;
		else if (x[i].kind != WIRE_PARTS)
			r = ram_write_same(p, &x[i], s, e);
	}
	if (h->type == WIRE_DELTA)
		return r ? r : ram_write_delta(p, ch, h, x, s, e);
	ram_skip_zeros(&f);
	if (!r && h->type == WIRE_PACKED)
		r = ram_unpack_pages(p, ch, h, s, bytes, e);
	while (!r && f.x < f.end)
		r = h->type == WIRE_PACKED ? ram_write_made(p, &f, s, s->buf, e) :
					     ram_receive_data(p, ch, &f, s->buf, e);
	return r;
}
