// SPDX-License-Identifier: GPL-2.0-only
/*
 * Answers a preflight check. The receiver goes on listening afterwards, whatever the result. It
 * does not touch guest RAM, and changes nothing in QEMU.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/say.h"
#include "receive/receiver_internal.h"

static int check_reply_checked(struct receiver *r, struct err *e)
{
	struct wire_header h = {
		.type = WIRE_CHECKED,
		.flags = r->save_mode ? WIRE_SAVE_MODE : 0,
		.arg = r->o->streams,
		.length = 8,
	};
	uint8_t body[8];

	wire_put_u64(body, qmp_version(r->qmp));
	return channel_send(r->ch, &h, body, e);
}

static int check_reply_drop(struct receiver *r, const struct wire_header *h, struct err *e)
{
	static uint8_t dropped[WIRE_PROBE_MAX];

	return channel_body(r->ch, dropped, h->length, e);
}

static int check_reply_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	switch (h->type) {
	case WIRE_PING:
		return receiver_pong(r, h, e);
	case WIRE_PROBE:
		return check_reply_drop(r, h, e);
	case WIRE_REUSE:
		/* The secret is for the sender that will refer to pages: anybody may check. */
		if (h->arg)
			break;
		return receiver_on_reuse(r, h, e);
	case WIRE_POSTCOPY_ASK:
		return postcopy_reply(r, h, true, e);
	default:
		break;
	}
	return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s in a preflight check",
		       wire_type_name(h->type));
}

void check_reply(struct receiver *r, const struct wire_header *check)
{
	/* A check keeps a sender out meanwhile: no longer than a silent sender would. */
	uint64_t deadline = deadline_ms(receiver_patience_ms(r));
	struct wire_header h;
	struct err e = { 0 };
	int ret = agree_ram(r, check, &e);

	if (!ret)
		ret = check_reply_checked(r, &e);
	while (!ret) {
		if (now_ns() > deadline)
			ret = err_set(&e, GW_TIMEOUT, ETIMEDOUT, "the preflight check took longer than %u s",
				      receiver_patience_ms(r) / 1000);
		else
			ret = channel_recv(r->ch, &h, false, &e);
		if (!ret)
			ret = check_reply_frame(r, &h, &e);
	}
	/* The sender ends a check by closing the connection. */
	if (e.exit == GW_LINK_LOST) {
		say_out("answered a preflight check");
	} else {
		channel_abort(r->ch, &e);
		say_out("refused a preflight check: %s", e.text);
	}
	channel_free(r->ch);
	r->ch = NULL;
}
