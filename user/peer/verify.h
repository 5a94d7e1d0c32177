/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * --verify: the proof. With the VM stopped and the last round on its way, the sender sends a hash
 * of every allocated page (XXH3, 64 bits) and names the ranges that have none; the receiver
 * compares both with the destination's RAM before it loads the device state. Both read by pread():
 * a hole stays a hole at both ends.
 */
#ifndef GODWIT_VERIFY_H
#define GODWIT_VERIFY_H

#include <pthread.h>
#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"
#include "net/channel.h"
#include "peer/frame_out.h"

#define VERIFY_LISTED	64	/* pages that are named */

/* Sends the hashes of all RAM. *frames: in so many VERIFY frames. */
int verify_send(const struct vm *vm, struct dirty_source *s, const struct frame_out *to,
		uint32_t *frames, struct err *e);

/**
 * struct verify_result - the receiver's
 * @frames: VERIFY frames that it has compared
 * @differ: pages that differ, the first @nr_listed of them in @listed
 */
struct verify_result {
	pthread_mutex_t lock;	/* protects what follows */
	uint32_t frames;
	uint64_t differ;
	struct wire_extent listed[VERIFY_LISTED];
	unsigned int nr_listed;
};

/* Serves one VERIFY frame whose header h was read. Any thread. */
int verify_frame(const struct vm *vm, struct channel *ch, const struct wire_header *h,
		 const uint64_t *block_pages, struct verify_result *v, struct err *e);
/*
 * Have this many frames been compared? GW_VERIFY names the pages that differ; GW_BAD_PEER: there
 * were more frames. Return: 1, 0: not yet, -errno.
 */
int verify_complete(const struct vm *vm, struct verify_result *v, uint32_t frames, struct err *e);

#endif
