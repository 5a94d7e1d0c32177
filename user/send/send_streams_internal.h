/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The streams' state, shared by send_streams.c (the caller's side) and send_stream.c (a stream's
 * thread).
 *
 * The threads live as long as the migration, and wait between rounds. In a round each thread takes
 * a piece, reads it and sends it, until no piece is left; then it sends ROUND. A slow stream takes
 * fewer pieces than a fast one. Posted frames go before the next piece.
 *
 * The first stream that fails sets @stop. The others see that within STOP_SLICE_NS, wherever they
 * wait, and their failures after that do not count.
 */
#ifndef GODWIT_SEND_STREAMS_INTERNAL_H
#define GODWIT_SEND_STREAMS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/outbox.h"
#include "send/send_streams.h"

/*
 * How often, at the end of the last round, a stream without work looks whether an ACK has made free
 * what waits for a slower one.
 */
#define LAST_NAP_NS	500000ull

/**
 * struct send_stream
 * @index: from 0 on
 * @fd, @tls: the connection, until the thread has made a channel of it
 * @socket: the same, for as long as the streams live
 * @sent: @zero_copies: @copied: the channel's counts, for other threads while this one works
 * @counts: the members of a struct round_count, over all rounds so far
 */
struct send_stream {
	struct send_streams *all;
	pthread_t thread;
	unsigned int index;
	int fd, socket;
	struct tls *tls;
	_Atomic uint64_t sent, zero_copies, copied;
	_Atomic uint64_t counts[ROUND_COUNTS];
	struct ram_packing packing;
};

/**
 * struct send_streams
 * @stop: every wait ends: a stream has failed, the caller has (o.idle), or
 *	send_streams_free() was called
 * @round: @number: the round under way
 * @nap_ns: how often a stream without room in its window looks for some; 0: they do not care
 * @rounds: how many rounds have begun: a thread that has seen fewer begins the next one
 * @busy: threads that have not ended the round
 * @delta_always: in this round all pages get hashes
 * @began_ns: when the round did, @round_ns: when the last of them ended it; CLOCK_MONOTONIC
 * @next_idle_ns: when o.idle is due
 * @quit: the threads are to end
 * @err: the first failure
 * @load: what the receiver has said of its load, see RAM_LOAD_BITS
 * @slots: for the streams that pack
 * @base: of each block, its mapping or NULL, see ram_frame.h
 */
struct send_streams {
	struct send_streams_options o;
	atomic_bool stop;
	pthread_mutex_t lock;	/* protects what follows up to err */
	pthread_cond_t work, done;
	struct outbox outbox;
	struct round *round;
	uint32_t number;
	unsigned int rounds, busy;
	uint64_t began_ns, round_ns, next_idle_ns;
	_Atomic uint64_t nap_ns;
	bool quit, delta_always;
	struct round_count count;
	struct err err;
	_Atomic uint64_t load;
	struct thread_slots slots;
	uint8_t *base[WIRE_BLOCKS_MAX];
	unsigned int n;
	struct send_stream s[WIRE_STREAMS_MAX];
};

/* What the stream has sent so far, and shown. */
struct round_count send_stream_counts(const struct send_stream *s);
/* The thread of a stream: arg is its struct send_stream. */
void *send_stream_main(void *arg);

#endif
