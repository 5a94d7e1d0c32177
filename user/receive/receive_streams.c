// SPDX-License-Identifier: GPL-2.0-only
/*
 * Between frames a stream waits without a limit: the control connection shows that the sender is
 * alive. A stream that has got WIRE_ROUND_LAST takes no more RAM, and reads on when all streams
 * have got it, so that what follows finds all RAM in place.
 *
 * A stream may be ahead of another by some rounds: the sender does not wait for ACKs. What keeps
 * the newer bytes of a page from being placed first is the sender's choice of the stream (wire.h).
 *
 * The first stream that fails sets @stop, and the others end within STOP_SLICE_NS. All connections
 * stay open until receive_streams_free(), so that the sender gets the reason from the control
 * connection first.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "net/channel.h"
#include "net/sock.h"
#include "receive/receive_streams.h"

#define ALIVE_MS	1000
#define BEHIND_BYTES	(64u << 10)	/* a packed frame or more */

/**
 * struct receive_stream
 * @fd, @tls: the connection; the thread makes a channel of it, which closes it
 * @round: the latest round that the stream has delivered to its end; at first o.base
 * @last: that was the last one
 */
struct receive_stream {
	struct receive_streams *all;
	pthread_t thread;
	int fd;
	struct tls *tls;
	bool last;
	uint32_t round;
};

/**
 * struct receive_streams
 * @stop: the threads are to end: one failed, or receive_streams_stop() was called
 * @ram_frames: since the last LOAD; @behind: of these, how many left the next one waiting
 * @frames: served so far: shows the thread that waits for a round that frames still come
 * @running: streams that may still write RAM
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
	bool may_close;
	unsigned int n, started;
	struct receive_stream streams[WIRE_STREAMS_MAX];
};

static int receive_stream_end_round(struct receive_stream *s, const struct wire_header *h,
				    struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&s->all->lock);
	if (h->arg != s->round + 1 || s->last) {
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
	while (!receive_streams_placed(all) && !r) {
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

static int receive_stream_write(struct receive_streams *all, struct channel *ch,
				const struct wire_header *h, struct ram_scratch *scratch,
				struct err *e)
{
	struct ram_writer_count count = { 0, 0 };
	int r = ram_writer_frame(all->o.writer, ch, h, scratch, &count, e);
	bool behind = sock_unread(channel_fd(ch)) >= BEHIND_BYTES;

	pthread_mutex_lock(&all->lock);
	all->count.data_pages += count.data_pages;
	all->count.zero_pages += count.zero_pages;
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
			if (!r && s->last)
				r = receive_stream_wait_placed(s->all);
		} else if (h.type != WIRE_RAM && h.type != WIRE_PACKED) {
			r = receive_stream_other(s, ch, &h, e);
		} else if (s->last) {
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

static void *receive_stream_main(void *arg)
{
	struct receive_stream *s = arg;
	struct channel *ch = NULL;
	struct err e = { 0 };
	struct ram_scratch scratch;
	int r;

	/* Here, as a ring belongs to the thread that made it. */
	r = channel_new_tls(s->fd, s->tls, s->all->o.engine, s->all->o.timeout_ms, &ch, &e);
	if (ram_scratch_open(&scratch, r ? &(struct err) { 0 } : &e) && !r)
		r = -ENOMEM;
	if (!r) {
		channel_interrupt(ch, &s->all->stop);
		r = receive_stream_serve(s, ch, &scratch, &e);
	}
	receive_stream_park(s->all, r, &e);
	ram_scratch_close(&scratch);
	channel_free(ch);
	return NULL;
}

static struct receive_streams *receive_streams_new(void)
{
	struct receive_streams *all = calloc(1, sizeof(*all));

	if (!all)
		return NULL;
	atomic_init(&all->failed, false);
	atomic_init(&all->stop, false);
	pthread_mutex_init(&all->lock, NULL);
	thread_cond_init(&all->change);
	return all;
}

int receive_streams_start(const struct receive_streams_options *o, const int *fds, unsigned int n,
			  struct receive_streams **out, struct err *e)
{
	struct receive_streams *all = receive_streams_new();
	int r = all ? 0 : -ENOMEM;

	if (all) {
		all->o = *o;
		all->running = n;
		all->n = n;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (!r) {
			all->streams[i].all = all;
			all->streams[i].round = o->base;
			all->streams[i].fd = fds[i];
			all->streams[i].tls = o->tls ? o->tls[i] : NULL;
			r = thread_start(&all->streams[i].thread, receive_stream_main,
					 &all->streams[i]);
		}
		if (!r) {
			all->started++;
			continue;
		}
		if (o->tls)
			tls_free(o->tls[i]);
		close(fds[i]);
	}
	if (r) {
		if (all) {
			pthread_mutex_lock(&all->lock);
			all->running -= n - all->started;
			pthread_mutex_unlock(&all->lock);
		}
		receive_streams_free(all);
		return err_set(e, GW_INTERNAL, -r, "cannot start %u threads for streams: %s; allow fewer --streams",
			       n, strerror(-r));
	}
	*out = all;
	return 0;
}

