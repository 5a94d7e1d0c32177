/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's migration stream, put together from DEVICE frames that come on several connections. What
 * the guest's stop does not wait for (QEMU's private RAM, in migrate mode) goes to the destination
 * QEMU at once, in order; the device state is kept until the commit point. Any thread.
 */
#ifndef GODWIT_DEVICE_STATE_H
#define GODWIT_DEVICE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/channel.h"

#define DEVICE_STATE_MAX	(1u << 30)	/* bytes; real ones: some 100 KiB, 8 KiB a vCPU */
#define DEVICE_STATE_PARTS	1024u		/* that may stand alone at a time */

/* Bytes [from, to) of the stream. */
struct device_part {
	uint64_t from, to;
};

/**
 * struct device_state
 * @memfd: what has come, each byte at its place; -1: nothing yet
 * @stop: feed QEMU no more
 * @feeding: a thread does
 * @err: why QEMU got no more
 * @held: the first byte that is kept for the commit point; UINT64_MAX: none has come
 * @fed: bytes that QEMU has got
 * @n, @parts: what has come, in order; parts that touch are one
 */
struct device_state {
	atomic_bool stop;
	pthread_mutex_t lock;	/* protects what follows */
	bool feeding;
	struct err err;
	int memfd;
	uint64_t held, fed;
	unsigned int n;
	struct device_part parts[DEVICE_STATE_PARTS];
};

void device_state_init(struct device_state *d);
void device_state_free(struct device_state *d);
/* Threads that feed QEMU end within STOP_SLICE_NS. */
void device_state_stop(struct device_state *d);
/**
 * device_state_frame() - serve a DEVICE frame whose header was read
 * @qemu: the destination QEMU's stream, non-blocking
 * @timeout_ms: how long QEMU may not read
 * Errors: GW_BAD_PEER: bytes come twice, or are out of all proportion. GW_INTERNAL: no memory.
 * GW_TIMEOUT, GW_DEVICE_STATE: QEMU does not take its private RAM. Those of the channel.
 */
int device_state_frame(struct device_state *d, struct channel *ch, const struct wire_header *h,
		       int qemu, unsigned int timeout_ms, struct err *e);
/* Has any of it come? */
bool device_state_begun(struct device_state *d);
/*
 * Is the stream, of this many bytes, all there, QEMU's part with QEMU, and are its last bytes kept?
 * GW_BAD_PEER: there is more of it, or nothing to keep. Return: 1, 0, -errno.
 */
int device_state_complete(struct device_state *d, uint64_t bytes, struct err *e);

#endif
