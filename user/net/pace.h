/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limit to what all streams together may send in a second. Pure: the caller reads the clock and
 * waits.
 */
#ifndef GODWIT_PACE_H
#define GODWIT_PACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

/**
 * struct pace - one for all streams
 * @rate: bytes per second, 0: no limit; may be changed at any time
 * @free_ns: when all that was allowed so far has been sent, at @rate
 */
struct pace {
	_Atomic uint64_t rate;
	pthread_mutex_t lock;	/* protects free_ns */
	uint64_t free_ns;
};

void pace_init(struct pace *p, uint64_t rate);
void pace_set(struct pace *p, uint64_t rate);
/* When the bytes may be sent, by the clock of now_ns: at now_ns, or later. Any thread. */
uint64_t pace_take(struct pace *p, uint64_t bytes, uint64_t now_ns);
/* The most bytes that one send should have, a multiple of the page size; UINT32_MAX: no limit. */
uint32_t pace_burst(const struct pace *p);

#endif
