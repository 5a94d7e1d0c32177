// SPDX-License-Identifier: GPL-2.0-only
/*
 * The link is lost in a round, and the sender has said KEEP: the receiver keeps what it has, and
 * waits for RECONNECT.
 *
 * No old byte may be placed once the sender has the answer: it sends newer ones from there on, and
 * counts what the answer names as in place, and no more. So before the receiver listens again all
 * threads of the old streams have ended, and their connections are closed (receiver_disconnect()
 * joins them). What they had not read by then is lost, also if the kernel had acknowledged it, and
 * is of rounds after @stands: a round stands once each stream has written all that came before its
 * end. A page that a thread has written in part, or of a round that does not stand, comes again.
 *
 * Two running copies: while the receiver waits, it has got no DEVICE_END, and its QEMU lacks device
 * state. ASK with the token shows a sender in doubt, which never connects again. So with the answer
 * "dead" the wait ends, and a wait that has ended never begins again (txn/commit.h: DEAD is final).
 * The other way round, a sender says RECONNECT only in PREPARED, and a token names one sender.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "receive/receiver_internal.h"

#define AGAIN_MS	100u
#define LOOK_MS		1000u	/* between two looks at QEMU */

void receiver_disconnect(struct receiver *r)
{
	channel_free(r->ch);
	r->ch = NULL;
	/* Rounds may bring these pages before the sender names others. */
	owed_free(&r->postcopy.early);
	if (r->streams) {
		struct ram_writer_count count;

		receive_streams_stop(r->streams);
		count = receive_streams_count(r->streams);
		r->before.data_pages += count.data_pages;
		r->before.zero_pages += count.zero_pages;
		r->before.reused_pages += count.reused_pages;
	}
	receive_streams_free(r->streams);
	r->streams = NULL;
}

/*
 * Not for a failure of QEMU's or of ours, nor for a sender that has said why it gives up. Nor for
 * one that has sent of QEMU's stream what cannot be sent again, while its guest runs or is about to
 * stop: it gives up, or asks for the verdict. With --pause rounds follow the stream's first part.
 */
static bool reconnect_may(struct receiver *r, const struct err *e)
{
	return r->keep_s && r->state < RECEIVER_HAS_RAM && r->commit == COMMIT_PREPARED &&
	       err_is_link(e) && !(r->precopied && device_state_begun(&r->devstate)) &&
	       !(r->ch && channel_aborted(r->ch)) && !stop_requested();
}

/* 1: serve() has the sender; 0: the time is over; -errno. */
static int receiver_wait_peers(struct receiver *r, uint64_t until, receiver_serve_fn *serve,
			       struct err *e)
{
	struct wire_header h;
	int ret = 0;

	while (!ret && now_ns() < until) {
		uint64_t look = deadline_ms(LOOK_MS);
		struct err why = { 0 };

		/* A QEMU that is about to exit may wait for a page: the module tells of it then. */
		if (postcopy_vm_gone(r, 0, e))
			return -ESRCH;
		if (r->commit == COMMIT_RUNS)
			postcopy_attend(r);
		if (stop_requested())
			return stop_err(e);
		/* The address may be free again. */
		if (!receiver_listen_again(r)) {
			nap_ms(AGAIN_MS);
			continue;
		}
		/*
		 * What has come has time for its greeting: a sender that comes again each second
		 * would else come at the end of each look, and never be heard.
		 */
		if (!receiver_greet(r, &h, look < until ? look : until, until, &why))
			ret = serve(r, &h, e);
		else if (why.exit)
			nap_ms(AGAIN_MS);	/* no descriptor or memory was free just then */
	}
	return ret;
}

int receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	int ret;

	r->waits = true;
	ret = receiver_wait_peers(r, until, serve, e);
	r->waits = false;
	return ret;
}

/* Not told to a sender whose link was lost again: for that an ABORT would be the end. */
static void reconnect_reject(struct receiver *r, const struct err *why)
{
	if (r->ch && !err_is_link(why))
		channel_abort(r->ch, why);
	receiver_disconnect(r);
	say_out("still waiting for the sender; rejected a connection: %s", why->text);
}

/* RECONNECT has come: 0: the streams have joined. */
static int reconnect_join(struct receiver *r, const struct wire_header *h, struct err *e)
{
	uint8_t token[WIRE_SECRET];
	int ret = channel_body(r->ch, token, sizeof(token), e);

	if (!ret && !join_secret_ok(token, r->token))
		ret = err_set(e, GW_NO_MIGRATION, ESRCH, "this receiver waits for the sender of another migration");
	/* Rounds count on from there: the sender has begun all that have been seen here. */
	if (!ret && (h->arg < r->base || h->arg < r->res->rounds || h->arg < r->stands))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender says that round %u is the latest, after round %llu",
			      h->arg, (unsigned long long)r->res->rounds);
	if (ret)
		return ret;
	channel_set_timeout(r->ch, receiver_patience_ms(r));
	r->base = h->arg;
	receiver_refused_again(r);
	return join_streams_again(r, WIRE_RECONNECT, e);
}

/* Serves a peer that has said HELLO. 1: the sender is back; 0: it waits on; -errno: it is over. */
static int reconnect_serve(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct err why = { 0 };

	if (h->type == WIRE_ASK) {
		r->sender = verdict_reply(r);
		if (r->commit == COMMIT_PREPARED)
			return 0;
		return err_set(e, GW_LINK_LOST, ENOTCONN, "the sender has given up");
	}
	if (h->type != WIRE_RECONNECT) {
		err_set(&why, GW_BUSY, EBUSY, "this receiver is busy: it waits for a sender that has lost its link; start another receiver");
	} else if (!reconnect_join(r, h, &why)) {
		return 1;
	} else if (stop_requested()) {
		return stop_err(e);
	}
	reconnect_reject(r, &why);
	return 0;
}

/*
 * Nothing prolongs it, not even a sender that gets through, and whose rounds do not; nor the round
 * trip, which a stranger could make long.
 */
static uint64_t reconnect_until(struct receiver *r)
{
	if (!r->lost_ns)
		r->lost_ns = now_ns();
	return r->lost_ns + r->keep_s * 1000000000ull;
}

int reconnect(struct receiver *r, int ret, struct err *e)
{
	struct err lost = *e;
	int back;

	if (!reconnect_may(r, e))
		return ret;
	say_out("%s: waiting %u s for the sender to connect again", lost.text, r->keep_s);
	receiver_disconnect(r);
	*e = (struct err) { 0 };
	back = receiver_wait_again(r, reconnect_until(r), reconnect_serve, e);
	if (back < 0) {
		/* The peer that is connected now may be a stranger: it is told nothing. */
		receiver_disconnect(r);
		return back;
	}
	if (back > 0) {
		r->state = RECEIVER_ROUNDS;
		say_out("the sender has connected again");
		return 0;
	}
	/* A peer may have been under way. */
	receiver_disconnect(r);
	return err_set(e, lost.exit, ENOTCONN, "%.400s; the sender did not connect again within %u s",
		       lost.text, r->keep_s);
}
