// SPDX-License-Identifier: GPL-2.0-only
/*
 * Between frames a lane waits for as long as it takes: that the sender is alive shows on the control connection. A
 * lane that has got WIRE_ROUND_LAST reads no more, so nothing can be placed after the last round.
 *
 * The first lane that fails sets stop, and the others end within STOP_SLICE_NS. All connections stay open until
 * lanes_free(), so that the sender hears the reason from the control connection first.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/channel.h"
#include "io/sock.h"
#include "io/stop.h"
#include "io/thread.h"
#include "migrate/lanes.h"

#define ALIVE_MS	1000

/**
 * struct lane
 * @fd: until the thread has made a channel of it
 * @ended: a round has ended, @round, and it was the @last
 */
struct lane {
	struct lanes *all;
	pthread_t thread;
	int fd;
	bool ended, last;
	uint32_t round;
};

/**
 * struct lanes
 * @stop: wait no more: one failed, or the end
 * @frames: so far; whoever waits sees that something still comes
 * @running: lanes that may place something
 * @quit: connections may go
 */
struct lanes {
	struct placement *place;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
	atomic_bool failed, stop;
	pthread_mutex_t lock;	/* protects what follows, and of each lane ended, last, round */
	pthread_cond_t change;
	struct err err;
	uint64_t frames;
	struct place_count count;
	unsigned int running;
	bool quit;
	unsigned int n;
	struct lane lane[WIRE_STREAMS_MAX];
};

/* 1: that was the last one. */
static int end_round(struct lane *l, const struct wire_header *h)
{
	pthread_mutex_lock(&l->all->lock);
	l->ended = true;
	l->round = h->arg;
	l->last = h->flags & WIRE_ROUND_LAST;
	pthread_cond_broadcast(&l->all->change);
	pthread_mutex_unlock(&l->all->lock);
	return h->flags & WIRE_ROUND_LAST ? 1 : 0;
}

static int place(struct lanes *all, struct channel *ch, const struct wire_header *h, uint8_t *buf, struct err *e)
{
	struct place_count count = { 0, 0 };
	int r = place_frame(all->place, ch, h, buf, &count, e);

	pthread_mutex_lock(&all->lock);
	all->count.data_pages += count.data_pages;
	all->count.zero_pages += count.zero_pages;
	all->frames++;
	pthread_mutex_unlock(&all->lock);
	return r;
}

static int serve(struct lane *l, struct channel *ch, uint8_t *buf, struct err *e)
{
	struct wire_header h;
	int r = 0;

	/* Where there is always something to read, the channel never waits, and never looks at stop. */
	while (!r && !atomic_load(&l->all->stop)) {
		r = channel_recv(ch, &h, true, e);
		if (r)
			break;
		if (h.type == WIRE_RAM)
			r = place(l->all, ch, &h, buf, e);
		else if (h.type == WIRE_ROUND)
			r = end_round(l, &h);
		else
			r = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s on a stream of RAM", wire_type_name(h.type));
	}
	return r;
}

/* The lane places nothing any more; its connection stays until all may go. */
static void park(struct lanes *all, int r, const struct err *e)
{
	pthread_mutex_lock(&all->lock);
	/* One that was told to stop has not failed. */
	if (r < 0 && !atomic_load(&all->stop)) {
		all->err = *e;
		atomic_store(&all->stop, true);
		atomic_store(&all->failed, true);
	}
	all->running--;
	pthread_cond_broadcast(&all->change);
	while (!all->quit)
		pthread_cond_wait(&all->change, &all->lock);
	pthread_mutex_unlock(&all->lock);
}

