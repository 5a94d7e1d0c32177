// SPDX-License-Identifier: GPL-2.0-only
/*
 * Port 1 of a virtio-serial device: takes what a client sends. From the first byte on it has output
 * for the client all the time, so QEMU holds output up when the client does not take it, and goes on
 * with it when the client does, also while the guest stands still.
 */
#include "virtio.h"

enum {
	SLOTS		= 2,
	BYTES		= 64,
	OUT_SLOTS	= 32,
	MULTIPORT	= 1 << 1,	/* a feature: there are more ports than the console, 0 */
	DEVICE_READY	= 0,		/* events for the device */
	PORT_READY	= 3,
	PORT_OPEN	= 6,
};

/* Queues 0 and 1 are port 0's. */
enum { CONTROL_OUT = 3, PORT_IN, PORT_OUT };

struct control {
	uint32_t port;
	uint16_t event, value;
};

static struct virtq in, out, control;
static uint8_t *area, *text;
static uint32_t came, out_slots;

static void post_in(uint32_t slot)
{
	struct virtq_buf b = { area + slot * BYTES, BYTES, true };

	virtq_add(&in, slot, &b, 1);
}

static void post_out(uint32_t slot)
{
	struct virtq_buf b = { text, PAGE_SIZE, false };

	virtq_add(&out, slot, &b, 1);
}

static void open_port(void)
{
	static const uint16_t events[] = { DEVICE_READY, PORT_READY, PORT_OPEN };
	struct control *c = mem_alloc(sizeof(events) / sizeof(*events) * sizeof(*c));
	uint32_t i;

	for (i = 0; i < sizeof(events) / sizeof(*events); i++) {
		struct virtq_buf b = { &c[i], sizeof(c[i]), false };

		c[i] = (struct control){ 1, events[i], 1 };
		virtq_add(&control, i, &b, 1);
	}
	virtq_kick(&control);
}

void vser_init(void)
{
	uint16_t io = virtio_find(VIRTIO_CONSOLE);
	uint32_t slot, slots;

	if (!io)
		return;
	virtio_start(io, MULTIPORT);
	virtq_init(&control, io, CONTROL_OUT, 1, 3);
	slots = virtq_init(&in, io, PORT_IN, 1, SLOTS);
	out_slots = virtq_init(&out, io, PORT_OUT, 1, OUT_SLOTS);
	area = mem_alloc(SLOTS * BYTES);
	text = mem_alloc(PAGE_SIZE);
	memset(text, '.', PAGE_SIZE);
	virtio_ready(io);
	for (slot = 0; slot < slots; slot++)
		post_in(slot);
	virtq_kick(&in);
	open_port();
	print("port buffers=%u", slots);
}

bool vser_poll(void)
{
	bool silent = !came, heard = false, said = false;
	uint32_t slot, len;

	if (!in.io)
		return false;
	while (virtq_get(&in, &slot, &len)) {
		heard = true;
		came += len;
		post_in(slot);
	}
	if (heard)
		virtq_kick(&in);
	if (silent && came) {
		said = true;
		for (slot = 0; slot < out_slots; slot++)
			post_out(slot);
	}
	while (virtq_get(&out, &slot, &len)) {
		said = true;
		post_out(slot);
	}
	if (said)
		virtq_kick(&out);
	return heard || said;
}

uint32_t vser_count(void)
{
	return came;
}
