// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads live as long as the migration, and wait between rounds. In a round each thread takes
 * a piece, reads it and sends it, until no piece is left; then it sends ROUND. A slow stream takes
 * fewer pieces than a fast one. Posted frames go before the next piece.
 *
 * The first stream that fails sets @stop. The others see that within STOP_SLICE_NS, wherever they
 * wait, and their failures after that do not count.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "net/sock.h"
#include "ram/thp.h"
#include "send/outbox.h"
#include "send/send_streams.h"

/*
 * How often a stream without work looks whether an ACK has made free what waits for a slower one.
 * The end of the last round must not wait for that.
 */
#define NAP_NS		10000000ull
#define LAST_NAP_NS	500000ull

/**
 * struct send_stream
 * @index: from 0 on
 * @fd: the connection, until the thread has made a channel of it
 * @socket: the same, for as long as the streams live
 * @sent: @zero_copies: @copied: the channel's counts, for other threads while this one works
 */
struct send_stream {
	struct send_streams *all;
	pthread_t thread;
	unsigned int index;
	int fd, socket;
	_Atomic uint64_t sent, zero_copies, copied;
};

/**
 * struct send_streams
 * @stop: every wait ends: a stream has failed, the caller has (o.idle), or
 *	send_streams_free() was called
 * @round: @number: the round under way
 * @rounds: how many rounds have begun: a thread that has seen fewer begins the next one
 * @busy: threads that have not ended the round
 * @round_ns: when the last of them did; CLOCK_MONOTONIC
 * @next_idle_ns: when o.idle is due
 * @quit: the threads are to end
 * @err: the first failure
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
	uint64_t round_ns, next_idle_ns;
	bool quit;
	struct round_count count;
	struct err err;
	uint8_t *base[WIRE_BLOCKS_MAX];
	unsigned int n;
	struct send_stream s[WIRE_STREAMS_MAX];
};

/* Shows the channel's counts to other threads. */
static void send_stream_publish(struct send_stream *s, const struct channel *ch)
{
	struct zero_copy_count zc = channel_zero_copies(ch);

	atomic_store_explicit(&s->sent, channel_sent(ch), memory_order_relaxed);
	atomic_store_explicit(&s->zero_copies, zc.sends, memory_order_relaxed);
	atomic_store_explicit(&s->copied, zc.copied, memory_order_relaxed);
}

/* Sends what is posted for this stream. */
static int send_stream_posted(struct send_stream *s, struct channel *ch, struct err *e)
{
	struct send_streams *st = s->all;
	struct outbox_frame *f;
	int r = 0;

	pthread_mutex_lock(&st->lock);
	while (!r && !atomic_load(&st->stop) && (f = outbox_take(&st->outbox, s->index))) {
		pthread_mutex_unlock(&st->lock);
		r = channel_send(ch, &f->h, f->body, e);
		send_stream_publish(s, ch);
		pthread_mutex_lock(&st->lock);
		outbox_sent(&st->outbox, f);
		pthread_cond_signal(&st->done);
	}
	pthread_mutex_unlock(&st->lock);
	return r;
}

#define SPREAD_UNSENT	(16u << 10)

/* spread: the window of this stream has room for all of it then, or nearly. */
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
	const struct wire_header end = {
		.type = WIRE_ROUND, .flags = last ? WIRE_ROUND_LAST : 0, .arg = st->number,
	};
	struct ram_framer framer = {
		.vm = st->o.vm, .base = st->base, .ch = ch,
		.pace = last ? NULL : st->o.pace,
	};
	struct round_piece p;
	int r;

	if (st->round->spread)
		sock_set_unsent(channel_fd(ch), SPREAD_UNSENT);
	while (!(r = send_stream_posted(s, ch, e))) {
		r = round_take(st->round, s->index, &p, e);
		if (r < 0 || (!r && !round_waits(st->round)))
			break;
		if (atomic_load(&st->stop))
			r = -ECANCELED;
		else if (r == 1)
			r = send_stream_piece(&framer, &p, st->round->spread, e);
		else if (!(r = ram_framer_flush(&framer, e)))
			r = channel_pause(ch, now_ns() + (last ? LAST_NAP_NS : NAP_NS), e);
		send_stream_publish(s, ch);
		if (r)
			break;
	}
	if (!r)
		r = ram_framer_flush(&framer, e);
	if (!r)
		r = channel_send(ch, &end, NULL, e);
	send_stream_publish(s, ch);
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

static void send_stream_end_work(struct send_streams *st, enum work work,
				 const struct round_count *count, int r, const struct err *e)
{
	pthread_mutex_lock(&st->lock);
	st->count.data_pages += count->data_pages;
	st->count.zero_pages += count->zero_pages;
	if (r)
		send_streams_fail(st, e);
	if (work == WORK_ROUND && !--st->busy)
		st->round_ns = now_ns();
	pthread_cond_signal(&st->done);
	pthread_mutex_unlock(&st->lock);
}

static void *send_stream_main(void *arg)
{
	struct send_stream *s = arg;
	struct send_streams *st = s->all;
	struct channel *ch = NULL;
	unsigned int seen = 0;
	enum work work;

	while ((work = send_stream_wait_work(s, &seen)) != WORK_NONE) {
		struct round_count count = { 0, 0 };
		struct err e = { 0 };
		int r = 0;

		/* Here, as a ring belongs to the thread that made it. */
		if (!ch) {
			r = channel_new(s->fd, st->o.engine, st->o.timeout_ms, &ch, &e);
			s->fd = -1;
			if (!r)
				channel_zero_copy(ch, st->o.zero_copy);
		}
		if (!r) {
			channel_interrupt(ch, &st->stop);
			r = work == WORK_ROUND ? send_stream_send(s, ch, &count, &e) :
						 send_stream_posted(s, ch, &e);
		}
		send_stream_end_work(st, work, &count, r, &e);
	}
	channel_free(ch);
	return NULL;
}

