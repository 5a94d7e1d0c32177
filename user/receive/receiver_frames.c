// SPDX-License-Identifier: GPL-2.0-only
/* The frames of a migration under way. wire.h says which frame may come when. */
#include <errno.h>

#include "base/clock.h"
#include "fit/fit.h"
#include "receive/load.h"
#include "receive/receiver_internal.h"

int receiver_send(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e)
{
	struct wire_header h = { .type = (uint16_t)type, .arg = arg };

	return channel_send(r->ch, &h, NULL, e);
}

static int receiver_send_load(struct receiver *r, struct err *e)
{
	if (!(r->features & WIRE_LOADS) || !r->streams || r->state >= RECEIVER_HAS_RAM)
		return 0;
	return receiver_send(r, WIRE_LOAD, receive_streams_load(r->streams), e);
}

static int receiver_send_pong(struct receiver *r, uint32_t serial, struct err *e)
{
	struct wire_header pong = { .type = WIRE_PONG, .arg = serial, .length = 8 };
	int ret = receiver_send_load(r, e);
	uint8_t body[8];

	wire_put_u64(body, realtime_ns());
	return ret ? ret : channel_send(r->ch, &pong, body, e);
}

int receiver_pong(struct receiver *r, const struct wire_header *h, struct err *e)
{
	uint8_t body[8];
	int ret = channel_body(r->ch, body, sizeof(body), e);

	return ret ? ret : receiver_send_pong(r, h->arg, e);
}

int receiver_alive(void *arg, struct err *e)
{
	return receiver_send_pong(arg, 0, e);
}

int receiver_alive_anyway(void *arg, struct err *e)
{
	struct err ignored = { 0 };

	(void)e;
	receiver_alive(arg, &ignored);
	return 0;
}

static int receiver_on_round(struct receiver *r, const struct wire_header *h, struct err *e)
{
	const bool last = h->flags & WIRE_ROUND_LAST, late = r->state >= RECEIVER_SWITCHES;
	const struct receive_wait w = {
		.alive = late ? receiver_alive_anyway : receiver_alive, .arg = r, .always = last,
	};
	struct err ignored = { 0 };
	struct qmp_event ev;
	int ret;

	/* Notices a QEMU that has exited here, not in the blackout. */
	while ((ret = qmp_event(r->qmp, 0, &ev, e)) > 0)
		;
	/* A round from before the link was lost cannot end any more. */
	if (!ret && h->arg <= r->base)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent ROUND %u after round %u",
			      h->arg, r->base);
	r->res->rounds = h->arg;
	if (!ret && r->state >= RECEIVER_HAS_RAM)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent ROUND after the last round");
	/* RAM that comes now would be punched out. */
	if (!ret && r->postcopy.early.blocks)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent ROUND between OWED and SWITCHOVER");
	if (last)
		reuse_index_rest(r->reuse);
	if (late)
		channel_keep_unread(r->ch);
	if (!ret && last && r->state < RECEIVER_SWITCHES)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent the last ROUND without SWITCHOVER");
	if (!ret)
		ret = receive_streams_wait_round(r->streams, h->arg, last, &w, e);
	if (ret)
		return ret;
	/* Nobody would send that again. */
	if (last && atomic_load(&r->writer.refused_pages) > r->told_pages)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender referred in the last round to pages that %s has no more",
			      r->o->reuse);
	if (!ret && last && r->postcopy.announced)
		ret = postcopy_begin(r, e);
	if (!ret && !last)
		ret = receiver_tell_refused(r, e);
	if (ret)
		return ret;
	if (last) {
		r->state = RECEIVER_HAS_RAM;
		return 0;
	}
	/* Also if the ACK is lost. */
	r->stands = h->arg;
	r->lost_ns = 0;
	ret = receiver_send(r, WIRE_ACK, h->arg, late ? &ignored : e);
	return late ? 0 : ret;
}

/*
 * A control connection that has broken since the sender may send all the rest is read to its end:
 * DEVICE_END may be in it, behind this PING. If it is not, the end of what can be read is the
 * error.
 */
static int receiver_on_ping(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct err ignored = { 0 };
	uint8_t body[8];
	int ret;

	if (r->state < RECEIVER_SWITCHES)
		return receiver_pong(r, h, e);
	channel_keep_unread(r->ch);
	ret = channel_body(r->ch, body, sizeof(body), e);
	if (!ret)
		receiver_send_pong(r, h->arg, &ignored);
	return ret;
}

static int receiver_on_keep(struct receiver *r, const struct wire_header *h, struct err *e)
{
	if (!(r->features & WIRE_RECONNECTS) || r->keep_s || r->res->rounds ||
	    r->state != RECEIVER_ROUNDS)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent KEEP at the wrong time");
	r->keep_s = h->arg;
	return 0;
}

