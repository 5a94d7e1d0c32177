/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the frames go that a part of the program makes: to a connection, or to whatever sends them.
 */
#ifndef GODWIT_FRAME_OUT_H
#define GODWIT_FRAME_OUT_H

#include "base/err.h"
#include "net/channel.h"

struct frame_out {
	int (*send)(void *arg, const struct wire_header *h, const void *body, struct err *e);
	void *arg;
};

static inline int frame_out_to_channel(void *ch, const struct wire_header *h, const void *body,
				       struct err *e)
{
	return channel_send(ch, h, body, e);
}

#endif