static struct send_streams *send_streams_new(const struct send_streams_options *o)
{
	struct send_streams *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->o = *o;
	atomic_init(&st->stop, false);
	pthread_mutex_init(&st->lock, NULL);
	pthread_cond_init(&st->work, NULL);
	thread_cond_init(&st->done);
	for (unsigned int i = 0; i < o->vm->nblocks; i++)
		st->base[i] = thp_map(&o->vm->blocks[i], PROT_READ);
	return st;
}

int send_streams_start(const struct send_streams_options *o, const int *fds, unsigned int n,
		       struct send_streams **out, struct err *e)
{
	struct send_streams *st = send_streams_new(o);
	int r = st ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < n; i++) {
		if (!r) {
			st->s[i].all = st;
			st->s[i].index = i;
			st->s[i].fd = st->s[i].socket = fds[i];
			r = thread_start(&st->s[i].thread, send_stream_main, &st->s[i]);
		}
		if (r)
			close(fds[i]);
		else
			st->n++;
	}
	if (r) {
		send_streams_free(st);
		return err_set(e, GW_INTERNAL, -r, "cannot start %u streams: %s; use fewer --streams",
			       n, strerror(-r));
	}
	*out = st;
	return 0;
}

/* Waits until there() or a failure. Called with the lock held. */
static int send_streams_wait_for(struct send_streams *st,
				 bool (*there)(const struct send_streams *st), struct err *e)
{
	bool done;
	int r = 0;

	/* By the clock: a caller that never has to wait here must listen, too. */
	while (!(done = there(st)) || (st->o.idle && !r && now_ns() > st->next_idle_ns)) {
		if (!done)
			thread_wait(&st->done, &st->lock);
		if (!st->o.idle || r || now_ns() <= st->next_idle_ns)
			continue;
		pthread_mutex_unlock(&st->lock);
		r = st->o.idle(st->o.arg, e);
		if (r)
			atomic_store(&st->stop, true);
		pthread_mutex_lock(&st->lock);
		st->next_idle_ns = now_ns() + STOP_SLICE_NS;
	}
	if (!r && st->err.exit) {
		*e = st->err;
		r = -EIO;
	}
	return r;
}

/*
 * All threads have ended the round, and nothing that is posted waits, unless it never will leave.
 */
static bool send_streams_are_done(const struct send_streams *st)
{
	return !st->busy && (!st->outbox.frames || atomic_load(&st->stop));
}

static bool send_streams_have_room(const struct send_streams *st)
{
	return st->outbox.bytes < OUTBOX_BYTES || atomic_load(&st->stop);
}

void send_streams_begin(struct send_streams *st, struct round *rd, uint32_t number)
{
	pthread_mutex_lock(&st->lock);
	st->round = rd;
	st->number = number;
	st->busy = st->n;
	st->count = (struct round_count) { 0, 0 };
	st->rounds++;
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
}

int send_streams_wait(struct send_streams *st, struct round_count *count,
		      struct err *e)
{
	int r;

	pthread_mutex_lock(&st->lock);
	r = send_streams_wait_for(st, send_streams_are_done, e);
	if (count)
		*count = st->count;
	pthread_mutex_unlock(&st->lock);
	return r;
}

int send_streams_post(struct send_streams *st, const struct wire_header *h, const void *body,
		      bool first, struct err *e)
{
	int r;

	pthread_mutex_lock(&st->lock);
	r = send_streams_wait_for(st, send_streams_have_room, e);
	if (!r && outbox_add(&st->outbox, h, body, first))
		r = err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
	return r;
}

uint64_t send_streams_round_ns(const struct send_streams *st)
{
	return st->round_ns;
}

uint64_t send_streams_sent(const struct send_streams *st)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; st && i < st->n; i++)
		sum += atomic_load_explicit(&st->s[i].sent, memory_order_relaxed);
	return sum;
}

uint64_t send_streams_queued(const struct send_streams *st)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; st && i < st->n; i++)
		sum += sock_queued(st->s[i].socket);
	return sum;
}

struct zero_copy_count send_streams_zero_copies(const struct send_streams *st)
{
	struct zero_copy_count sum = { 0, 0 };

	for (unsigned int i = 0; st && i < st->n; i++) {
		sum.sends += atomic_load_explicit(&st->s[i].zero_copies, memory_order_relaxed);
		sum.copied += atomic_load_explicit(&st->s[i].copied, memory_order_relaxed);
	}
	return sum;
}

void send_streams_free(struct send_streams *st)
{
	if (!st)
		return;
	atomic_store(&st->stop, true);
	pthread_mutex_lock(&st->lock);
	st->quit = true;
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
	for (unsigned int i = 0; i < st->n; i++) {
		pthread_join(st->s[i].thread, NULL);
		if (st->s[i].fd >= 0)
			close(st->s[i].fd);
	}
	/* The channels are closed: what TCP still reads may be unmapped (engine.h). */
	for (unsigned int i = 0; i < st->o.vm->nblocks; i++)
		if (st->base[i])
			munmap(st->base[i], st->o.vm->blocks[i].pages * PAGE_BYTES);
	outbox_free(&st->outbox);
	pthread_cond_destroy(&st->work);
	pthread_cond_destroy(&st->done);
	pthread_mutex_destroy(&st->lock);
	free(st);
}
