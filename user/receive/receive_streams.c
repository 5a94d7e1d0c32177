// SPDX-License-Identifier: GPL-2.0-only
/* The caller's side: starts the streams' threads, waits for what they deliver, ends them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "receive/receive_streams_internal.h"

#define ALIVE_MS	1000

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
	/* All of them before the first thread, which looks at the others. */
	for (unsigned int i = 0; i < n && all; i++) {
		all->streams[i] = (struct receive_stream) {
			.all = all, .round = o->base, .fd = fds[i],
			.tls = o->tls ? o->tls[i] : NULL,
			/* After a loss of the link in post-copy. */
			.last = o->writer->lazy,
		};
	}
	for (unsigned int i = 0; i < n; i++) {
		if (!r)
			r = thread_start(&all->streams[i].thread, receive_stream_main,
					 &all->streams[i]);
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

void receive_streams_hold(struct receive_streams *all)
{
	pthread_mutex_lock(&all->lock);
	all->held = true;
	pthread_mutex_unlock(&all->lock);
}

void receive_streams_release(struct receive_streams *all)
{
	pthread_mutex_lock(&all->lock);
	all->held = false;
	pthread_cond_broadcast(&all->change);
	pthread_mutex_unlock(&all->lock);
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