static void *lane_main(void *arg)
{
	struct lane *l = arg;
	struct channel *ch = NULL;
	struct err e = { 0 };
	uint8_t *buf = NULL;
	int r;

	/* Here, because a ring belongs to the thread that made it. */
	r = channel_new(l->fd, l->all->engine, l->all->timeout_ms, &ch, &e);
	if (!r && posix_memalign((void **)&buf, WIRE_PAGE, PLACE_BUFFER)) {
		buf = NULL;
		r = err_set(&e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	if (!r) {
		channel_interrupt(ch, &l->all->stop);
		r = serve(l, ch, buf, &e);
	}
	park(l->all, r, &e);
	free(buf);
	channel_free(ch);
	return NULL;
}

static struct lanes *new(void)
{
	struct lanes *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	atomic_init(&l->failed, false);
	atomic_init(&l->stop, false);
	pthread_mutex_init(&l->lock, NULL);
	thread_cond_init(&l->change);
	return l;
}

int lanes_start(struct placement *p, const struct engine_ops *engine, unsigned int timeout_ms, const int *fds,
		unsigned int n, struct lanes **out, struct err *e)
{
	struct lanes *l = new();
	int r = l ? 0 : -ENOMEM;

	if (l) {
		l->place = p;
		l->engine = engine;
		l->timeout_ms = timeout_ms;
		l->running = n;
	}
	for (unsigned int i = 0; i < n; i++) {
		if (!r) {
			l->lane[i].all = l;
			l->lane[i].fd = fds[i];
			r = thread_start(&l->lane[i].thread, lane_main, &l->lane[i]);
		}
		if (r)
			close(fds[i]);
		else
			l->n++;
	}
	if (r) {
		if (l) {
			pthread_mutex_lock(&l->lock);
			l->running -= n - l->n;
			pthread_mutex_unlock(&l->lock);
		}
		lanes_free(l);
		return err_set(e, GW_INTERNAL, -r, "cannot start %u threads for streams: %s; allow fewer --streams", n, strerror(-r));
	}
	*out = l;
	return 0;
}

const atomic_bool *lanes_failed(const struct lanes *l)
{
	return &l->failed;
}

void lanes_error(struct lanes *l, struct err *e)
{
	pthread_mutex_lock(&l->lock);
	*e = l->err;
	pthread_mutex_unlock(&l->lock);
}

struct place_count lanes_count(struct lanes *l)
{
	struct place_count count;

	pthread_mutex_lock(&l->lock);
	count = l->count;
	pthread_mutex_unlock(&l->lock);
	return count;
}

/* 1: all lanes have ended it; 0: not yet; -errno. */
static int round_ended(struct lanes *l, uint32_t round, bool last, struct err *e)
{
	unsigned int n = 0;

	if (atomic_load(&l->failed)) {
		*e = l->err;
		return -EIO;
	}
	for (unsigned int i = 0; i < l->n; i++) {
		struct lane *lane = &l->lane[i];

		if (!lane->ended)
			continue;
		if (lane->round != round || lane->last != last)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender ended round %u on a stream where %u was due", lane->round, round);
		n++;
	}
	if (n < l->n)
		return 0;
	for (unsigned int i = 0; i < l->n; i++)
		l->lane[i].ended = false;
	return 1;
}

int lanes_wait_round(struct lanes *l, uint32_t round, bool last, int (*alive)(void *arg, struct err *e), void *arg,
		     struct err *e)
{
	uint64_t deadline = deadline_ms(l->timeout_ms), said = deadline_ms(ALIVE_MS), frames, told;
	int r;

	pthread_mutex_lock(&l->lock);
	frames = told = l->frames;
	while (!(r = round_ended(l, round, last, e))) {
		thread_wait(&l->change, &l->lock);
		if (l->frames != frames)
			deadline = deadline_ms(l->timeout_ms);
		frames = l->frames;
		if (stop_requested())
			r = stop_err(e);
		else if (now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT, "a stream has stopped in the middle of round %u (nothing for %u s)", round,
				    l->timeout_ms / 1000);
		if (!r && alive && frames != told && now_ns() > said) {
			pthread_mutex_unlock(&l->lock);
			r = alive(arg, e);
			pthread_mutex_lock(&l->lock);
			said = deadline_ms(ALIVE_MS);
			told = frames;
		}
		if (r)
			break;
	}
	pthread_mutex_unlock(&l->lock);
	return r < 0 ? r : 0;
}

void lanes_stop(struct lanes *l)
{
	atomic_store(&l->stop, true);
	pthread_mutex_lock(&l->lock);
	while (l->running)
		pthread_cond_wait(&l->change, &l->lock);
	pthread_mutex_unlock(&l->lock);
}

void lanes_free(struct lanes *l)
{
	if (!l)
		return;
	lanes_stop(l);
	pthread_mutex_lock(&l->lock);
	l->quit = true;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	for (unsigned int i = 0; i < l->n; i++)
		pthread_join(l->lane[i].thread, NULL);
	pthread_cond_destroy(&l->change);
	pthread_mutex_destroy(&l->lock);
	free(l);
}
