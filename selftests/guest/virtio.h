/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Legacy virtio over PCI, polled. A request has a fixed slot of `per_slot`
 * descriptors, so there is no free list: the driver remembers which are busy.
 */
#ifndef VIRTIO_H
#define VIRTIO_H

#include "guest.h"

enum virtio_pci_id {
	VIRTIO_NET	= 0x1000,
	VIRTIO_BLK	= 0x1001,
	VIRTIO_CONSOLE	= 0x1003,
	VIRTIO_RNG	= 0x1005,
};

enum { VIRTIO_CONFIG = 20 };	/* device's own registers, without MSI-X */

struct virtq_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags, next;
};

struct virtq_avail {
	uint16_t flags, idx, ring[];
};

struct virtq_used {
	uint16_t flags, idx;
	struct { uint32_t id, len; } ring[];
};

struct virtq {
	uint16_t io;		/* I/O BAR, 0: no such device */
	uint16_t index, num, per_slot, seen;
	struct virtq_desc *desc;
	struct virtq_avail *avail;
	volatile struct virtq_used *used;
};

struct virtq_buf {
	void *at;
	uint32_t len;
	bool device_writes;
};

uint16_t virtio_find(enum virtio_pci_id id);
uint16_t virtio_find_nth(enum virtio_pci_id id, uint32_t n);
uint8_t virtio_config(uint16_t io, uint32_t offset);
/* Dies if the device does not offer all of these features. */
void virtio_start(uint16_t io, uint32_t features);
/* Returns how many slots there are, `slots` at most. */
uint32_t virtq_init(struct virtq *q, uint16_t io, uint16_t index,
		    uint16_t per_slot, uint32_t slots);
void virtio_ready(uint16_t io);
void virtq_add(struct virtq *q, uint32_t slot, const struct virtq_buf *b, uint32_t n);
void virtq_kick(struct virtq *q);
bool virtq_get(struct virtq *q, uint32_t *slot, uint32_t *len);

#endif
