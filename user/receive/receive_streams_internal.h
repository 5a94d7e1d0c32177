/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The streams' state, shared by receive_streams.c (the caller's side) and receive_stream.c (a
 * stream's thread).
 *
 * A stream may be ahead of another by some rounds: the sender does not wait for ACKs. What keeps
 * the newer bytes of a page from being placed first is the sender's choice of the stream (wire.h).
 *
 * The first stream that fails sets @stop, and the others end within STOP_SLICE_NS. All connections
 * stay open until receive_streams_free(), so that the sender gets the reason from the control
 * connection first.
 */
#ifndef GODWIT_RECEIVE_STREAMS_INTERNAL_H
#define GODWIT_RECEIVE_STREAMS_INTERNAL_H

#include <pthread.h>

#include "receive/receive_streams.h"

/**
 * struct receive_stream
 * @fd, @tls: the connection; the thread makes a channel of it, which closes it
 * @round: the latest round that the stream has delivered to its end; at first o.base
 * @last: that was the last one
 * @ended: behind it, with post-copy, the stream has brought all that it was to push
 */
struct receive_stream {
	struct receive_streams *all;
	pthread_t thread;
	int fd;
	struct tls *tls;
	bool last, ended;
	uint32_t round;
};

/**
 * struct receive_streams
 * @stop: the threads are to end: one failed, or receive_streams_stop() was called
 * @ram_frames: since the last LOAD; @behind: of these, how many left the next one waiting
 * @frames: served so far: shows the thread that waits for a round that frames still come
 * @running: streams that may still write RAM
 * @held: behind the last round the threads wait until they are released
 * @may_close: the threads may close their connections
 * @started: of @n threads
 */
struct receive_streams {
	struct receive_streams_options o;
	atomic_bool failed, stop;
	pthread_mutex_t lock;	/* protects what follows, and of each stream last, round */
	pthread_cond_t change;
	struct err err;
	uint64_t frames;
	unsigned int ram_frames, behind;
	struct ram_writer_count count;
	unsigned int running;
	bool held, may_close;
	unsigned int n, started;
	struct receive_stream streams[WIRE_STREAMS_MAX];
};

/* The thread of a stream: arg is its struct receive_stream. */
void *receive_stream_main(void *arg);

#endif
