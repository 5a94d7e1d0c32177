/* SPDX-License-Identifier: GPL-2.0-only */
/* The receiver's end of the streams: a thread each, which places what comes. */
#ifndef GODWIT_LANES_H
#define GODWIT_LANES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "io/engine.h"
#include "migrate/place.h"

struct lanes;

/* Takes the descriptors over, on failure too. timeout_ms: how long the peer may be silent in the middle of a frame. */
int lanes_start(struct placement *p, const struct engine_ops *engine, unsigned int timeout_ms, const int *fds,
		unsigned int n, struct lanes **out, struct err *e);
/* True from the first failure on. For channel_interrupt(). */
const atomic_bool *lanes_failed(const struct lanes *l);
void lanes_error(struct lanes *l, struct err *e);
/*
 * Waits until every lane has delivered the end of this round. As long as something comes, alive() is called about once a
 * second, to tell the sender, which waits for an answer while all of its buffers drain; may be NULL. Errors: that of the lane that failed first; GW_TIMEOUT
 * when nothing comes any more; GW_BAD_PEER: a lane ended another round, or is not as last as the caller says.
 */
int lanes_wait_round(struct lanes *l, uint32_t round, bool last, int (*alive)(void *arg, struct err *e), void *arg,
		     struct err *e);
/* Nothing is placed any more when this returns. Connections stay open. */
void lanes_stop(struct lanes *l);
/* What was placed so far. */
struct place_count lanes_count(struct lanes *l);
void lanes_free(struct lanes *l);	/* NULL is fine; stops them, too */

#endif
