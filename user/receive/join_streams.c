// SPDX-License-Identifier: GPL-2.0-only
/*
 * The steps between the agreement on RAM and the first page: the receiver empties its RAM, QEMU
 * begins to wait for the device state, and the sender's streams join.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "claim/owners.h"
#include "net/address.h"
#include "net/sock.h"
#include "receive/receiver_internal.h"

/* Serves the control connection until the streams have joined: only PING may come. */
static int join_streams_control(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = channel_recv(r->ch, &h, false, e);

	if (ret)
		return ret;
	if (h.type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s before its streams had joined", wire_type_name(h.type));
	return receiver_pong(r, &h, e);
}

/* What has been read ahead no poll() tells of. */
static int join_streams_step(const struct receiver *r, struct join *join)
{
	return join_step(join, channel_fd(r->ch),
			 channel_readable(r->ch) ? 0 : STOP_SLICE_NS / 1000000);
}

static int join_streams_wait(struct receiver *r, struct join *join, struct err *e)
{
	uint64_t deadline = deadline_ms(receiver_patience_ms(r));
	int here;

	while (!(here = join_streams_step(r, join))) {
		int ret = channel_readable(r->ch) ? join_streams_control(r, e) : 0;

		if (ret)
			return ret;
		if (stop_requested())
			return stop_err(e);
		if (now_ns() > deadline)
			return err_set_silent(e,
				       "only some of the sender's %u streams connected within %u s: make sure that every connection to %s reaches this receiver",
				       join->want, receiver_patience_ms(r) / 1000, r->o->listen);
	}
	return here < 0 ? err_set(e, GW_UNREACHABLE, -here, "cannot accept a connection: %s", strerror(-here)) : 0;
}

static uint64_t join_streams_ram(const struct receiver *r)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < r->vm.nblocks; i++)
		pages += r->vm.blocks[i].pages;
	return pages * PAGE_BYTES;
}

/* With TLS a stream shows what only the two ends of the control connection know. */
static void join_streams_secret(const struct receiver *r, struct join *join)
{
	uint8_t export[TLS_EXPORT];

	if (!r->o->tls)
		return;
	join->creds = r->o->tls;
	tls_export(channel_tls(r->ch), join->secret, sizeof(join->secret), export);
	memcpy(join->secret, export, sizeof(join->secret));
}

/* STREAMS comes; before it POSTCOPY may, and then REUSE. */
static int join_streams_wanted(struct receiver *r, struct wire_header *h, struct err *e)
{
	int ret = channel_recv_asked(r->ch, h, e);

	if (!ret && h->type == WIRE_POSTCOPY_ASK) {
		ret = postcopy_reply(r, h, false, e);
		if (!ret)
			ret = channel_recv_asked(r->ch, h, e);
	}
	if (!ret && h->type == WIRE_REUSE && r->features & WIRE_REUSES_SOON) {
		ret = receiver_on_reuse(r, h, e);
		if (!ret)
			ret = channel_recv_asked(r->ch, h, e);
	}
	if (!ret && (h->type != WIRE_STREAMS || h->arg <= r->postcopy.agreed))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s where STREAMS was due",
			      wire_type_name(h->type));
	return ret;
}

/* h: READY, or the answer to RECONNECT; its body is the secret, of which a stream is to know. */
static int join_streams_accept(struct receiver *r, struct wire_header h, struct join *join,
			       struct err *e)
{
	struct tls *tls[WIRE_STREAMS_MAX] = { NULL };
	const struct receive_streams_options o = {
		.writer = &r->writer, .engine = r->o->engine, .tls = tls, .base = r->base,
		.timeout_ms = receiver_patience_ms(r),
		.frame = receiver_on_stream_frame, .arg = r,
	};
	int fds[WIRE_STREAMS_MAX];
	unsigned int streams;
	int ret;

	r->writer.features = r->features;
	r->writer.unpacking = &r->unpacking;
	h.length = WIRE_SECRET;
	ret = channel_send(r->ch, &h, join->secret, e);
	join_streams_secret(r, join);
	if (!ret)
		ret = join_streams_wanted(r, &h, e);
	if (!ret && h.arg > r->o->streams + r->postcopy.agreed)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender wants %u streams, and the receiver allows %u",
			      h.arg, r->o->streams);
	if (ret)
		return ret;
	join->want = h.arg;
	join->keep_keys = tls_is_long(join_streams_ram(r),
				      join->want - r->postcopy.agreed);
	ret = join_streams_wait(r, join, e);
	if (ret)
		return ret;
	join_take(join, fds, tls);
	for (unsigned int i = 0; i < join->want; i++)
		sock_tune(fds[i], o.timeout_ms);
	streams = join->want - r->postcopy.agreed;
	if (r->postcopy.agreed)
		postcopy_connection(r, fds[streams], tls[streams]);
	ret = receive_streams_start(&o, fds, streams, &r->streams, e);
	if (ret)
		return ret;
	ret = receiver_send(r, WIRE_STREAMS, join->want, e);
	/* Not before: a stream that has failed already would interrupt that, without a reason. */
	channel_interrupt(r->ch, receive_streams_failed(r->streams));
	return ret;
}

