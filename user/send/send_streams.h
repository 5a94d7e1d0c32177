/* SPDX-License-Identifier: GPL-2.0-only */
/* The sender's streams: a thread and a connection each, which share the work of a round. */
#ifndef GODWIT_SEND_STREAMS_H
#define GODWIT_SEND_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/channel.h"
#include "net/engine.h"
#include "net/pace.h"
#include "net/sock.h"
#include "round/ram_frame.h"
#include "round/round.h"
#include "tls/tls.h"
#include "vmm/vm.h"

struct send_streams;

/**
 * struct send_streams_options
 * @pace: shared by all streams; does not slow down the last round; may be NULL
 * @tls: a session for each connection, which go with them; NULL: all are in the clear
 * @zero_copy: whether sends are zero-copy, see engine.h
 * @compress: how RAM is packed, as codec_wish_word(): it may change at any time; @features: those
 *	that both ends offer
 * @delta: what was sent of each page, also over connections before; NULL: pages go whole
 * @delta_always: --delta on
 * @reuse: what the receiver has in a file, also when it is known later
 * @zeros: which pages were zeros, for the prediction; may be NULL
 * @pack_threads: how many streams may pack at once; 0: one for each CPU
 * @timeout_ms: how long the receiver may accept no byte
 * @idle: called about ten times a second while the caller waits for the streams, to take the
 *	receiver's ABORT and to show progress; while auto waits for the first LOAD, more often, for
 *	a fifth of a second a round at most; NULL: nothing
 */
struct send_streams_options {
	const struct vm *vm;
	const struct engine_ops *engine;
	struct pace *pace;
	struct tls *const *tls;
	enum engine_zero_copy zero_copy;
	const _Atomic uint32_t *compress;
	uint64_t features;
	struct delta *delta;
	bool delta_always;
	struct referring *reuse;
	struct zeros *zeros;
	unsigned int pack_threads;
	unsigned int timeout_ms;
	int (*idle)(void *arg, struct err *e);
	void *arg;
};

/* fds: connections that have joined; the streams take them over, also when this fails. */
int send_streams_start(const struct send_streams_options *o, const int *fds, unsigned int n,
		       struct send_streams **out, struct err *e);
/*
 * All that waits returns 0, or -errno: of the stream that failed first, or of the idle function.
 * After an error call only send_streams_free(): the connections stay open until then, so that the
 * receiver gets the reason from the control connection first.
 */

/* Is a RAM file on a tmpfs that may give it huge pages? */
bool send_streams_read_huge(const struct send_streams *st);
/* From the next round on, all pages get hashes, as with delta_always. */
void send_streams_hash_all(struct send_streams *st);
/* Begins to send all of rd, and then ROUND on each stream. rd stays until send_streams_wait(). */
void send_streams_begin(struct send_streams *st, struct round *rd, uint32_t number);
/**
 * send_streams_wait() - wait until the round, and all posted frames, are with the kernel
 * @count: of the round; may be NULL
 */
int send_streams_wait(struct send_streams *st, struct round_count *count, struct err *e);
/* The same for the round alone: what is posted may wait still. */
int send_streams_wait_round(struct send_streams *st, struct round_count *count, struct err *e);
/* Would that not wait? */
bool send_streams_round_is_over(struct send_streams *st);
/* When the last stream had sent the round that was waited for; CLOCK_MONOTONIC. */
uint64_t send_streams_round_ns(const struct send_streams *st);
/**
 * send_streams_post() - send a frame on some stream, soon
 * In a round too, but never between two parts of another frame. The body is copied. Frames that are
 * posted before a round begins go before the end of that round on their stream.
 * @first: on the first stream, in the order of the calls; else on any, in any order
 * Waits while too much is posted already.
 */
int send_streams_post(struct send_streams *st, const struct wire_header *h, const void *body,
		      bool first, struct err *e);
uint64_t send_streams_sent(const struct send_streams *st);	/* bytes, headers included */
/* From now on little is under way on a link of this rate: link_short_buffer(). */
void send_streams_keep_short(struct send_streams *st, uint64_t rate);
/* What all streams have sent in all rounds so far. A moment later another member may be newer. */
struct round_count send_streams_counts(const struct send_streams *st);
/* The receiver has said LOAD. */
void send_streams_load(struct send_streams *st, unsigned int load);
/* Bytes that the kernel has, and the peer's has not acknowledged. */
uint64_t send_streams_queued(const struct send_streams *st);
/* What TCP has counted of all of them; @segment: of one. */
struct sock_sent send_streams_tcp(const struct send_streams *st);
struct zero_copy_count send_streams_zero_copies(const struct send_streams *st);
void send_streams_free(struct send_streams *st);	/* NULL is fine */

#endif
