// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads a disk whose sectors are a function of their number, front to back and
 * again, into a ring of buffers. The vCPU never writes to the buffers, so only
 * the device's DMA makes them dirty. A buffer is checked when its read is done
 * and again and again until it is reused: a page that migration missed still
 * holds what was read there a round before.
 */
#include "io.h"
#include "virtio.h"

enum {
	BUFFER_PAGES	= 1024,
	SLOTS		= 8,
	BUF_PER_SLOT	= 3,
	SECTORS_PER_PAGE = PAGE_SIZE / CONTENT_SECTOR_BYTES,
	REQUEST_READ	= 0,
};

struct request {
	uint32_t type, priority;
	uint64_t sector;
	uint8_t status;
	uint32_t buffer, chunk;
	bool busy;
};

static struct virtq q;
static struct request requests[SLOTS];
static uint32_t slots, buffers, chunks;	/* a chunk is opt.diskio pages of the disk */
static uint32_t next_buffer, next_chunk, verify_cursor, in_flight, done;
static uint8_t *area;
static uint32_t holds[BUFFER_PAGES];	/* chunk + 1, 0: nothing or being read */

static uint8_t *buffer_at(uint32_t b)
{
	return area + (size_t)b * opt.diskio * PAGE_SIZE;
}

void vblk_init(void)
{
	uint16_t io = virtio_find(VIRTIO_BLK);

	if (!io)
		return;
	virtio_start(io, 0);
	chunks = inl(io + VIRTIO_CONFIG) / SECTORS_PER_PAGE / opt.diskio;
	buffers = BUFFER_PAGES / opt.diskio;
	/* On its next turn a buffer must get another chunk, else a stale one looks right. */
	if (chunks <= buffers)
		buffers = chunks - 1;
	if (chunks < 4 * SLOTS)
		die("the disk is too small");
	slots = virtq_init(&q, io, 0, BUF_PER_SLOT, SLOTS);
	area = mem_alloc(buffers * opt.diskio * PAGE_SIZE);
	virtio_ready(io);
	print("disk chunks=%u buffers=%u", chunks, buffers);
}

static void check(uint32_t buffer, uint32_t chunk)
{
	uint32_t n = opt.diskio * SECTORS_PER_PAGE, i;
	uint8_t *at = buffer_at(buffer);

	for (i = 0; i < n; i++, at += CONTENT_SECTOR_BYTES) {
		if (content_check(at, CONTENT_SECTOR_BYTES / sizeof(uint32_t),
				  CONTENT_SECTOR, chunk * n + i, 0) < 0)
			continue;
		report("disk buffer at %x holds %x %x, not sector %u", (uintptr_t)at,
		       ((uint32_t *)at)[0], ((uint32_t *)at)[1], chunk * n + i);
		return;
	}
}

static void complete(void)
{
	uint32_t slot, len;
	struct request *r;

	while (virtq_get(&q, &slot, &len)) {
		r = &requests[slot];
		r->busy = false;
		in_flight--;
		done++;
		if (r->status)
			report("disk: status %u for sector %u", r->status, (uint32_t)r->sector);
		check(r->buffer, r->chunk);
		holds[r->buffer] = r->chunk + 1;
	}
}

static bool submit(void)
{
	struct virtq_buf b[BUF_PER_SLOT];
	struct request *r;
	uint32_t slot;

	for (slot = 0; slot < slots && requests[slot].busy; slot++)
		;
	if (slot == slots)
		return false;
	r = &requests[slot];
	r->type = REQUEST_READ;
	r->sector = (uint64_t)next_chunk * opt.diskio * SECTORS_PER_PAGE;
	r->status = 0xff;
	r->buffer = next_buffer;
	r->chunk = next_chunk;
	r->busy = true;
	holds[r->buffer] = 0;
	next_buffer = next_buffer + 1 == buffers ? 0 : next_buffer + 1;
	next_chunk = next_chunk + 1 == chunks ? 0 : next_chunk + 1;

	b[0] = (struct virtq_buf){ r, 16, false };
	b[1] = (struct virtq_buf){ buffer_at(r->buffer), opt.diskio * PAGE_SIZE, true };
	b[2] = (struct virtq_buf){ &r->status, 1, true };
	virtq_add(&q, slot, b, BUF_PER_SLOT);
	in_flight++;
	return true;
}

bool vblk_poll(void)
{
	uint32_t due;
	bool any = false;

	if (!q.io)
		return false;
	complete();
	for (due = pace_due(&opt.disk, slots - in_flight); due; due--)
		any |= submit();
	if (any)
		virtq_kick(&q);
	return in_flight;
}

void vblk_verify(uint32_t n)
{
	if (n > buffers)
		n = buffers;
	for (; n; n--) {
		if (holds[verify_cursor])
			check(verify_cursor, holds[verify_cursor] - 1);
		verify_cursor = verify_cursor + 1 >= buffers ? 0 : verify_cursor + 1;
	}
}

uint32_t vblk_count(void)
{
	return done;
}
