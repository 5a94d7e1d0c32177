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
	FRAME_AT	= 16,
	FRAME_BYTES	= 2048,
	MAC_BYTES	= 6,

	/* in the device's own registers */
	STATUS_AT	= 6,
	PAIRS_AT	= 8,
	LINK_UP		= 1,

	/* what a card with several pairs is asked for */
	F_MERGE		= 1 << 15,
	F_CONTROL	= 1 << 17,
	F_PAIRS		= 1 << 22,

	CONTROL_PAIRS	= 4,	/* class; its only command is 0 */
	CONTROL_OK	= 0,
};

/*
 * What comes in one pair of a card goes out of another of the other card, if there is more than
 * one: a switch with one thread sends on the first alone.
 */
static struct pair {
	struct virtq rx, tx;
	uint8_t *area;		/* buffers of frames received here */
} pairs[PORTS][FWD_PAIRS];

static struct port {
	uint8_t mac[MAC_BYTES], peer[MAC_BYTES];
} ports[PORTS];
static uint32_t slots, forwarded, header_bytes;

static void port_post(struct pair *p, uint32_t slot)
{
	uint8_t *at = p->area + slot * PAGE_SIZE;
	struct virtq_buf b[2] = {
		{ at, header_bytes, true },
		{ at + FRAME_AT, FRAME_BYTES, true },
	};

	virtq_add(&p->rx, slot, b, 2);
}

static void port_send(struct pair *from, struct pair *to, const struct port *out, uint32_t slot,
		      uint32_t len)
{
	uint8_t *at = from->area + slot * PAGE_SIZE, *frame = at + FRAME_AT;
	struct virtq_buf b[2] = {
		{ at, header_bytes, false },
		{ frame, len, false },
	};

	memset(at, 0, header_bytes);
	memcpy(frame, out->peer, MAC_BYTES);
	memcpy(frame + MAC_BYTES, out->mac, MAC_BYTES);
	virtq_add(&to->tx, slot, b, 2);
}

/* The card's control queue comes behind the pairs that it has, which may be more. */
static void port_use_pairs(uint16_t io)
{
	struct { uint8_t class, command; uint16_t pairs; uint8_t ack; } *c = mem_alloc(PAGE_SIZE);
	struct virtq_buf b[3] = {
		{ &c->class, 2, false },
		{ &c->pairs, sizeof(c->pairs), false },
		{ &c->ack, sizeof(c->ack), true },
	};
	struct virtq control = { 0 };
	uint32_t slot, len;

	virtq_init(&control, io, 2 * virtio_config(io, PAIRS_AT), 3, 1);
	virtio_ready(io);
	c->class = CONTROL_PAIRS;
	c->command = 0;
	c->pairs = opt.fwd;
	c->ack = !CONTROL_OK;
	virtq_add(&control, 0, b, 3);
	virtq_kick(&control);
	while (!virtq_get(&control, &slot, &len))
		;
	if (c->ack != CONTROL_OK)
		die("fwd: a card refuses its queue pairs");
}

static void port_init(uint32_t number)
{
	/* tools/crossframes.c has the same */
	static const uint8_t peer[MAC_BYTES] = { 0x02, 0x67, 0x64, 0x77, 0x74, 0x0a };
	uint16_t io = virtio_find_nth(VIRTIO_NET, number);
	struct port *p = &ports[number];
	uint32_t n;

	if (!io)
		die("fwd needs two network cards");
	virtio_start(io, opt.fwd > 1 ? F_MERGE | F_CONTROL | F_PAIRS : 0);
	for (n = 0; n < MAC_BYTES; n++)
		p->mac[n] = virtio_config(io, n);
	memcpy(p->peer, peer, MAC_BYTES);
	p->peer[MAC_BYTES - 1] += number;
	for (n = 0; n < opt.fwd; n++) {
		struct pair *q = &pairs[number][n];

		slots = virtq_init(&q->rx, io, 2 * n, 2, SLOTS);
		if (virtq_init(&q->tx, io, 2 * n + 1, 2, SLOTS) < slots)
			die("fwd: a card's queues differ");
		q->area = mem_alloc(slots * PAGE_SIZE);
	}
	if (opt.fwd > 1)
		port_use_pairs(io);
	else
		virtio_ready(io);
}

void vfwd_init(void)
{
	uint32_t i, n, slot;

	if (!opt.fwd)
		return;
	/* with F_MERGE how many buffers a frame takes: one, as each has room for any */
	header_bytes = opt.fwd > 1 ? 12 : 10;
	for (i = 0; i < PORTS; i++)
		port_init(i);
	for (i = 0; i < PORTS; i++) {
		for (n = 0; n < opt.fwd; n++) {
			for (slot = 0; slot < slots; slot++)
				port_post(&pairs[i][n], slot);
			virtq_kick(&pairs[i][n].rx);
		}
	}
	print("fwd slots=%u pairs=%u", slots, opt.fwd);
}

static bool forward(uint32_t number, uint32_t n)
{
	const struct port *out = &ports[!number];
	struct pair *from = &pairs[number][n], *to = &pairs[!number][opt.fwd - 1 - n];
	uint32_t slot, len, sent = 0, posted = 0;

	while (virtq_get(&to->tx, &slot, &len)) {
		port_post(from, slot);
		posted++;
	}
	while (virtq_get(&from->rx, &slot, &len)) {
		if (len <= header_bytes + 2 * MAC_BYTES || len > header_bytes + FRAME_BYTES) {
			port_post(from, slot);
			posted++;
			continue;
		}
		port_send(from, to, out, slot, len - header_bytes);
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
	bool any = false;
	uint32_t n;

	for (n = 0; n < opt.fwd; n++) {
		any |= forward(0, n);
		any |= forward(1, n);
	}
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
		up += virtio_config(pairs[i][0].rx.io, STATUS_AT) & LINK_UP;
	return up;
}