static int join_streams_begin(struct join *join, const struct receiver *r, struct err *e)
{
	int ret = join_init(join, r->lfd);

	return ret ? err_set(e, GW_INTERNAL, -ret, "cannot get random numbers: %s", strerror(-ret)) : 0;
}

static void join_streams_end(struct join *join, struct receiver *r)
{
	join_close(join);
	/*
	 * From here on a peer that connects is refused. A listener that was passed in
	 * belongs to the process that passed it, too, and stays open.
	 */
	r->lfd_shut = r->o->listen_fd < 0 && !address_refuse(r->o->listen, r->lfd);
}

bool receiver_listen_again(struct receiver *r)
{
	int ret = r->lfd_shut ? address_listen_again(r->o->listen, r->lfd) : 0;

	if (!ret) {
		r->lfd_shut = false;
		return true;
	}
	if (!r->deaf_told)
		say("cannot listen on %s again: %s", r->o->listen,
			strerror(-ret));
	r->deaf_told = true;
	return false;
}

/**
 * struct emptying - the receiver, and when it looks at QEMU again, and says that it lives
 */
struct emptying {
	struct receiver *r;
	uint64_t next_ns;
};

/*
 * It may take minutes, and a guest that another client has QEMU receive meanwhile would lose its
 * RAM. A sender that does not know of signs of life would take a PONG for an error.
 */
static int join_streams_alive(void *arg, struct err *e)
{
	struct emptying *m = arg;
	int ret;

	if (stop_requested())
		return stop_err(e);
	if (now_ns() < m->next_ns)
		return 0;
	m->next_ns = now_ns() + ALIVE_NS;
	ret = migration_check_waits(m->r->qmp, e);
	return ret || !(m->r->features & WIRE_EMPTIES) ? ret : receiver_alive(m->r, e);
}

static int join_streams_empty(struct receiver *r, struct err *e)
{
	struct emptying m = { .r = r, .next_ns = now_ns() + ALIVE_NS };
	const struct ram_alive alive = { .step = join_streams_alive, .arg = &m };

	return ram_writer_open(&r->writer, &r->vm, &alive, e);
}

int join_streams(struct receiver *r, struct err *e)
{
	const struct wire_header ready = {
		.type = WIRE_READY, .flags = r->save_mode ? WIRE_SAVE_MODE : 0,
		.arg = r->o->streams,
	};
	struct join join;
	int ret;

	/*
	 * From here on the receiver writes RAM. Since it first checked, another VMM may have been
	 * started, and QEMU may have got a guest by a migration of its own.
	 */
	ret = owners_check("/proc", &r->vm, OWNERS_DESTINATION, e);
	if (!ret)
		ret = migration_check_waits(r->qmp, e);
	if (!ret)
		ret = join_streams_empty(r, e);
	if (!ret)
		ret = receiver_begin_reuse(r, e);
	if (!ret)
		ret = migration_plan(&r->migration, true, r->save_mode, 0, e);
	if (!ret)
		ret = migration_configure(&r->migration, e);
	if (!ret)
		ret = migration_start(&r->migration, true, e);
	if (!ret)
		ret = join_streams_begin(&join, r, e);
	if (ret)
		return ret;
	memcpy(r->token, join.secret, sizeof(r->token));
	verdict_open(r);
	ret = join_streams_accept(r, ready, &join, e);
	join_streams_end(&join, r);
	return ret;
}

/*
 * The secret is new: a connection that an earlier try has left at the listener joins nothing.
 */
int join_streams_again(struct receiver *r, enum wire_type type, struct err *e)
{
	const struct wire_header answer = {
		.type = type, .arg = type == WIRE_RECONNECT ? r->stands : r->o->streams,
	};
	struct join join;
	int ret = join_streams_begin(&join, r, e);

	if (ret)
		return ret;
	ret = join_streams_accept(r, answer, &join, e);
	join_streams_end(&join, r);
	return ret;
}
