// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "plan/link.h"
#include "receive/requests.h"

/**
 * struct requests
 * @ended: processes whose userfaultfd says that they have gone
 * @answer_ns: when the sender answered last, or was asked while nothing was asked for
 * @lock: protects @err, @failed and @count
 */
struct requests {
	struct requests_options o;
	pthread_t thread;
	atomic_bool stop;
	struct faults faults;
	bool ended[LAZY_MMS];
	uint64_t answer_ns;
	pthread_mutex_t lock;
	bool failed;
	struct err err;
	struct requests_count count;
};

/* WANT is short, and at most WIRE_WANTED_MAX units are asked for: this never waits for long. */
static int requests_ask(struct requests *r, struct channel *ch, const struct wire_extent *want,
			unsigned int n, struct err *e)
{
	struct wire_header h = { .type = WIRE_WANT, .arg = n, .length = n * WIRE_EXTENT };
	uint8_t body[WIRE_WANT_MAX * WIRE_EXTENT];

	if (!n)
		return 0;
	for (unsigned int i = 0; i < n; i++)
		wire_put_extent(body + i * WIRE_EXTENT, &want[i]);
	if (r->faults.nr_asked == n)
		r->answer_ns = now_ns();
	return channel_send(ch, &h, body, e);
}

static int requests_answer(struct requests *r, struct channel *ch, struct ram_scratch *s,
			   struct err *e)
{
	struct ram_writer_count ignored = { 0, 0, 0 };
	struct wire_header h;
	int ret = channel_recv(ch, &h, false, e);

	if (!ret && h.type != WIRE_RAM)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s on the request connection",
			      wire_type_name(h.type));
	if (!ret)
		ret = ram_writer_frame(r->o.writer, ch, &h, s, &ignored, e);
	r->answer_ns = now_ns();
	pthread_mutex_lock(&r->lock);
	r->count.waited = r->faults.waited;
	pthread_mutex_unlock(&r->lock);
	return ret;
}

/* Waits for a fault, or for the sender. */
static void requests_poll(struct requests *r, const struct channel *ch, struct pollfd *p)
{
	const struct lazy_ram *l = r->o.writer->lazy;

	for (unsigned int i = 0; i < l->mms; i++)
		p[i] = (struct pollfd) {
			.fd = r->ended[i] || !faults_room(&r->faults) ? -1 : l->mm[i].uffd,
			.events = POLLIN,
		};
	p[l->mms] = (struct pollfd) { .fd = channel_fd(ch), .events = POLLIN };
	/* What has been read ahead no poll() tells of. */
	poll(p, l->mms + 1, channel_readable(ch) ? 0 : STOP_SLICE_NS / 1000000);
}

static int requests_step(struct requests *r, struct channel *ch, struct ram_scratch *s,
			 struct err *e)
{
	const struct lazy_ram *l = r->o.writer->lazy;
	const unsigned int patience_ms = link_stream_patience_ms(r->o.timeout_ms);
	struct pollfd p[LAZY_MMS + 1];
	int ret = 0;

	requests_poll(r, ch, p);
	for (unsigned int i = 0; i < l->mms && ret >= 0; i++) {
		struct wire_extent want[WIRE_WANT_MAX];

		r->ended[i] |= p[i].revents & (POLLERR | POLLHUP | POLLNVAL);
		if (r->ended[i] || !(p[i].revents & POLLIN))
			continue;
		ret = faults_read(&r->faults, i, want, e);
		if (ret < 0)
			break;
		pthread_mutex_lock(&r->lock);
		r->count.seen = r->faults.seen;
		r->count.zeros = r->faults.zeros;
		r->count.asked += (unsigned int)ret;
		pthread_mutex_unlock(&r->lock);
		ret = requests_ask(r, ch, want, (unsigned int)ret, e);
	}
	while (!ret && channel_readable(ch) && !atomic_load(&r->stop))
		ret = requests_answer(r, ch, s, e);
	if (!ret && r->faults.nr_asked && now_ns() - r->answer_ns > patience_ms * 1000000ull)
		ret = err_set_silent(e, "the sender did not send a page that the guest waits for, for %u s",
				     patience_ms / 1000);
	return ret;
}

static void *requests_main(void *arg)
{
	struct requests *r = arg;
	struct ram_scratch scratch;
	struct channel *ch = NULL;
	struct err e = { 0 };
	int ret;

	/* Here, as a ring belongs to the thread that made it. */
	ret = channel_new_tls(r->o.fd, r->o.tls, r->o.engine,
			      link_stream_patience_ms(r->o.timeout_ms), &ch, &e);
	if (ram_scratch_open(&scratch, ret ? &(struct err) { 0 } : &e) && !ret)
		ret = -ENOMEM;
	scratch.answers = &r->faults;
	if (!ret)
		channel_interrupt(ch, &r->stop);
	while (!ret && !atomic_load(&r->stop))
		ret = requests_step(r, ch, &scratch, &e);
	pthread_mutex_lock(&r->lock);
	r->failed = ret && !atomic_load(&r->stop);
	r->err = e;
	pthread_mutex_unlock(&r->lock);
	ram_scratch_close(&scratch);
	channel_free(ch);
	return NULL;
}

int requests_start(const struct requests_options *o, struct requests **out, struct err *e)
{
	struct requests *r = calloc(1, sizeof(*r));
	int ret = r ? 0 : -ENOMEM;

	if (r) {
		r->o = *o;
		r->faults.ram = o->writer->lazy;
		atomic_init(&r->stop, false);
		pthread_mutex_init(&r->lock, NULL);
		ret = thread_start(&r->thread, requests_main, r);
	}
	if (!ret) {
		*out = r;
		return 0;
	}
	free(r);
	tls_free(o->tls);
	close(o->fd);
	return err_set(e, GW_INTERNAL, -ret, "cannot start the thread that serves page faults: %s",
		       strerror(-ret));
}

bool requests_failed(struct requests *r, struct err *e)
{
	bool failed;

	pthread_mutex_lock(&r->lock);
	failed = r->failed;
	if (failed && !e->exit)
		*e = r->err;
	pthread_mutex_unlock(&r->lock);
	return failed;
}

void requests_count(struct requests *r, struct requests_count *count)
{
	pthread_mutex_lock(&r->lock);
	count->seen += r->count.seen;
	count->zeros += r->count.zeros;
	count->asked += r->count.asked;
	latency_merge(&count->waited, &r->count.waited);
	pthread_mutex_unlock(&r->lock);
}

void requests_free(struct requests *r)
{
	if (!r)
		return;
	atomic_store(&r->stop, true);
	pthread_join(r->thread, NULL);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
