/* SPDX-License-Identifier: GPL-2.0-only */
/* A channel's state, shared by the channel*.c. */
#ifndef GODWIT_CHANNEL_INTERNAL_H
#define GODWIT_CHANNEL_INTERNAL_H

#include <sys/socket.h>

#include "net/channel.h"

/*
 * How many frames have buffers: those that are sent, and those that zero-copy sends may still be
 * read from.
 */
#define CHANNEL_SLOTS	ENGINE_BUFFERS
#define HEAD_BYTES	(WIRE_HEADER + WIRE_EXTENTS_MAX * WIRE_EXTENT + WIRE_PACKED_HEAD + \
			 FRAME_PARTS)
/* Page-aligned behind the head. Not of malloc(): see engine.h, close. */
#define HEAD_MAPPED	((HEAD_BYTES + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES)
#define MAPPED_BYTES	(HEAD_MAPPED + 2 * FRAME_BYTES)

/**
 * struct slot
 * @head: header, extents and what follows them; a mapping of its own, with the frame's buffers
 *	behind it
 */
struct slot {
	struct ram_frame frame;
	uint8_t *head;
	struct iovec iov[FRAME_PAGES + 1];
	struct msghdr msg;
	bool busy;
};

/**
 * struct channel
 * @tls: NULL: in the clear
 * @most: bytes that it may send
 * @queue: frames to be sent; the first one is under way if @sending
 * @slots: what is neither busy nor held by the engine is free
 * @sending: the engine has been given one, and its result was not taken yet
 * @broken: nothing more can be said to the peer
 * @aborted: it has said ABORT, with @abort_status
 * @until_ns: no wait goes on longer, whatever comes; 0: no such limit
 * @take: serves frames that come unasked; may be NULL
 * @due: bytes of the last frame's body that have not been received
 * @keeps: see channel_keep_unread()
 * @torn: a wait ended in the middle of a header: what comes next makes no sense
 */
struct channel {
	int fd;
	struct engine *engine;
	struct tls *tls;
	uint64_t timeout_ns, until_ns, most;
	const atomic_bool *interrupt;
	int (*take)(void *arg, const struct wire_header *h, struct err *e);
	void *take_arg;
	struct slot slots[CHANNEL_SLOTS];
	struct slot *queue[CHANNEL_FRAMES - 1 + CHANNEL_OPEN];
	unsigned int queued;
	struct msghdr recv_msg;
	uint32_t due, abort_status;
	bool sending, broken, aborted, keeps, torn;
	uint64_t sent;
};

/* Until something is done, or ns have passed. */
int channel_engine_wait(struct channel *ch, uint64_t ns, struct err *e);
/* Starts the first of the queue, where none is under way. */
void channel_start_send(struct channel *ch);
/* Takes the result of a send that has ended, and starts the next. */
int channel_reap(struct channel *ch, struct err *e);
/*
 * Waits until a send or a receive has ended, or buffers are free again; takes a send's result.
 * deadline 0: none.
 */
int channel_wait(struct channel *ch, uint64_t deadline, struct err *e);
/* Is there a reason to wait no more? -ECANCELED and -ETIMEDOUT (@until_ns) leave *e alone. */
int channel_given_up(struct channel *ch, struct err *e);
/* The peer has said nothing for as long as it may, or too little: sets *e. */
int channel_silent(struct channel *ch, struct err *e);
/* The deadline of a wait that begins now. */
uint64_t channel_patience(const struct channel *ch);
/* Drops len bytes from the front of a vector. */
void channel_iov_advance(struct msghdr *msg, size_t len);
/* The connection broke with this errno: sets *e. */
int channel_lost(struct channel *ch, int err, struct err *e);

#endif
