/* SPDX-License-Identifier: GPL-2.0-only */
/* A channel's state, shared by channel.c (sending) and channel_recv.c. */
#ifndef GODWIT_CHANNEL_INTERNAL_H
#define GODWIT_CHANNEL_INTERNAL_H

#include <liburing.h>
#include <sys/socket.h>

#include "io/channel.h"

enum { TAG_SEND = 1, TAG_RECV = 2 };

struct slot {
	struct ram_frame frame;
	uint8_t head[WIRE_HEADER + WIRE_EXTENTS_MAX * WIRE_EXTENT];
	struct iovec iov[WIRE_EXTENTS_MAX + 1];
	struct msghdr msg;
	bool busy;
};

struct channel {
	int fd;
	uint64_t timeout_ns;
	struct io_uring ring;
	struct slot slots[CHANNEL_FRAMES];
	struct slot *queue[CHANNEL_FRAMES];	/* the first one is under way */
	unsigned int queued;
	struct msghdr recv_msg;
	bool sending, receiving, broken;
	int recv_result;
	uint64_t sent;
};

/* Takes the completions that are there. */
int channel_reap(struct channel *ch, struct err *e);
/* Submits, waits for one completion at least, takes all that are there. deadline 0: none. */
int channel_wait(struct channel *ch, uint64_t deadline, struct err *e);
/* The deadline of a wait that begins now. */
uint64_t channel_patience(const struct channel *ch);
/* Drops len bytes from the front of a vector. */
void channel_iov_advance(struct msghdr *msg, size_t len);
/* The connection broke with this errno: sets *e. */
int channel_lost(struct channel *ch, int err, struct err *e);

#endif
