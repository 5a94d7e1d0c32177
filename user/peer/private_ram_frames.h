/* SPDX-License-Identifier: GPL-2.0-only */
/* QEMU's private RAM: PRIVATE_BLOCKS and PRIVATE of wire.h, both ends. */
#ifndef GODWIT_PRIVATE_RAM_FRAMES_H
#define GODWIT_PRIVATE_RAM_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "devstate/private_ram.h"
#include "net/channel.h"
#include "peer/frame_out.h"

/**
 * struct private_ram_copy - the sender's copy of what the receiver has
 * @copy: the content, block after block; NULL: none yet
 * @whole: all of it has been sent once
 */
struct private_ram_copy {
	struct private_ram ram;
	uint8_t *copy;
	bool whole;
};

/*
 * Sends the pages that have changed since the last call, or all in the first call. If a page is
 * written meanwhile the next call finds that; only the call with the guest stopped must miss
 * nothing. *bytes grows by what was sent.
 */
int private_ram_send(struct private_ram_copy *d, const struct frame_out *to, uint64_t *bytes,
		     struct err *e);
void private_ram_copy_free(struct private_ram_copy *d);

/*
 * The receiver's end: compares the sender's PRIVATE_BLOCKS with ours, and numbers ours like them.
 * *same: they are the same. If not that is no error, and *why names the first difference.
 */
int private_ram_compare(struct channel *ch, const struct wire_header *h, struct private_ram *ours,
			bool *same, struct err *why, struct err *e);
/* Serves a PRIVATE frame: writes its pages into QEMU. Any thread. */
int private_ram_frame(struct channel *ch, const struct wire_header *h,
		      const struct private_ram *ours, struct err *e);

#endif
