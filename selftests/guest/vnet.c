// SPDX-License-Identifier: GPL-2.0-only
/*
 * Receives frames into a ring of pages: written by the VMM, or by a vhost
 * worker in the kernel. Frames of ours (own ethertype, or UDP to our port)
 * must hold what their sequence number says. All frames, ours or not, are
 * compared with their first checksum until their page is posted again.
 * Nothing is ever sent.
 */
#include "virtio.h"

enum {
	SLOTS		= 64,	/* posted at a time, the other pages are held for checks */
	HEADER_BYTES	= 10,
	FRAME_AT	= 16,
	FRAME_BYTES	= 2048,
	ETHER_BYTES	= 14,
	UDP_PAYLOAD_AT	= ETHER_BYTES + 20 + 8,
};

static struct virtq q;
static uint32_t slots, done;
static uint32_t page_of[SLOTS];
static struct held held;

static void post(uint32_t slot)
{
	struct virtq_buf b[2];
	uint8_t *at;

	page_of[slot] = held_take(&held);
	at = held_page(&held, page_of[slot]);
	b[0] = (struct virtq_buf){ at, HEADER_BYTES, true };
	b[1] = (struct virtq_buf){ at + FRAME_AT, FRAME_BYTES, true };
	virtq_add(&q, slot, b, 2);
}

void vnet_init(void)
{
	uint16_t io = opt.net ? virtio_find(VIRTIO_NET) : 0;
	uint32_t slot;

	if (!io)
		return;
	virtio_start(io, 0);
	slots = virtq_init(&q, io, 0, 2, SLOTS);
	held_init(&held, "net", 512, FRAME_AT);
	virtio_ready(io);
	for (slot = 0; slot < slots; slot++)
		post(slot);
	virtq_kick(&q);
	print("net pages=%u posted=%u", held.pages, slots);
}

static uint32_t be16(const uint8_t *p)
{
	return p[0] << 8 | p[1];
}

static void check_ours(const uint8_t *frame, uint32_t len)
{
	uint32_t at, words, seq;

	if (be16(frame + 12) == CONTENT_ETHERTYPE)
		at = ETHER_BYTES;
	else if (be16(frame + 12) == 0x0800 && frame[ETHER_BYTES + 9] == 17 &&
		 be16(frame + ETHER_BYTES + 22) == CONTENT_UDP_PORT)
		at = UDP_PAYLOAD_AT;
	else
		return;
	if (len < at + CONTENT_HEADER_WORDS * sizeof(uint32_t))
		return;
	words = (len - at) / sizeof(uint32_t);
	memcpy(&seq, frame + at + sizeof(uint32_t), sizeof(seq));
	done++;
	if (content_check(frame + at, words, CONTENT_FRAME, seq, 0) >= 0)
		report("frame at %x: %u bytes are not of sequence number %u",
		       (uintptr_t)frame, len, seq);
}

bool vnet_poll(void)
{
	uint32_t slot, len;
	bool any = false;

	if (!q.io)
		return false;
	while (virtq_get(&q, &slot, &len)) {
		any = true;
		if (len > HEADER_BYTES) {
			len -= HEADER_BYTES;
			check_ours(held_page(&held, page_of[slot]) + FRAME_AT, len);
			held_note(&held, page_of[slot], len);
		}
		post(slot);
	}
	if (any)
		virtq_kick(&q);
	return any;
}

void vnet_verify(uint32_t n)
{
	held_verify(&held, n);
}

uint32_t vnet_count(void)
{
	return done;
}
