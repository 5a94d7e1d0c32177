/* SPDX-License-Identifier: GPL-2.0-only */
/* OWED frames (wire/owed.h) of a struct owed, and back. */
#ifndef GODWIT_OWED_FRAMES_H
#define GODWIT_OWED_FRAMES_H

#include "peer/frame_out.h"
#include "postcopy/owed.h"

/* Names what is owed, a bit a page; *pages: how many that are. Errors: those of to->send(). */
int owed_frames_send(const struct owed *o, const struct frame_out *to, uint64_t *pages,
		     struct err *e);
/*
 * The rest of an OWED frame, whose header has come. Any thread; no page may come twice.
 * Errors: GW_BAD_PEER, the channel's.
 */
int owed_frame_receive(struct owed *o, struct channel *ch, const struct wire_header *h,
		       struct err *e);

#endif
