/* SPDX-License-Identifier: GPL-2.0-only */
/* The sender that comes while such a receiver waits, after a loss of the link. Wraps receiver_wait_again(). Include after cmocka.h. */
#ifndef GODWIT_RECOVER_SCENE_H
#define GODWIT_RECOVER_SCENE_H

#include "guest_lost_scene.h"

#define SILENCE	0

static const uint8_t other[WIRE_SECRET] = "of another one", zeros[WIRE_SECRET];

static struct channel *comes;

int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);

/* The one peer that comes while it waits. */
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	const struct wire_header h = { .type = WIRE_RECOVER, .length = WIRE_SECRET };

	(void)until;
	r->ch = comes;
	return serve(r, &h, e);
}

static int wait_for(struct scene *s)
{
	struct err e = { 0 };

	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	comes = s->r.ch;
	s->r.ch = NULL;
	s->r.postcopy.lazy.owed.left = 1;
	return recover(&s->r, -ECONNRESET, &e);
}

#endif
