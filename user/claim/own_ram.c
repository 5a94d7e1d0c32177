// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "claim/own_ram.h"

#define BOOT_ID	"/proc/sys/kernel/random/boot_id"

/* The kernel makes this id up when it boots: it is the same in all containers of a host. */
static int own_ram_boot_id(uint8_t id[WIRE_BOOT_ID], struct err *e)
{
	FILE *f = fopen(BOOT_ID, "re");
	unsigned int n = 0, byte;

	/* 16 bytes in hex, some with a dash before them. */
	while (f && n < WIRE_BOOT_ID && fscanf(f, "%*[-]") != EOF && fscanf(f, "%2x", &byte) == 1)
		id[n++] = (uint8_t)byte;
	if (f)
		fclose(f);
	return n == WIRE_BOOT_ID ? 0 : err_set(e, GW_INTERNAL, EPROTO,
					       BOOT_ID " does not say which host this is");
}

int own_ram_send(struct channel *ch, const struct vm *vm, struct err *e)
{
	struct wire_header h = {
		.type = WIRE_RAM_FILES, .arg = vm->nblocks,
		.length = WIRE_BOOT_ID + vm->nblocks * WIRE_FILE,
	};
	uint8_t body[WIRE_BOOT_ID + WIRE_BLOCKS_MAX * WIRE_FILE], *p = body + WIRE_BOOT_ID;
	int r = own_ram_boot_id(body, e);

	for (unsigned int i = 0; i < vm->nblocks; i++, p += WIRE_FILE) {
		wire_put_u64(p, vm->blocks[i].dev);
		wire_put_u64(p + 8, vm->blocks[i].ino);
	}
	return r ? r : channel_send(ch, &h, body, e);
}

static const struct ram_block *own_ram_find(const struct vm *vm, uint64_t dev, uint64_t ino)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (ino && vm->blocks[i].dev == dev && vm->blocks[i].ino == ino) /* 0: anonymous */
			return &vm->blocks[i];
	return NULL;
}

int own_ram_receive(struct channel *ch, const struct wire_header *h, const struct vm *vm,
		    const struct ram_block **own, struct err *e)
{
	uint8_t body[WIRE_BOOT_ID + WIRE_BLOCKS_MAX * WIRE_FILE], here[WIRE_BOOT_ID];
	const uint8_t *p = body + WIRE_BOOT_ID;
	int r = channel_body(ch, body, h->length, e);

	*own = NULL;
	if (!r)
		r = own_ram_boot_id(here, e);
	if (r || memcmp(body, here, sizeof(here)))
		return r;
	for (unsigned int i = 0; i < h->arg && !*own; i++, p += WIRE_FILE)
		*own = own_ram_find(vm, wire_get_u64(p), wire_get_u64(p + 8));
	return 0;
}

int own_ram_refuse(const struct ram_block *own, struct err *e)
{
	return err_set(e, GW_RAM_IN_USE, EBUSY,
		       "the destination's RAM \"%s\" is in the source VM's own file: give the destination QEMU a file of its own (another mem-path)",
		       own->name);
}
