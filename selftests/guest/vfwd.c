// SPDX-License-Identifier: GPL-2.0-only
/*
 * Forwards frames between two network cards as testpmd's forward mode "mac" does: polled,
 * without a copy. A buffer belongs to one direction and slot: it is posted to be received into,
 * then queued to be sent, then posted again.
 */
#include "virtio.h"

enum {
	PORTS		= 2,
	SLOTS		= 128,
	HEADER_BYTES	= 10,
	FRAME_AT	= 16,
	FRAME_BYTES	= 2048,
	MAC_BYTES	= 6,
	STATUS_AT	= 6,		/* in the device's own registers */
	LINK_UP		= 1,
};

static struct port {
	struct virtq rx, tx;
	uint8_t mac[MAC_BYTES], peer[MAC_BYTES];
	uint8_t *area;		/* buffers of frames received here */
} ports[PORTS];
static uint32_t slots, forwarded;

static void port_post(struct port *p, uint32_t slot)
{
	uint8_t *at = p->area + slot * PAGE_SIZE;
	struct virtq_buf b[2] = {
		{ at, HEADER_BYTES, true },
		{ at + FRAME_AT, FRAME_BYTES, true },
	};

	virtq_add(&p->rx, slot, b, 2);
}

static void port_send(struct port *from, struct port *to, uint32_t slot, uint32_t len)
{
	uint8_t *at = from->area + slot * PAGE_SIZE, *frame = at + FRAME_AT;
	struct virtq_buf b[2] = {
		{ at, HEADER_BYTES, false },
		{ frame, len, false },
	};

	memset(at, 0, HEADER_BYTES);
	memcpy(frame, to->peer, MAC_BYTES);
	memcpy(frame + MAC_BYTES, to->mac, MAC_BYTES);
	virtq_add(&to->tx, slot, b, 2);
}

static void port_init(struct port *p, uint32_t number)
{
	/* tools/crossframes.c has the same */
	static const uint8_t peer[MAC_BYTES] = { 0x02, 0x67, 0x64, 0x77, 0x74, 0x0a };
	uint16_t io = virtio_find_nth(VIRTIO_NET, number);
	uint32_t n;

	if (!io)
		die("fwd=1 needs two network cards");
	virtio_start(io);
	for (n = 0; n < MAC_BYTES; n++)
		p->mac[n] = virtio_config(io, n);
	memcpy(p->peer, peer, MAC_BYTES);
	p->peer[MAC_BYTES - 1] += number;
	slots = virtq_init(&p->rx, io, 0, 2, SLOTS);
	if (virtq_init(&p->tx, io, 1, 2, SLOTS) < slots)
		die("fwd=1: a card's queues differ");
	p->area = mem_alloc(slots * PAGE_SIZE);
	virtio_ready(io);
}

void vfwd_init(void)
{
	uint32_t i, slot;

	if (!opt.fwd)
		return;
	for (i = 0; i < PORTS; i++)
		port_init(&ports[i], i);
	for (i = 0; i < PORTS; i++) {
		for (slot = 0; slot < slots; slot++)
			port_post(&ports[i], slot);
		virtq_kick(&ports[i].rx);
	}
	print("fwd slots=%u", slots);
}

static bool forward(struct port *from, struct port *to)
{
	uint32_t slot, len, sent = 0, posted = 0;

	while (virtq_get(&to->tx, &slot, &len)) {
		port_post(from, slot);
		posted++;
	}
	while (virtq_get(&from->rx, &slot, &len)) {
		if (len <= HEADER_BYTES + 2 * MAC_BYTES || len > HEADER_BYTES + FRAME_BYTES) {
			port_post(from, slot);
			posted++;
			continue;
		}
		port_send(from, to, slot, len - HEADER_BYTES);
		sent++;
	}
	if (posted)
		virtq_kick(&from->rx);
	if (sent)
		virtq_kick(&to->tx);
	forwarded += sent;
	return posted + sent;
}

bool vfwd_poll(void)
{
	bool any;

	if (!opt.fwd)
		return false;
	any = forward(&ports[0], &ports[1]);
	any |= forward(&ports[1], &ports[0]);
	return any;
}

uint32_t vfwd_count(void)
{
	return forwarded;
}

uint32_t vfwd_links(void)
{
	uint32_t i, up = 0;

	for (i = 0; opt.fwd && i < PORTS; i++)
		up += virtio_config(ports[i].rx.io, STATUS_AT) & LINK_UP;
	return up;
}
