/* SPDX-License-Identifier: GPL-2.0-only */
/* Destination RAM: emptied first, then filled straight from the socket. */
#ifndef GODWIT_PLACE_H
#define GODWIT_PLACE_H

#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "vmm/vm.h"

struct placement {
	const struct vm *vm;
	uint8_t *base[WIRE_BLOCKS_MAX];
	uint64_t pages[WIRE_BLOCKS_MAX];
	uint64_t data_pages, zero_pages;
};

/* Maps all RAM and punches it out: what the source never touched is a hole here too. */
int place_open(struct placement *p, const struct vm *vm, struct err *e);
void place_close(struct placement *p);
/* One RAM frame, its header read already. */
int place_frame(struct placement *p, struct channel *ch, const struct wire_header *h, struct err *e);

#endif
