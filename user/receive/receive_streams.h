/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The receiver's end of the streams: one thread a stream, which writes its RAM frames to guest RAM,
 * and passes on the frames that come between and behind them.
 */
#ifndef GODWIT_RECEIVE_STREAMS_H
#define GODWIT_RECEIVE_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/engine.h"
#include "place/ram_write.h"
#include "tls/tls.h"

struct receive_streams;

/**
 * struct receive_streams_options
 * @base: the number before that of the first round that comes on the streams
 * @tls: a session for each connection, which go with them; NULL: all are in the clear
 * @timeout_ms: how long the sender may be silent in the middle of a frame
 * @frame: serves a frame that is neither RAM nor ROUND, on the stream's thread; placed: the last
 *	round is in place on all streams, and RAM changes no more. NULL: no such frame may come
 */
struct receive_streams_options {
	struct ram_writer *writer;
	const struct engine_ops *engine;
	struct tls *const *tls;
	uint32_t base;
	unsigned int timeout_ms;
	int (*frame)(void *arg, struct channel *ch, const struct wire_header *h, bool placed,
		     struct err *e);
	void *arg;
};

/*
 * Starts one thread for each of n connections. fds: the streams take them over, also when this
 * fails.
 */
int receive_streams_start(const struct receive_streams_options *o, const int *fds, unsigned int n,
			  struct receive_streams **out, struct err *e);
/* True from the first failure on. For channel_interrupt(). */
const atomic_bool *receive_streams_failed(const struct receive_streams *all);
void receive_streams_error(struct receive_streams *all, struct err *e);
/**
 * struct receive_wait - how to wait for what comes on the streams
 * @alive: called about once a second as long as frames come, as the sender waits for an answer
 *	while all of its buffers drain; may be NULL
 * @always: call it if none come as well: the sender must not give up before this end does
 */
struct receive_wait {
	int (*alive)(void *arg, struct err *e);
	void *arg;
	bool always;
};

/**
 * receive_streams_wait_round() - wait until every stream has delivered the end of this round
 * @last: this is the last round
 * Errors: that of the stream that failed first; GW_TIMEOUT when no frame comes any more;
 * GW_BAD_PEER: a stream disagrees with @last.
 */
int receive_streams_wait_round(struct receive_streams *all, uint32_t round, bool last,
			       const struct receive_wait *w, struct err *e);
/*
 * Waits until there() returns 1; it is called after each frame that options.frame has served, and
 * may fail. Errors: as above.
 */
int receive_streams_wait(struct receive_streams *all, int (*there)(void *arg, struct err *e),
			 void *arg, const struct receive_wait *w, struct err *e);
/*
 * With post-copy: the streams wait behind the last round, and read on when they are released: by
 * then the writer knows of its lazy RAM, and RAM may come again. ROUND then ends a stream's share.
 */
void receive_streams_hold(struct receive_streams *all);
void receive_streams_release(struct receive_streams *all);
/* The streams write no RAM any more when this returns. Their connections stay open. */
void receive_streams_stop(struct receive_streams *all);
/*
 * The same when all has come that the sender had to send: the guest stands still, so streams that
 * wait for more do not wait until the end of their time slice.
 */
void receive_streams_finish(struct receive_streams *all);
/* Pages written so far. */
struct ram_writer_count receive_streams_count(struct receive_streams *all);
/* For LOAD, and of the time since it was called last. */
unsigned int receive_streams_load(struct receive_streams *all);
/* Also stops the streams, if they run. NULL is fine. */
void receive_streams_free(struct receive_streams *all);

#endif
