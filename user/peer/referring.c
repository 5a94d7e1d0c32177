// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "page/page.h"
#include "peer/referring.h"

#define ASKED_MAX	4u	/* WANT_HASHES at a time: 128 MiB of RAM */

static int referring_send_reuse(struct channel *ch, bool wants_secret, struct err *e)
{
	const struct wire_header ask = { .type = WIRE_REUSE, .arg = wants_secret };

	return channel_send(ch, &ask, NULL, e);
}

/* Waits for the answer. @body: of the frame; @secret: in it, or NULL */
static int referring_reuse(struct channel *ch, bool wants_secret, struct wire_header *h,
			   uint64_t *most, uint8_t body[WIRE_REUSE_HEAD + WIRE_REUSE_SECRET],
			   const uint8_t **secret, struct err *e)
{
	int r = channel_expect(ch, WIRE_REUSE, h, e);

	if (!r)
		r = channel_body(ch, body, h->length, e);
	if (!r && (wire_get_reuse(h, body, most, secret) ||
		   !*secret != !(wants_secret && h->arg != WIRE_REUSE_NONE)))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed REUSE frame");
	return r;
}

int referring_look(struct channel *ch, struct referring_there *there, struct err *e)
{
	uint8_t body[WIRE_REUSE_HEAD + WIRE_REUSE_SECRET];
	const uint8_t *secret;
	struct wire_header h;
	int r = referring_send_reuse(ch, false, e);

	if (!r)
		r = referring_reuse(ch, false, &h, &there->entries, body, &secret, e);
	there->kind = r ? WIRE_REUSE_NONE : (enum wire_reuse_kind)h.arg;
	return r;
}

int referring_want(struct channel *ch, struct err *e)
{
	return referring_send_reuse(ch, true, e);
}

int referring_begin(struct referring *r, struct channel *ch, const uint64_t *pages,
		    unsigned int blocks, uint64_t memory, struct err *e)
{
	uint8_t body[WIRE_REUSE_HEAD + WIRE_REUSE_SECRET];
	const uint8_t *secret;
	struct wire_header h;
	uint64_t most;
	bool ok = true;
	int ret = referring_reuse(ch, true, &h, &most, body, &secret, e);

	if (ret || h.arg == WIRE_REUSE_NONE)
		return ret;
	r->blocks = blocks;
	memcpy(r->pages, pages, blocks * sizeof(*pages));
	for (unsigned int i = 0; i < blocks && ok; i++) {
		r->refused[i] = calloc(pages[i] / 64 + 1, sizeof(*r->refused[i]));
		r->counted[i] = calloc(pages[i] / 64 + 1, sizeof(*r->counted[i]));
		ok = r->refused[i] && r->counted[i];
	}
	if (ok)
		r->table = reuse_table_new((enum wire_reuse_kind)h.arg, secret, most, memory);
	explicit_bzero(body, sizeof(body));
	return 0;
}

void referring_free(struct referring *r)
{
	reuse_table_free(r->table);
	for (unsigned int i = 0; i < r->blocks; i++) {
		free(r->refused[i]);
		free(r->counted[i]);
	}
	*r = (struct referring) { .blocks = 0 };
}

int referring_ask(struct referring *r, struct channel *ch, struct err *e)
{
	struct wire_header h = { .type = WIRE_WANT_HASHES, .length = 8 };
	uint64_t room, first;
	uint8_t body[8];
	int ret = 0;

	if (!r->table || r->complete || r->asked || atomic_load(&r->off))
		return 0;
	room = reuse_table_room(r->table);
	first = reuse_table_entries(r->table);
	r->complete = !room;
	for (; room && r->asked < ASKED_MAX && !ret; r->asked++) {
		h.arg = room < WIRE_ENTRIES_FRAME ? (uint32_t)room : WIRE_ENTRIES_FRAME;
		wire_put_u64(body, first);
		ret = channel_send(ch, &h, body, e);
		room -= h.arg;
		first += h.arg;
	}
	return ret;
}

void referring_disconnect(struct referring *r)
{
	r->asked = 0;
}

static int referring_hashes(struct referring *r, struct channel *ch, const struct wire_header *h,
			    struct err *e)
{
	uint8_t *body = malloc(h->length);
	struct wire_hashes x;
	int ret;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	ret = channel_body(ch, body, h->length, e);
	if (!ret && (wire_get_hashes(h, body, &x) || h->arg > reuse_table_room(r->table)))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed HASHES frame");
	if (!ret) {
		const uint64_t next = reuse_table_entries(r->table);

		r->asked--;
		r->index_ns = x.ns;
		r->left_out = x.left_out;
		/* Of what was asked for behind entries that were not there yet. */
		if (x.first == next)
			reuse_table_take(r->table, body + WIRE_HASHES_HEAD, h->arg);
		if (!(h->flags & WIRE_MORE) && x.first == next)
			r->complete = true;
	}
	free(body);
	return ret ? ret : 1;
}

static void referring_count(struct referring *r, const struct wire_extent *x)
{
	uint64_t *map = r->counted[x->block];

	for (uint64_t page = x->first; page < x->first + x->pages; page++) {
		const uint64_t bit = 1ull << page % 64;

		r->refused_pages += !(map[page / 64] & bit);
		map[page / 64] |= bit;
	}
}

static int referring_refused(struct referring *r, struct channel *ch, const struct wire_header *h,
			     struct err *e)
{
	uint8_t body[WIRE_REFUSED_MAX * WIRE_EXTENT];
	struct wire_extent x[WIRE_REFUSED_MAX];
	int ret = channel_body(ch, body, h->length, e);

	if (!ret && wire_get_refused(h, body, r->pages, r->blocks, x))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed REFUSED frame");
	if (ret)
		return ret;
	for (uint32_t i = 0; i < h->arg; i++) {
		bitmap_set(r->refused[x[i].block], x[i].first, x[i].pages);
		referring_count(r, &x[i]);
	}
	r->waiting = true;
	atomic_store(&r->off, true);
	return 1;
}

int referring_take(struct referring *r, struct channel *ch, const struct wire_header *h,
		   struct err *e)
{
	if (!r->table)
		return 0;
	if (h->type == WIRE_HASHES)
		return r->asked ? referring_hashes(r, ch, h, e) : 0;
	if (h->type != WIRE_REFUSED || !atomic_load(&r->referred))
		return 0;
	return referring_refused(r, ch, h, e);
}

bool referring_again(struct referring *r, struct delta *delta, uint64_t *const *map)
{
	const bool some = r->waiting;

	for (unsigned int i = 0; i < r->blocks && some; i++) {
		struct bitmap_runs walk = { .map = r->refused[i], .nbits = r->pages[i] };
		struct run run = { 0, 0 };

		while (bitmap_runs_next(&walk, run.first + run.count, &run)) {
			bitmap_set(map[i], run.first, run.count);
			if (delta)
				delta_forget(delta, i, run.first, run.count);
		}
		memset(r->refused[i], 0, (r->pages[i] / 64 + 1) * sizeof(*r->refused[i]));
	}
	r->waiting = false;
	return some;
}