const atomic_bool *receive_streams_failed(const struct receive_streams *all)
{
	return &all->failed;
}

void receive_streams_error(struct receive_streams *all, struct err *e)
{
	pthread_mutex_lock(&all->lock);
	*e = all->err;
	pthread_mutex_unlock(&all->lock);
}

struct ram_writer_count receive_streams_count(struct receive_streams *all)
{
	struct ram_writer_count count;

	pthread_mutex_lock(&all->lock);
	count = all->count;
	pthread_mutex_unlock(&all->lock);
	return count;
}

unsigned int receive_streams_load(struct receive_streams *all)
{
	unsigned int load = 0;

	pthread_mutex_lock(&all->lock);
	if (all->ram_frames)
		load = all->behind * WIRE_LOAD_MAX / all->ram_frames;
	all->ram_frames = all->behind = 0;
	pthread_mutex_unlock(&all->lock);
	return load;
}

struct wanted_round {
	struct receive_streams *all;
	uint32_t number;
	bool last;
};

/* Called under the lock. 1: all streams have ended the round; 0: not yet; -errno. */
static int receive_streams_round_ended(void *arg, struct err *e)
{
	const struct wanted_round *w = arg;
	unsigned int n = 0;

	for (unsigned int i = 0; i < w->all->n; i++) {
		const struct receive_stream *s = &w->all->streams[i];

		if (s->round < w->number && !s->last)
			continue;
		if (s->round < w->number || (w->last ? !s->last : s->last && s->round == w->number))
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender's streams disagree about which round is the last: %u ended on one during round %u",
				       s->round, w->number);
		n++;
	}
	return n == w->all->n;
}

int receive_streams_wait(struct receive_streams *all, int (*there)(void *arg, struct err *e),
			 void *arg, const struct receive_wait *w, struct err *e)
{
	uint64_t deadline = deadline_ms(all->o.timeout_ms), next_alive = deadline_ms(ALIVE_MS);
	uint64_t frames, reported;
	int r;

	pthread_mutex_lock(&all->lock);
	frames = reported = all->frames;
	/* What is there already counts, also if a stream has failed behind it. */
	while (!(r = there(arg, e))) {
		if (atomic_load(&all->failed)) {
			*e = all->err;
			r = -EIO;
			break;
		}
		thread_wait(&all->change, &all->lock);
		if (all->frames != frames)
			deadline = deadline_ms(all->o.timeout_ms);
		frames = all->frames;
		if (stop_requested())
			r = stop_err(e);
		else if (now_ns() > deadline)
			r = err_set_silent(e, "a stream stopped in the middle of a round: no data for %u s",
				    all->o.timeout_ms / 1000);
		if (!r && w && (w->always || frames != reported) && now_ns() > next_alive) {
			pthread_mutex_unlock(&all->lock);
			r = w->alive(w->arg, e);
			pthread_mutex_lock(&all->lock);
			next_alive = deadline_ms(ALIVE_MS);
			reported = frames;
		}
		if (r)
			break;
	}
	pthread_mutex_unlock(&all->lock);
	return r < 0 ? r : 0;
}

int receive_streams_wait_round(struct receive_streams *all, uint32_t round, bool last,
			       const struct receive_wait *w, struct err *e)
{
	struct wanted_round wanted = { .all = all, .number = round, .last = last };

	return receive_streams_wait(all, receive_streams_round_ended, &wanted, w, e);
}

void receive_streams_stop(struct receive_streams *all)
{
	atomic_store(&all->stop, true);
	pthread_mutex_lock(&all->lock);
	pthread_cond_broadcast(&all->change);
	while (all->running)
		pthread_cond_wait(&all->change, &all->lock);
	pthread_mutex_unlock(&all->lock);
}

void receive_streams_finish(struct receive_streams *all)
{
	/* Before they wake up to an end: it must be no failure. */
	atomic_store(&all->stop, true);
	for (unsigned int i = 0; i < all->n; i++)
		shutdown(all->streams[i].fd, SHUT_RD);
	receive_streams_stop(all);
}

void receive_streams_free(struct receive_streams *all)
{
	if (!all)
		return;
	receive_streams_stop(all);
	pthread_mutex_lock(&all->lock);
	all->may_close = true;
	pthread_cond_broadcast(&all->change);
	pthread_mutex_unlock(&all->lock);
	for (unsigned int i = 0; i < all->started; i++)
		pthread_join(all->streams[i].thread, NULL);
	pthread_cond_destroy(&all->change);
	pthread_mutex_destroy(&all->lock);
	free(all);
}
