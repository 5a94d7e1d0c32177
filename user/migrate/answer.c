// SPDX-License-Identifier: GPL-2.0-only
/*
 * Who only asks is answered, and the receiver goes on listening, however that ends. Guest RAM and QEMU are not touched.
 */
#include <errno.h>
#include <stdio.h>

#include "io/sock.h"
#include "migrate/receiver_internal.h"

static int checked(struct receiver *r, struct err *e)
{
	struct wire_header h = { .type = WIRE_CHECKED, .flags = r->saved ? WIRE_SAVED : 0, .arg = r->o->streams, .length = 8 };
	uint8_t body[8];

	wire_put_u64(body, qmp_version(r->qmp));
	return channel_send(r->ch, &h, body, e);
}

static int drop(struct receiver *r, const struct wire_header *h, struct err *e)
{
	static uint8_t dropped[WIRE_PROBE_MAX];

	return channel_body(r->ch, dropped, h->length, e);
}

static int on_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	switch (h->type) {
	case WIRE_PING:
		return receiver_pong(r, h, e);
	case WIRE_PROBE:
		return drop(r, h, e);
	default:
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s in a check", wire_type_name(h->type));
	}
}

void answer_check(struct receiver *r, const struct wire_header *check)
{
	/* A check holds up a guest that comes meanwhile: no longer than a silent sender would. */
	uint64_t deadline = deadline_ms(r->o->timeout_ms);
	struct wire_header h;
	struct err e = { 0 };
	int ret = agree_on_ram(r, check, &e);

	if (!ret)
		ret = checked(r, &e);
	while (!ret) {
		if (now_ns() > deadline)
			ret = err_set(&e, GW_TIMEOUT, ETIMEDOUT, "a check takes no longer than %u s", r->o->timeout_ms / 1000);
		else
			ret = channel_recv(r->ch, &h, false, &e);
		if (!ret)
			ret = on_frame(r, &h, &e);
	}
	/* Its end is how a check ends. */
	if (e.exit == GW_LINK_LOST) {
		printf("godwit: a check was answered\n");
	} else {
		channel_abort(r->ch, &e);
		printf("godwit: a check was refused: %s\n", e.text);
	}
	fflush(stdout);
	channel_free(r->ch);
	r->ch = NULL;
}
