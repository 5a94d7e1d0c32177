// SPDX-License-Identifier: GPL-2.0-only
/* The thread of a stream. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/sock.h"
#include "plan/link.h"
#include "send/send_streams_internal.h"

#define NAP_NS		10000000ull	/* as LAST_NAP_NS, in other rounds */
#define UNSENT		(16u << 10)	/* on a long link; room for SPREAD_BYTES in a frame */

/* Shows the channel's counts to other threads. */
static void send_stream_publish(struct send_stream *s, const struct channel *ch)
{
	struct zero_copy_count zc = channel_zero_copies(ch);

	atomic_store_explicit(&s->sent, channel_sent(ch), memory_order_relaxed);
	atomic_store_explicit(&s->zero_copies, zc.sends, memory_order_relaxed);
	atomic_store_explicit(&s->copied, zc.copied, memory_order_relaxed);
}

/* before: what the stream had sent when the round began. */
static void send_stream_publish_pages(struct send_stream *s, const struct round_count *before,
				      const struct round_count *count)
{
	struct round_count sum = *before;
	uint64_t counts[ROUND_COUNTS];

	round_count_add(&sum, count);
	memcpy(counts, &sum, sizeof(counts));
	for (unsigned int i = 0; i < ROUND_COUNTS; i++)
		atomic_store_explicit(&s->counts[i], counts[i], memory_order_relaxed);
}

/*
 * On a long link a stream takes no more than leaves at once. The rest is for streams whose windows
 * have room, or for the one that gets the first ACK. A stream with nothing under way has room for
 * so many bytes at least, so it never is for none.
 */
static uint64_t send_stream_room(const struct send_stream *s, uint64_t least)
{
	return atomic_load(&s->all->nap_ns) ? sock_room(s->socket, least) : UINT64_MAX;
}

static uint64_t send_stream_pages(const struct send_stream *s)
{
	const uint64_t page = PAGE_BYTES + WIRE_EXTENT, least = WIRE_HEADER + page;
	uint64_t room = send_stream_room(s, least);

	return room < least ? 0 : (room - WIRE_HEADER) / page;
}

/* For a posted frame, which may be longer: then the rest of it waits. */
static bool send_stream_takes_any(const struct send_stream *s)
{
	const uint64_t least = WIRE_HEADER + WIRE_PLACE + SPREAD_BYTES;

	return send_stream_room(s, least) >= least;
}

/* Sends what is posted for this stream, or for any and this one has room for it. */
static int send_stream_posted(struct send_stream *s, struct channel *ch, struct err *e)
{
	struct send_streams *st = s->all;
	struct outbox_frame *f;
	int r = 0;

	while (!r) {
		const bool any = send_stream_takes_any(s);

		pthread_mutex_lock(&st->lock);
		f = atomic_load(&st->stop) ? NULL : outbox_take(&st->outbox, s->index, any);
		pthread_mutex_unlock(&st->lock);
		if (!f)
			break;
		r = channel_send(ch, &f->h, f->body, e);
		send_stream_publish(s, ch);
		pthread_mutex_lock(&st->lock);
		outbox_sent(&st->outbox, f);
		pthread_cond_signal(&st->done);
		pthread_mutex_unlock(&st->lock);
	}
	return r;
}

/* spread: TCP must have all of it before it is asked for room again. */
static int send_stream_piece(struct ram_framer *framer, const struct round_piece *p, bool spread,
			     struct err *e)
{
	int r = ram_framer_send(framer, p, e);

	if (!r && spread)
		r = ram_framer_flush(framer, e);
	return r || !spread ? r : channel_flush(framer->ch, e);
}

/* This thread's share of the round. */
static int send_stream_send(struct send_stream *s, struct channel *ch, struct round_count *count,
			    struct err *e)
{
	struct send_streams *st = s->all;
	const bool last = st->round->kind == ROUND_LAST;
	const uint64_t looks_ns = atomic_load(&st->nap_ns);
	const uint64_t nap_ns = looks_ns ? looks_ns : last ? LAST_NAP_NS : NAP_NS;
	const struct wire_header end = {
		.type = WIRE_ROUND, .flags = last ? WIRE_ROUND_LAST : 0, .arg = st->number,
	};
	struct ram_framer framer = {
		.vm = st->o.vm, .base = st->base, .ch = ch,
		.pace = last ? NULL : st->o.pace, .packing = &s->packing,
		/* The receiver has emptied what is pushed: over that no part of a page is right. */
		.delta = st->round->kind == ROUND_PUSH ? NULL : st->o.delta,
		.delta_always = st->delta_always, .last = last,
		/* Of what is owed the receiver may have no page refused. */
		.reuse = st->round->kind == ROUND_PRECOPY ? st->o.reuse : NULL,
		/* Of a stripe that streams may share nothing is noted, and nothing follows. */
		.zeros = round_guest_runs(st->round) ? st->o.zeros : NULL,
	};
	const struct round_count before = send_stream_counts(s);
	struct round_piece p;
	int r;

