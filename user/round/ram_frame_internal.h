/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of a framer have in common. Errors are the channel's. */
#ifndef GODWIT_RAM_FRAME_INTERNAL_H
#define GODWIT_RAM_FRAME_INTERNAL_H

#include "round/ram_frame.h"

/* Packs a frame that is to be sent, and learns from it. */
void ram_framer_pack(struct ram_framer *f, struct ram_frame *frame);
/* Waits as --bandwidth has it. bytes: of a frame that is to be sent. */
int ram_framer_keep_pace(struct ram_framer *f, uint64_t bytes, struct err *e);

/* Does the receiver have such a page in its file? Nothing refers to it in the last round. */
bool ram_framer_refers(struct ram_framer *f, const uint8_t *bytes, uint64_t *entry);
int ram_framer_add_reference(struct ram_framer *f, unsigned int block, uint64_t page,
			     uint64_t entry, struct err *e);
/* Sends the references that are under construction. */
int ram_framer_push_references(struct ram_framer *f, struct err *e);

#endif