static int receiver_on_switchover(struct receiver *r, const struct wire_header *h, struct err *e)
{
	/* It may find out later that rounds do not help, and name what it will owe. */
	const bool owes = h->flags & WIRE_OWING &&
			  (!r->postcopy.announced || r->postcopy.early.blocks);
	int ret = 0;

	if (r->state != RECEIVER_ROUNDS && !(r->state == RECEIVER_SWITCHES && owes))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent SWITCHOVER twice");
	if (h->flags & WIRE_OWING)
		ret = postcopy_announced(r, e);
	else if (r->postcopy.announced)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender announced that it would owe pages, and takes that back");
	/* Of rounds whose ACK was lost. */
	if (!ret)
		ret = receiver_tell_refused(r, e);
	if (ret)
		return ret;
	/* Said again after a loss that was survived it tells nothing new. */
	if (!device_state_begun(&r->devstate))
		r->precopied = r->stands;
	/*
	 * Before the answer leaves: with it the sender may send all the rest: receiver_give_up().
	 */
	r->state = RECEIVER_SWITCHES;
	return receiver_send(r, WIRE_SWITCHOVER, 0, e);
}

static int receiver_on_commit(struct receiver *r, struct err *e)
{
	if (r->state < RECEIVER_HAS_RAM)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent COMMIT before the last round");
	r->state = RECEIVER_COMMITTED;
	return 0;
}

/* What DEVICE_END counts on. */
struct wanted_end {
	struct receiver *r;
	uint64_t bytes;
	uint32_t verify;
};

static int receiver_end_there(void *arg, struct err *e)
{
	const struct wanted_end *w = arg;
	int ret = device_state_complete(&w->r->devstate, w->bytes, e);

	return ret == 1 ? verify_complete(&w->r->vm, &w->r->verify, w->verify, e) : ret;
}

/*
 * Waits for what DEVICE_END counts on, and refuses what is incomplete: until here nothing has gone
 * to QEMU that makes its guest run. A slow stream is waited for as long as frames come; one that
 * dies or is silent ends the migration, and what lies about its bytes finds no way around these
 * counts. The control connection may have broken meanwhile: it is not needed any more.
 */
static int receiver_on_end(struct receiver *r, const struct wire_header *h, struct err *e)
{
	const struct receive_wait w = { .alive = receiver_alive_anyway, .arg = r, .always = true };
	struct wanted_end wanted = { .r = r, .verify = h->arg };
	uint8_t body[WIRE_PLACE];
	int ret;

	if (r->state != RECEIVER_COMMITTED)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent DEVICE_END without COMMIT");
	ret = channel_body(r->ch, body, sizeof(body), e);
	if (ret)
		return ret;
	wanted.bytes = wire_get_u64(body);
	ret = receive_streams_wait(r->streams, receiver_end_there, &wanted, &w, e);
	if (ret)
		return ret;
	/* With pages owed the streams go on. */
	if (!r->postcopy.begun)
		receive_streams_finish(r->streams);
	r->runs = h->flags & WIRE_RUNS;
	return 1;
}

int receiver_on_stream_frame(void *arg, struct channel *ch, const struct wire_header *h,
			     bool placed, struct err *e)
{
	struct receiver *r = arg;

	switch (h->type) {
	case WIRE_DEVICE:
		/* In save mode there is nothing that QEMU may have before the commit point. */
		if (r->save_mode && !(h->flags & WIRE_HELD))
			break;
		return device_state_frame(&r->devstate, ch, h, r->migration.stream,
					  r->o->timeout_ms, e);
	case WIRE_OWED:
		if (placed)
			break;
		return postcopy_owed(r, ch, h, e);
	case WIRE_PRIVATE:
		if (placed || !r->save_mode)
			break;
		return private_ram_frame(ch, h, &r->private, e);
	case WIRE_VERIFY:
		if (!placed)
			break;
		return verify_frame(&r->vm, ch, h, r->writer.pages, &r->verify, e);
	default:
		break;
	}
	return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s on a stream %s the last round",
		       wire_type_name(h->type), placed ? "behind" : "before");
}

int receiver_on_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	if (r->state == RECEIVER_COMMITTED && h->type != WIRE_DEVICE_END && h->type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s after COMMIT",
			       wire_type_name(h->type));
	switch (h->type) {
	case WIRE_ROUND:
		return receiver_on_round(r, h, e);
	case WIRE_PING:
		return receiver_on_ping(r, h, e);
	case WIRE_ASK_VIEW:
		if (r->state >= RECEIVER_HAS_RAM)
			break;
		return fit_answer(r->ch, r->qmp, &r->vm, &r->known, h->flags, e);
	case WIRE_PRIVATE:
		/* Before the first round: what comes later comes on a stream. */
		if (!r->save_mode || r->res->rounds)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent PRIVATE %s",
				       r->save_mode ? "after a round" : "without save mode");
		return private_ram_frame(r->ch, h, &r->private, e);
	case WIRE_KEEP:
		return receiver_on_keep(r, h, e);
	case WIRE_REUSE:
	case WIRE_WANT_HASHES:
		if (r->state >= RECEIVER_HAS_RAM || !(r->features & WIRE_REUSES))
			break;
		return h->type == WIRE_REUSE ? receiver_on_reuse(r, h, e) :
					       receiver_on_want_hashes(r, h, e);
	case WIRE_SWITCHOVER:
		return receiver_on_switchover(r, h, e);
	case WIRE_OWED:
		return postcopy_early(r, h, e);
	case WIRE_COMMIT:
		return receiver_on_commit(r, e);
	case WIRE_DEVICE_END:
		return receiver_on_end(r, h, e);
	default:
		break;
	}
	return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s at the wrong time",
		       wire_type_name(h->type));
}
