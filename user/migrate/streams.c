// SPDX-License-Identifier: GPL-2.0-only
/*
 * The threads live as long as the migration and wait between rounds. Each asks the round for a piece, reads it and
 * sends it, until nothing is left; then it says ROUND. A slow stream takes fewer pieces than a fast one.
 *
 * The first one that fails sets stop: the others see it within STOP_SLICE_NS, wherever they wait, and what they
 * then fail with is not an error of its own.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "io/thread.h"
#include "migrate/streams.h"
#include "vmm/huge.h"

/**
 * struct stream
 * @fd: until the thread has made a channel of it
 * @sent: @zero_copies: @copied: what its channel has sent, and how; for whoever wants to know while it works
 */
struct stream {
	struct streams *all;
	pthread_t thread;
	int fd;
	_Atomic uint64_t sent, zero_copies, copied;
};

/**
 * struct streams
 * @stop: wait no more: one failed, or the end
 * @round: @number: the round under way
 * @turn: counts rounds: a thread that has not seen this one begins
 * @busy: threads that have not finished it
 * @err: the first failure
 * @base: of each block that is mapped, see reader.h
 */
struct streams {
	struct streams_options o;
	atomic_bool stop;
	pthread_mutex_t lock;	/* protects what follows up to err */
	pthread_cond_t work, done;
	struct round *round;
	uint32_t number;
	unsigned int turn, busy;
	bool quit;
	struct round_count count;
	struct err err;
	uint8_t *base[WIRE_BLOCKS_MAX];
	unsigned int n;
	struct stream s[WIRE_STREAMS_MAX];
};

static int end_share(struct streams *st, struct channel *ch, struct err *e)
{
	struct wire_header h = {
		.type = WIRE_ROUND, .flags = st->round->kind == ROUND_LAST ? WIRE_ROUND_LAST : 0, .arg = st->number,
	};

	return channel_send(ch, &h, NULL, e);
}

static void tell(struct stream *s, const struct channel *ch)
{
	struct zero_copy_count zc = channel_zero_copies(ch);

	atomic_store_explicit(&s->sent, channel_sent(ch), memory_order_relaxed);
	atomic_store_explicit(&s->zero_copies, zc.sends, memory_order_relaxed);
	atomic_store_explicit(&s->copied, zc.copied, memory_order_relaxed);
}

/* This thread's share of the round. */
static int send_share(struct stream *s, struct channel *ch, struct round_count *count, struct err *e)
{
	struct streams *st = s->all;
	struct reader rd = {
		.vm = st->o.vm, .base = st->base, .ch = ch, .pace = st->round->kind == ROUND_LAST ? NULL : st->o.pace,
	};
	struct piece p;
	int r;

	while ((r = round_take(st->round, &p, e)) > 0) {
		r = atomic_load(&st->stop) ? -ECANCELED : reader_send(&rd, &p, e);
		tell(s, ch);
		if (r)
			break;
	}
	if (!r)
		r = reader_end(&rd, e);
	if (!r)
		r = end_share(st, ch, e);
	tell(s, ch);
	*count = rd.count;
	return r;
}

/* Under the lock. What comes from a stream that was told to stop has no text. */
static void failed(struct streams *st, const struct err *e)
{
	if (!st->err.exit)
		st->err = *e;
	atomic_store(&st->stop, true);
}

/* Waits for the next round. false: there is none. */
static bool next_turn(struct streams *st, unsigned int *turn)
{
	bool quit;

	pthread_mutex_lock(&st->lock);
	while (!st->quit && st->turn == *turn)
		pthread_cond_wait(&st->work, &st->lock);
	*turn = st->turn;
	quit = st->quit;
	pthread_mutex_unlock(&st->lock);
	return !quit;
}

