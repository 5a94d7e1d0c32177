// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "net/sock.h"
#include "plan/link.h"
#include "ram/thp.h"
#include "send/send_streams_internal.h"

#define EAGER_NS	200000000ull
#define EAGER_SLICE_NS	20000000ull

static struct send_streams *send_streams_new(const struct send_streams_options *o)
{
	struct send_streams *st = calloc(1, sizeof(*st));

	if (!st)
		return NULL;
	st->o = *o;
	atomic_init(&st->stop, false);
	thread_slots_init(&st->slots, o->pack_threads ? o->pack_threads : thread_cpus_usable());
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
			st->s[i].packing = (struct ram_packing) {
				.same = o->features & WIRE_FILL, .slots = &st->slots,
				.load = &st->load, .compress = o->compress,
				.features = o->features,
			};
			ram_packing_begin(&st->s[i].packing, atomic_load(o->compress));
			st->s[i].tls = o->tls ? o->tls[i] : NULL;
			r = thread_start(&st->s[i].thread, send_stream_main, &st->s[i]);
		}
		if (!r) {
			st->n++;
			continue;
		}
		if (o->tls)
			tls_free(o->tls[i]);
		close(fds[i]);
	}
	if (r) {
		send_streams_free(st);
		return err_set(e, GW_INTERNAL, -r, "cannot start %u streams: %s; use fewer --streams",
			       n, strerror(-r));
	}
	*out = st;
	return 0;
}

/*
 * At first the caller is idle more often, where auto waits for the first LOAD: until it is there
 * nothing is packed.
 */
