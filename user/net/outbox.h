/* SPDX-License-Identifier: GPL-2.0-only */
/* Frames that wait for a stream to send them. Not locked: the streams' lock protects it. */
#ifndef GODWIT_OUTBOX_H
#define GODWIT_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

/*
 * With more bytes waiting the caller waits. In the blackout they would be in the way of all that
 * follows, so there are no more than keep the streams busy.
 */
#define OUTBOX_BYTES	(256u << 10)

struct outbox_frame {
	struct outbox_frame *next;
	struct wire_header h;
	uint8_t body[];
};

struct outbox_list {
	struct outbox_frame *head, *last;
};

/**
 * struct outbox - zeros: empty
 * @first: for the first stream; @any: for any
 * @bytes: of the bodies of all frames that wait or are being sent
 * @frames: how many these are
 */
struct outbox {
	struct outbox_list first, any;
	uint64_t bytes;
	unsigned int frames;
};

/* Copies the body. -ENOMEM */
int outbox_add(struct outbox *o, const struct wire_header *h, const void *body, bool first);
/* Is there a frame for this stream? */
bool outbox_has(const struct outbox *o, unsigned int stream);
/*
 * The next frame for this stream, which sends it and calls outbox_sent(). any: also of those that
 * another stream may send. NULL: there is none.
 */
struct outbox_frame *outbox_take(struct outbox *o, unsigned int stream, bool any);
/* Frees a frame that was taken. */
void outbox_sent(struct outbox *o, struct outbox_frame *f);
void outbox_free(struct outbox *o);	/* what waits */

#endif