static void *stream_main(void *arg)
{
	struct stream *s = arg;
	struct streams *st = s->all;
	struct channel *ch = NULL;
	unsigned int turn = 0;

	while (next_turn(st, &turn)) {
		struct round_count count = { 0, 0 };
		struct err e = { 0 };
		int r = 0;

		/* Here, because a ring belongs to the thread that made it. */
		if (!ch) {
			r = channel_new(s->fd, st->o.engine, st->o.timeout_ms, &ch, &e);
			s->fd = -1;
			if (!r)
				channel_zero_copy(ch, st->o.zero_copy);
		}
		if (!r) {
			channel_interrupt(ch, &st->stop);
			r = send_share(s, ch, &count, &e);
		}
		pthread_mutex_lock(&st->lock);
		st->count.data_pages += count.data_pages;
		st->count.zero_pages += count.zero_pages;
		if (r)
			failed(st, &e);
		if (!--st->busy)
			pthread_cond_signal(&st->done);
		pthread_mutex_unlock(&st->lock);
	}
	channel_free(ch);
	return NULL;
}

static struct streams *new(const struct streams_options *o)
{
	struct streams *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->o = *o;
	atomic_init(&st->stop, false);
	pthread_mutex_init(&st->lock, NULL);
	pthread_cond_init(&st->work, NULL);
	thread_cond_init(&st->done);
	for (unsigned int i = 0; i < o->vm->nblocks; i++)
		st->base[i] = huge_map(&o->vm->blocks[i], PROT_READ);
	return st;
}

int streams_start(const struct streams_options *o, const int *fds, unsigned int n, struct streams **out, struct err *e)
{
	struct streams *st = new(o);
	int r = st ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < n; i++) {
		if (!r) {
			st->s[i].all = st;
			st->s[i].fd = fds[i];
			r = thread_start(&st->s[i].thread, stream_main, &st->s[i]);
		}
		if (r)
			close(fds[i]);
		else
			st->n++;
	}
	if (r) {
		streams_free(st);
		return err_set(e, GW_INTERNAL, -r, "cannot start %u streams: %s; use fewer --streams", n, strerror(-r));
	}
	*out = st;
	return 0;
}

/* Until all have finished, with the lock held. */
static int wait_done(struct streams *st, int (*idle)(void *arg, struct err *e), void *arg, struct err *e)
{
	int r = 0;

	while (st->busy) {
		if (thread_wait(&st->done, &st->lock) || !idle || r)
			continue;
		pthread_mutex_unlock(&st->lock);
		r = idle(arg, e);
		if (r)
			atomic_store(&st->stop, true);
		pthread_mutex_lock(&st->lock);
	}
	return r;
}

int streams_round(struct streams *st, struct round *rd, uint32_t number, struct round_count *count,
		  int (*idle)(void *arg, struct err *e), void *arg, struct err *e)
{
	int r;

	pthread_mutex_lock(&st->lock);
	st->round = rd;
	st->number = number;
	st->busy = st->n;
	st->count = (struct round_count) { 0, 0 };
	st->turn++;
	pthread_cond_broadcast(&st->work);
	r = wait_done(st, idle, arg, e);
	*count = st->count;
	if (!r && st->err.exit) {
		*e = st->err;
		r = -EIO;
	}
	pthread_mutex_unlock(&st->lock);
	return r;
}

uint64_t streams_sent(const struct streams *st)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; st && i < st->n; i++)
		sum += atomic_load_explicit(&st->s[i].sent, memory_order_relaxed);
	return sum;
}

struct zero_copy_count streams_zero_copies(const struct streams *st)
{
	struct zero_copy_count sum = { 0, 0 };

	for (unsigned int i = 0; st && i < st->n; i++) {
		sum.sends += atomic_load_explicit(&st->s[i].zero_copies, memory_order_relaxed);
		sum.copied += atomic_load_explicit(&st->s[i].copied, memory_order_relaxed);
	}
	return sum;
}

void streams_free(struct streams *st)
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
	/* No frame is under way any more. */
	for (unsigned int i = 0; i < st->o.vm->nblocks; i++)
		if (st->base[i])
			munmap(st->base[i], st->o.vm->blocks[i].pages * PAGE_BYTES);
	pthread_cond_destroy(&st->work);
	pthread_cond_destroy(&st->done);
	pthread_mutex_destroy(&st->lock);
	free(st);
}
