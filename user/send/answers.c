// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/stop.h"
#include "base/thread.h"
#include "plan/link.h"
#include "send/answers.h"
#include "round/ram_frame.h"
#include "wire/owed.h"

/* @lock: protects @failed and @err */
struct answers {
	struct answers_options o;
	uint64_t pages[WIRE_BLOCKS_MAX];
	uint32_t unit[WIRE_BLOCKS_MAX];
	pthread_t thread;
	atomic_bool stop;
	_Atomic uint64_t count;
	pthread_mutex_t lock;
	bool failed;
	struct err err;
};

static int answers_send(struct answers *a, struct channel *ch, const struct wire_extent *x,
			struct err *e)
{
	static uint8_t *const not_mapped[WIRE_BLOCKS_MAX];
	struct ram_framer f = { .vm = a->o.vm, .base = not_mapped, .ch = ch };
	const struct round_piece p = {
		.block = x->block, .nr = 1, .runs = { { x->first, x->pages } },
	};
	uint64_t unit = x->first / a->unit[x->block];
	int r;

	if (!owed_want(a->o.owed, x->block, unit))
		return err_set(e, GW_BAD_PEER, EPROTO,
			       "the receiver asked for page %llu of RAM \"%s\", which is not owed, or twice",
			       (unsigned long long)x->first, a->o.vm->blocks[x->block].name);
	push_fault(a->o.push, x->block, unit);
	atomic_fetch_add(&a->count, 1);
	r = ram_framer_send(&f, &p, e);
	return r ? r : ram_framer_flush(&f, e);
}

static int answers_serve(struct answers *a, struct channel *ch, struct err *e)
{
	uint8_t body[WIRE_WANT_MAX * WIRE_EXTENT];
	struct wire_extent x[WIRE_WANT_MAX];
	struct wire_header h;
	int r = channel_recv(ch, &h, false, e);

	if (r)
		return r;
	if (h.type != WIRE_WANT)
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s on the request connection",
			       wire_type_name(h.type));
	r = channel_body(ch, body, h.length, e);
	if (r)
		return r;
	if (wire_get_want(&h, body, a->pages, a->unit, a->o.vm->nblocks, x))
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed WANT frame");
	for (unsigned int i = 0; i < h.arg && !r; i++)
		r = answers_send(a, ch, &x[i], e);
	return r ? r : channel_flush(ch, e);
}

static int answers_step(struct answers *a, struct channel *ch, struct err *e)
{
	struct pollfd p = { .fd = channel_fd(ch), .events = POLLIN };

	/* What has been read ahead no poll() tells of. */
	poll(&p, 1, channel_readable(ch) ? 0 : STOP_SLICE_NS / 1000000);
	return channel_readable(ch) ? answers_serve(a, ch, e) : 0;
}

static void *answers_main(void *arg)
{
	struct answers *a = arg;
	struct channel *ch = NULL;
	struct err e = { 0 };
	/* Here, as a ring belongs to the thread that made it. */
	int r = channel_new_tls(a->o.fd, a->o.tls, a->o.engine,
				link_stream_patience_ms(a->o.timeout_ms), &ch, &e);

	if (!r)
		channel_interrupt(ch, &a->stop);
	while (!r && !atomic_load(&a->stop))
		r = answers_step(a, ch, &e);
	pthread_mutex_lock(&a->lock);
	a->failed = r && !atomic_load(&a->stop);
	a->err = e;
	pthread_mutex_unlock(&a->lock);
	channel_free(ch);
	return NULL;
}

int answers_start(const struct answers_options *o, struct answers **out, struct err *e)
{
	struct answers *a = calloc(1, sizeof(*a));
	int r = a ? 0 : -ENOMEM;

	if (a) {
		a->o = *o;
		for (unsigned int i = 0; i < o->vm->nblocks; i++) {
			a->pages[i] = o->owed->block[i].pages;
			a->unit[i] = o->owed->block[i].unit;
		}
		atomic_init(&a->stop, false);
		pthread_mutex_init(&a->lock, NULL);
		r = thread_start(&a->thread, answers_main, a);
	}
	if (!r) {
		*out = a;
		return 0;
	}
	free(a);
	tls_free(o->tls);
	close(o->fd);
	return err_set(e, GW_INTERNAL, -r, "cannot start the thread that answers page faults: %s",
		       strerror(-r));
}

int answers_check(struct answers *a, struct err *e)
{
	int r = 0;

	pthread_mutex_lock(&a->lock);
	if (a->failed) {
		if (!e->exit)
			*e = a->err;
		r = -EIO;
	}
	pthread_mutex_unlock(&a->lock);
	return r;
}

uint64_t answers_count(struct answers *a)
{
	return atomic_load(&a->count);
}

void answers_free(struct answers *a)
{
	if (!a)
		return;
	atomic_store(&a->stop, true);
	pthread_join(a->thread, NULL);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
