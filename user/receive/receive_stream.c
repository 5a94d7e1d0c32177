// SPDX-License-Identifier: GPL-2.0-only
/*
 * The thread of a stream. Between frames it waits without a limit, and within one for long: the
 * control connection shows that the sender is alive. A stream that has got WIRE_ROUND_LAST takes no
 * more RAM, unless it is released for what post-copy pushes, and reads on when all streams have got
 * it, so that what follows finds all RAM in place.
 */
#include <errno.h>

#include "net/channel.h"
#include "net/sock.h"
#include "plan/link.h"
#include "receive/receive_streams_internal.h"

#define BEHIND_BYTES	(64u << 10)	/* a packed frame or more */

static int receive_stream_end_round(struct receive_stream *s, const struct wire_header *h,
				    struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&s->all->lock);
	if (s->last && s->all->o.writer->lazy && !s->ended && h->arg == s->round + 1) {
		s->ended = true;
	} else if (h->arg != s->round + 1 || s->last) {
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender ended round %u on a stream after round %u%s",
			    h->arg, s->round, s->last ? ", the last" : "");
	} else {
		s->round = h->arg;
		s->last = h->flags & WIRE_ROUND_LAST;
	}
	pthread_cond_broadcast(&s->all->change);
	pthread_mutex_unlock(&s->all->lock);
	return r;
}

/* Has every stream delivered the last round? Under the lock. */
static bool receive_streams_placed(const struct receive_streams *all)
{
	for (unsigned int i = 0; i < all->n; i++)
		if (!all->streams[i].last)
			return false;
	return true;
}

/* Waits until RAM changes no more. -ECANCELED: the threads are to end. */
static int receive_stream_wait_placed(struct receive_streams *all)
{
	int r = 0;

	pthread_mutex_lock(&all->lock);
	while ((all->held || !receive_streams_placed(all)) && !r) {
		if (atomic_load(&all->stop))
			r = -ECANCELED;
		else
			pthread_cond_wait(&all->change, &all->lock);
	}
	pthread_mutex_unlock(&all->lock);
	return r;
}

static int receive_stream_other(struct receive_stream *s, struct channel *ch,
				const struct wire_header *h, struct err *e)
{
	struct receive_streams *all = s->all;
	int r;

	if (!all->o.frame)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s on a stream of RAM",
			       wire_type_name(h->type));
	r = all->o.frame(all->o.arg, ch, h, s->last, e);
	pthread_mutex_lock(&all->lock);
	all->frames++;
	pthread_cond_broadcast(&all->change);
	pthread_mutex_unlock(&all->lock);
	return r;
}

/* A frame that takes long is a sign of life, too. */
static void receive_stream_step(void *arg)
{
	struct receive_streams *all = arg;

	pthread_mutex_lock(&all->lock);
	all->frames++;
	pthread_mutex_unlock(&all->lock);
}

static int receive_stream_write(struct receive_streams *all, struct channel *ch,
				const struct wire_header *h, struct ram_scratch *scratch,
				struct err *e)
{
	struct ram_writer_count count = { 0, 0, 0 };
	int r = ram_writer_frame(all->o.writer, ch, h, scratch, &count, e);
	bool behind = sock_unread(channel_fd(ch)) >= BEHIND_BYTES;

	pthread_mutex_lock(&all->lock);
	all->count.data_pages += count.data_pages;
	all->count.zero_pages += count.zero_pages;
	all->count.reused_pages += count.reused_pages;
	all->frames++;
	all->ram_frames++;
	all->behind += behind;
	pthread_mutex_unlock(&all->lock);
	return r;
}

static int receive_stream_serve(struct receive_stream *s, struct channel *ch,
				struct ram_scratch *scratch, struct err *e)
{
	struct wire_header h;
	int r = 0;

	/*
	 * Where there is always something to read the channel never waits, and never tests @stop.
	 */
	while (!r && !atomic_load(&s->all->stop)) {
		r = channel_recv(ch, &h, true, e);
		if (r)
			break;
		if (h.type == WIRE_ROUND) {
			r = receive_stream_end_round(s, &h, e);
			if (!r && s->last && !s->ended)
				r = receive_stream_wait_placed(s->all);
		} else if (h.type != WIRE_RAM && h.type != WIRE_PACKED && h.type != WIRE_DELTA &&
			   h.type != WIRE_REFERENCES) {
			r = receive_stream_other(s, ch, &h, e);
		} else if (s->last && (!s->all->o.writer->lazy || s->ended)) {
			r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent RAM after the last round");
		} else {
			r = receive_stream_write(s->all, ch, &h, scratch, e);
		}
	}
	return r;
}

/* The stream writes no RAM any more; its connection stays open until all may be closed. */
static void receive_stream_park(struct receive_streams *all, int r, const struct err *e)
{
	pthread_mutex_lock(&all->lock);
	/* A thread that ends because @stop is set has not failed. */
	if (r < 0 && !atomic_load(&all->stop)) {
		all->err = *e;
		atomic_store(&all->stop, true);
		atomic_store(&all->failed, true);
	}
	all->running--;
	pthread_cond_broadcast(&all->change);
	while (!all->may_close)
		pthread_cond_wait(&all->change, &all->lock);
	pthread_mutex_unlock(&all->lock);
}

void *receive_stream_main(void *arg)
{
	struct receive_stream *s = arg;
	struct channel *ch = NULL;
	struct err e = { 0 };
	struct ram_scratch scratch;
	int r;

	/* Here, as a ring belongs to the thread that made it. */
	r = channel_new_tls(s->fd, s->tls, s->all->o.engine,
			    link_stream_patience_ms(s->all->o.timeout_ms), &ch, &e);
	if (ram_scratch_open(&scratch, r ? &(struct err) { 0 } : &e) && !r)
		r = -ENOMEM;
	scratch.step = receive_stream_step;
	scratch.step_arg = s->all;
	if (!r) {
		channel_interrupt(ch, &s->all->stop);
		r = receive_stream_serve(s, ch, &scratch, &e);
	}
	receive_stream_park(s->all, r, &e);
	ram_scratch_close(&scratch);
	channel_free(ch);
	return NULL;
}