static uint64_t send_streams_slice_ns(const struct send_streams *st)
{
	const bool waits = st->o.features & WIRE_LOADS && !atomic_load(&st->load) &&
			   codec_word_wish(atomic_load(st->o.compress)).kind == CODEC_AUTO;

	return waits && now_ns() - st->began_ns < EAGER_NS ? EAGER_SLICE_NS : STOP_SLICE_NS;
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
			thread_wait_ns(&st->done, &st->lock, send_streams_slice_ns(st));
		if (!st->o.idle || r || now_ns() <= st->next_idle_ns)
			continue;
		pthread_mutex_unlock(&st->lock);
		r = st->o.idle(st->o.arg, e);
		if (r)
			atomic_store(&st->stop, true);
		pthread_mutex_lock(&st->lock);
		st->next_idle_ns = now_ns() + send_streams_slice_ns(st);
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

static bool send_streams_have_ended(const struct send_streams *st)
{
	return !st->busy;
}

static bool send_streams_have_room(const struct send_streams *st)
{
	return st->outbox.bytes < OUTBOX_BYTES || atomic_load(&st->stop);
}

#define LOOKS	32u	/* in a round trip, for the ACK that makes room */

/*
 * Were most pages of the round packed, or known, or in the receiver's file? Then the link is what
 * is slow, also if what is left to send now comes in single frames that find no queue.
 */
static bool send_streams_link_was_slow(const struct round_count *c)
{
	const uint64_t all = c->data_pages + c->unchanged_pages + c->reused_pages;
	uint64_t packed = c->unchanged_pages + c->reused_pages;

	for (unsigned int i = 0; i < CODECS; i++)
		packed += c->packed_pages[i];
	return 2 * packed > all ||
	       2 * (c->delta_pages + c->unchanged_pages + c->reused_pages) > all;
}

bool send_streams_read_huge(const struct send_streams *st)
{
	for (unsigned int i = 0; i < st->o.vm->nblocks; i++)
		if (st->base[i])
			return true;
	return false;
}

void send_streams_hash_all(struct send_streams *st)
{
	st->o.delta_always = true;
}

void send_streams_begin(struct send_streams *st, struct round *rd, uint32_t number)
{
	uint64_t nap_ns, slice_ns;

	pthread_mutex_lock(&st->lock);
	st->round = rd;
	st->number = number;
	st->began_ns = now_ns();
	/* Never later than it was due: rounds may be shorter than a slice. */
	slice_ns = send_streams_slice_ns(st);
	if (st->next_idle_ns > st->began_ns + slice_ns)
		st->next_idle_ns = st->began_ns + slice_ns;
	nap_ns = rd->spread ? sock_least_rtt_ns(st->s[0].socket) / LOOKS : 0;
	if (rd->spread && nap_ns < LAST_NAP_NS)
		nap_ns = LAST_NAP_NS;
	atomic_store(&st->nap_ns, nap_ns);
	st->busy = st->n;
	st->delta_always = st->o.delta_always || send_streams_link_was_slow(&st->count);
	st->count = (struct round_count) { .data_pages = 0 };
	st->rounds++;
	pthread_cond_broadcast(&st->work);
	pthread_mutex_unlock(&st->lock);
}

static int send_streams_wait_count(struct send_streams *st,
				   bool (*there)(const struct send_streams *st),
				   struct round_count *count, struct err *e)
{
	int r;

	pthread_mutex_lock(&st->lock);
	r = send_streams_wait_for(st, there, e);
	if (count)
		*count = st->count;
	pthread_mutex_unlock(&st->lock);
	return r;
}

int send_streams_wait(struct send_streams *st, struct round_count *count, struct err *e)
{
	return send_streams_wait_count(st, send_streams_are_done, count, e);
}

int send_streams_wait_round(struct send_streams *st, struct round_count *count, struct err *e)
{
	return send_streams_wait_count(st, send_streams_have_ended, count, e);
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

bool send_streams_round_is_over(struct send_streams *st)
{
	bool over;

	pthread_mutex_lock(&st->lock);
	over = !st->busy || atomic_load(&st->stop);
	pthread_mutex_unlock(&st->lock);
	return over;
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

void send_streams_load(struct send_streams *st, unsigned int load)
{
	uint64_t loads = atomic_load(&st->load) >> RAM_LOAD_BITS;

	atomic_store(&st->load, (loads + 1) << RAM_LOAD_BITS | load);
}

struct round_count send_stream_counts(const struct send_stream *s)
{
	uint64_t counts[ROUND_COUNTS];
	struct round_count sum;

	for (unsigned int i = 0; i < ROUND_COUNTS; i++)
		counts[i] = atomic_load_explicit(&s->counts[i], memory_order_relaxed);
	memcpy(&sum, counts, sizeof(sum));
	return sum;
}

struct round_count send_streams_counts(const struct send_streams *st)
{
	struct round_count sum = { .data_pages = 0 };

	for (unsigned int i = 0; st && i < st->n; i++) {
		const struct round_count one = send_stream_counts(&st->s[i]);

		round_count_add(&sum, &one);
	}
	return sum;
}

void send_streams_keep_short(struct send_streams *st, uint64_t rate)
{
	for (unsigned int i = 0; i < st->n; i++) {
		const int fd = st->s[i].socket;
		uint64_t bytes = link_short_buffer(rate, st->n, sock_least_rtt_ns(fd));

		if (bytes)
			sock_set_buffer(fd, bytes);
	}
}

uint64_t send_streams_queued(const struct send_streams *st)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; st && i < st->n; i++)
		sum += sock_queued(st->s[i].socket);
	return sum;
}

struct sock_sent send_streams_tcp(const struct send_streams *st)
{
	struct sock_sent sum = { 0 };

	for (unsigned int i = 0; st && i < st->n; i++) {
		const struct sock_sent one = sock_sent(st->s[i].socket);

		sum.segments += one.segments;
		sum.again += one.again;
		sum.segment = one.segment;
		sum.busy_ns += one.busy_ns;
		sum.window_ns += one.window_ns;
		sum.buffer_ns += one.buffer_ns;
	}
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
		tls_free(st->s[i].tls);
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
