// SPDX-License-Identifier: GPL-2.0-only
/*
 * Entropy from the host into rotating pages: written by the VMM's own threads.
 * The guest cannot know the bytes, so their checksum is taken at once and compared
 * for as long as the page holds them.
 */
#include "virtio.h"

enum { SLOTS = 4 };

static struct virtq q;
static uint32_t slots, in_flight, done;
static uint32_t page_of[SLOTS];
static bool busy[SLOTS];
static struct held held;

void vrng_init(void)
{
	uint16_t io = virtio_find(VIRTIO_RNG);

	if (!io)
		return;
	virtio_start(io, 0);
	slots = virtq_init(&q, io, 0, 1, SLOTS);
	held_init(&held, "rng", 256, 0);
	virtio_ready(io);
	print("rng pages=%u", held.pages);
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
	page_of[slot] = held_take(&held);
	b = (struct virtq_buf){ held_page(&held, page_of[slot]), PAGE_SIZE, true };
	virtq_add(&q, slot, &b, 1);
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
		held_note(&held, page_of[slot], len);
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
	held_verify(&held, n);
}

uint32_t vrng_count(void)
{
	return done;
}
