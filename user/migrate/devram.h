/* SPDX-License-Identifier: GPL-2.0-only */
/* QEMU's private RAM on the control connection: PRIVATE_BLOCKS and PRIVATE of wire.h, both sides. */
#ifndef GODWIT_DEVRAM_H
#define GODWIT_DEVRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "vmm/private.h"

/**
 * struct devram - the sender's
 * @copy: what the receiver has, block after block; NULL: nothing yet
 * @whole: all of it has been sent once
 */
struct devram {
	struct private_ram ram;
	uint8_t *copy;
	bool whole;
};

/*
 * Sends what has changed since the last time, the first time all of it. What is written meanwhile is found by the next
 * call; what counts is the one with the guest at rest. *bytes grows by what was sent.
 */
int devram_send(struct devram *d, struct channel *ch, uint64_t *bytes, struct err *e);
void devram_free(struct devram *d);

/*
 * The receiver's: compares the sender's PRIVATE_BLOCKS with ours, and numbers ours like them. *same: they are the same; else why,
 * a line, says what is not, which is no error.
 */
int devram_compare(struct channel *ch, const struct wire_header *h, struct private_ram *ours, bool *same, struct err *why,
		   struct err *e);
/* A PRIVATE frame. */
int devram_frame(struct channel *ch, const struct wire_header *h, const struct private_ram *ours, struct err *e);

#endif
