// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entropy from the host into rotating pages: written by the VMM's own threads.
 * Nobody can know the bytes, so their checksum is taken at once and compared
 * for as long as the page holds them.
 */
#include "virtio.h"

enum { PAGES = 256, SLOTS = 4 };

static struct virtq q;
static uint32_t slots, next_page, verify_cursor, in_flight, done;
static uint32_t page_of[SLOTS];
static bool busy[SLOTS];
static uint8_t *area;
static struct { uint32_t len, sum; } holds[PAGES];

static uint8_t *page_at(uint32_t page)
{
	return area + page * PAGE_SIZE;
}

void vrng_init(void)
{
	uint16_t io = virtio_find(VIRTIO_RNG);

	if (!io)
		return;
	virtio_start(io);
	slots = virtq_init(&q, io, 0, 1, SLOTS);
	area = mem_alloc(PAGES * PAGE_SIZE);
	virtio_ready(io);
	print("rng pages=%u", (uint32_t)PAGES);
}

static void submit(void)
{
	struct virtq_buf b;
	uint32_t slot;

	for (slot = 0; slot < slots && busy[slot]; slot++)
		;
	if (slot == slots)
		return;
	busy[slot] = true;
	page_of[slot] = next_page;
	holds[next_page].len = 0;
	b = (struct virtq_buf){ page_at(next_page), PAGE_SIZE, true };
	virtq_add(&q, slot, &b, 1);
	next_page = (next_page + 1) % PAGES;
	in_flight++;
}

bool vrng_poll(void)
{
	uint32_t slot, len, due;

	if (!q.io)
		return false;
	while (virtq_get(&q, &slot, &len)) {
		busy[slot] = false;
		in_flight--;
		done++;
		holds[page_of[slot]].len = len;
		holds[page_of[slot]].sum = checksum(page_at(page_of[slot]), len);
	}
	due = pace_due(&opt.rng, slots - in_flight);
	if (!due)
		return in_flight;
	while (due--)
		submit();
	virtq_kick(&q);
	return true;
}

void vrng_verify(uint32_t n)
{
	uint32_t page, sum;

	if (!q.io)
		return;
	for (n = n > PAGES ? PAGES : n; n; n--) {
		page = verify_cursor;
		verify_cursor = (verify_cursor + 1) % PAGES;
		sum = checksum(page_at(page), holds[page].len);
		if (holds[page].len && sum != holds[page].sum)
			report("rng page at %x: checksum %x, not %x",
			       (uintptr_t)page_at(page), sum, holds[page].sum);
	}
}

uint32_t vrng_count(void)
{
	return done;
}
