// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "net/outbox.h"

int outbox_add(struct outbox *o, const struct wire_header *h, const void *body, bool first)
{
	struct outbox_list *l = first ? &o->first : &o->any;
	struct outbox_frame *f = malloc(sizeof(*f) + h->length);

	if (!f)
		return -ENOMEM;
	f->next = NULL;
	f->h = *h;
	memcpy(f->body, body, h->length);
	if (l->head)
		l->last->next = f;
	else
		l->head = f;
	l->last = f;
	o->bytes += h->length;
	o->frames++;
	return 0;
}

bool outbox_has(const struct outbox *o, unsigned int stream)
{
	return o->any.head || (!stream && o->first.head);
}

struct outbox_frame *outbox_take(struct outbox *o, unsigned int stream, bool any)
{
	struct outbox_list *l = !stream && o->first.head ? &o->first : &o->any;
	struct outbox_frame *f = any || l == &o->first ? l->head : NULL;

	if (f)
		l->head = f->next;
	return f;
}

void outbox_sent(struct outbox *o, struct outbox_frame *f)
{
	o->bytes -= f->h.length;
	o->frames--;
	free(f);
}

void outbox_free(struct outbox *o)
{
	struct outbox_frame *f;

	while ((f = outbox_take(o, 0, true)))
		outbox_sent(o, f);
}
