// SPDX-License-Identifier: GPL-2.0-only
/* Legacy virtio: find the device, own its queues. */
#include "io.h"
#include "virtio.h"

enum {
	PCI_ADDRESS	= 0xcf8,
	PCI_DATA	= 0xcfc,
	PCI_COMMAND	= 0x04,
	PCI_BAR0	= 0x10,
	PCI_IO_MASTER	= 0x05,
	VENDOR		= 0x1af4,

	HOST_FEATURES	= 0,
	GUEST_FEATURES	= 4,
	QUEUE_PFN	= 8,
	QUEUE_SIZE	= 12,
	QUEUE_SELECT	= 14,
	QUEUE_NOTIFY	= 16,
	STATUS		= 18,
	STATUS_ACK	= 1,
	STATUS_DRIVER	= 2,
	STATUS_OK	= 4,

	DESC_NEXT	= 1,
	DESC_WRITE	= 2,
	NO_INTERRUPT	= 1,
	NO_NOTIFY	= 1,
};

static uint32_t pci_read(uint32_t devfn, uint32_t reg)
{
	outl(PCI_ADDRESS, 0x80000000u | devfn << 8 | reg);
	return inl(PCI_DATA);
}

uint16_t virtio_find(enum virtio_pci_id id)
{
	return virtio_find_nth(id, 0);
}

uint8_t virtio_config(uint16_t io, uint32_t offset)
{
	return inb(io + VIRTIO_CONFIG + offset);
}

/* Bus 0 only. */
uint16_t virtio_find_nth(enum virtio_pci_id id, uint32_t n)
{
	uint32_t devfn, bar;

	for (devfn = 0; devfn < 256; devfn++) {
		if (pci_read(devfn, 0) != ((uint32_t)id << 16 | VENDOR))
			continue;
		bar = pci_read(devfn, PCI_BAR0);
		if (!(bar & 1) || n--)
			continue;
		pci_read(devfn, PCI_COMMAND);
		outw(PCI_DATA, PCI_IO_MASTER);
		return bar & 0xfffc;
	}
	return 0;
}

void virtio_start(uint16_t io, uint32_t features)
{
	outb(io + STATUS, 0);
	outb(io + STATUS, STATUS_ACK);
	outb(io + STATUS, STATUS_ACK | STATUS_DRIVER);
	if (features & ~inl(io + HOST_FEATURES))
		die("a device lacks a feature");
	outl(io + GUEST_FEATURES, features);
}

uint32_t virtq_init(struct virtq *q, uint16_t io, uint16_t index,
		    uint16_t per_slot, uint32_t slots)
{
	size_t used_at, size;
	uint8_t *ring;

	outw(io + QUEUE_SELECT, index);
	q->num = inw(io + QUEUE_SIZE);
	if (!q->num)
		die("no such virtqueue");
	used_at = sizeof(struct virtq_desc) * q->num + sizeof(uint16_t) * (3 + q->num);
	used_at = (used_at + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1);
	size = used_at + sizeof(uint16_t) * 3 + 8u * q->num;
	ring = mem_alloc(size);
	memset(ring, 0, size);
	q->io = io;
	q->index = index;
	q->per_slot = per_slot;
	q->desc = (void *)ring;
	q->avail = (void *)(ring + sizeof(struct virtq_desc) * q->num);
	q->used = (void *)(ring + used_at);
	q->avail->flags = NO_INTERRUPT;
	outl(io + QUEUE_PFN, (uintptr_t)ring / PAGE_SIZE);
	return slots < q->num / per_slot ? slots : q->num / per_slot;
}

void virtio_ready(uint16_t io)
{
	outb(io + STATUS, STATUS_ACK | STATUS_DRIVER | STATUS_OK);
}

void virtq_add(struct virtq *q, uint32_t slot, const struct virtq_buf *b, uint32_t n)
{
	uint32_t head = slot * q->per_slot, i;
	struct virtq_desc *d = q->desc + head;

	for (i = 0; i < n; i++, b++, d++) {
		d->addr = (uintptr_t)b->at;
		d->len = b->len;
		d->flags = (b->device_writes ? DESC_WRITE : 0) | (i + 1 < n ? DESC_NEXT : 0);
		d->next = head + i + 1;
	}
	q->avail->ring[q->avail->idx % q->num] = head;
	barrier();		/* x86 keeps stores in order: the entry before the index */
	*(volatile uint16_t *)&q->avail->idx += 1;
}

void virtq_kick(struct virtq *q)
{
	/* index before the device's flag: the device pairs it the other way round */
	__sync_synchronize();
	if (!(q->used->flags & NO_NOTIFY))
		outw(q->io + QUEUE_NOTIFY, q->index);
}

bool virtq_get(struct virtq *q, uint32_t *slot, uint32_t *len)
{
	if (q->seen == q->used->idx)
		return false;
	barrier();
	*slot = q->used->ring[q->seen % q->num].id / q->per_slot;
	*len = q->used->ring[q->seen % q->num].len;
	q->seen++;
	return true;
}