	/* In post-copy the control connection shows whether the receiver lives. */
	if (st->round->kind == ROUND_PUSH)
		channel_set_timeout(ch, link_stream_patience_ms(st->o.timeout_ms));
	/* Nothing holds the last round back. */
	if (last)
		s->packing.paced_ns = 0;
	s->packing.keeps = st->round->spread;
	if (st->round->spread)
		sock_set_unsent(channel_fd(ch), UNSENT);
	while (!(r = send_stream_posted(s, ch, e))) {
		r = round_take(st->round, s->index, send_stream_pages(s), &p, e);
		if (r < 0 || (!r && !round_waits(st->round)))
			break;
		if (atomic_load(&st->stop))
			r = -ECANCELED;
		else if (r == 1)
			r = send_stream_piece(&framer, &p, st->round->spread, e);
		else if (!(r = ram_framer_flush(&framer, e)))
			r = channel_pause(ch, now_ns() + nap_ns, e);
		send_stream_publish(s, ch);
		send_stream_publish_pages(s, &before, &framer.count);
		if (r)
			break;
	}
	if (!r)
		r = ram_framer_flush(&framer, e);
	if (!r)
		r = channel_send(ch, &end, NULL, e);
	send_stream_publish(s, ch);
	send_stream_publish_pages(s, &before, &framer.count);
	*count = framer.count;
	return r;
}

/* Under the lock. A stream that ends because @stop is set leaves *e empty. */
static void send_streams_fail(struct send_streams *st, const struct err *e)
{
	if (!st->err.exit)
		st->err = *e;
	atomic_store(&st->stop, true);
}

enum work { WORK_NONE, WORK_POSTED, WORK_ROUND };

/* Waits until there is something to send. WORK_NONE: there will be nothing. */
static enum work send_stream_wait_work(struct send_stream *s, unsigned int *seen)
{
	struct send_streams *st = s->all;
	enum work work;

	pthread_mutex_lock(&st->lock);
	while (!st->quit && st->rounds == *seen &&
	       (atomic_load(&st->stop) || !outbox_has(&st->outbox, s->index)))
		pthread_cond_wait(&st->work, &st->lock);
	work = st->quit ? WORK_NONE : st->rounds == *seen ? WORK_POSTED : WORK_ROUND;
	*seen = st->rounds;
	pthread_mutex_unlock(&st->lock);
	return work;
}

/* Between rounds. Where nothing was sent, for want of room, the next look comes later. */
static int send_stream_between(struct send_stream *s, struct channel *ch, struct err *e)
{
	const uint64_t before = channel_sent(ch), nap_ns = atomic_load(&s->all->nap_ns);
	int r = send_stream_posted(s, ch, e);

	if (r || !nap_ns || channel_sent(ch) != before)
		return r;
	return channel_pause(ch, now_ns() + nap_ns, e);
}

static void send_stream_end_work(struct send_streams *st, enum work work,
				 const struct round_count *count, int r, const struct err *e)
{
	pthread_mutex_lock(&st->lock);
	round_count_add(&st->count, count);
	if (r)
		send_streams_fail(st, e);
	if (work == WORK_ROUND && !--st->busy)
		st->round_ns = now_ns();
	pthread_cond_signal(&st->done);
	pthread_mutex_unlock(&st->lock);
}

void *send_stream_main(void *arg)
{
	struct send_stream *s = arg;
	struct send_streams *st = s->all;
	struct channel *ch = NULL;
	unsigned int seen = 0;
	enum work work;

	while ((work = send_stream_wait_work(s, &seen)) != WORK_NONE) {
		struct round_count count = { .data_pages = 0 };
		struct err e = { 0 };
		int r = 0;

		/* Here, as a ring belongs to the thread that made it. */
		if (!ch) {
			r = channel_new_tls(s->fd, s->tls, st->o.engine, st->o.timeout_ms, &ch,
					    &e);
			s->fd = -1;
			s->tls = NULL;
			if (!r)
				channel_zero_copy(ch, st->o.zero_copy);
		}
		if (!r) {
			channel_interrupt(ch, &st->stop);
			r = work == WORK_ROUND ? send_stream_send(s, ch, &count, &e) :
						 send_stream_between(s, ch, &e);
		}
		send_stream_end_work(st, work, &count, r, &e);
	}
	channel_free(ch);
	ram_packing_free(&s->packing);
	return NULL;
}
