// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "peer/postcopy_ask.h"
#include "wire/blocks.h"
#include "wire/owed.h"

static int postcopy_refused(struct channel *ch, const struct wire_header *h, struct err *e)
{
	char text[WIRE_TEXT_MAX + 1], line[WIRE_TEXT_MAX + 1];
	int r = channel_body(ch, text, h->length, e);

	if (r)
		return r;
	text[h->length] = '\0';
	return err_set(e, h->arg < GW_EXITS ? (enum gw_exit)h->arg : GW_PEER_FAILED, EOPNOTSUPP,
		       "the receiver cannot do post-copy: %.900s", one_line(line, sizeof(line), text));
}

int postcopy_ask_send(struct channel *ch, uint64_t features, struct err *e)
{
	const struct wire_header h = { .type = WIRE_POSTCOPY_ASK };

	if (!(features & WIRE_POSTCOPY))
		return err_set(e, GW_VERSION, EPROTONOSUPPORT, "the receiver's godwit is too old for --postcopy: install the same version at both ends");
	return channel_send(ch, &h, NULL, e);
}

int postcopy_ask_take(struct channel *ch, uint32_t *unit, unsigned int blocks, struct err *e)
{
	struct wire_header h;
	uint8_t body[WIRE_BLOCKS_MAX * WIRE_UNIT];
	int r = channel_recv_asked(ch, &h, e);

	if (r)
		return r;
	if (h.type == WIRE_CANNOT)
		return postcopy_refused(ch, &h, e);
	if (h.type != WIRE_POSTCOPY_ASK || h.arg != blocks)
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s where POSTCOPY was due",
			       wire_type_name(h.type));
	r = channel_body(ch, body, h.length, e);
	if (!r && wire_get_units(&h, body, unit, blocks))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed POSTCOPY frame");
	return r;
}

int postcopy_ask(struct channel *ch, uint64_t features, uint32_t *unit, unsigned int blocks,
		 struct err *e)
{
	int r = postcopy_ask_send(ch, features, e);

	return r ? r : postcopy_ask_take(ch, unit, blocks, e);
}

int postcopy_answer(struct channel *ch, const uint32_t *unit, unsigned int blocks,
		    const struct err *why, struct err *e)
{
	struct wire_header h = { .type = WIRE_POSTCOPY_ASK };
	uint8_t body[WIRE_BLOCKS_MAX * WIRE_UNIT];

	if (why->exit) {
		h.type = WIRE_CANNOT;
		h.arg = why->exit;
		h.length = (uint32_t)strlen(why->text);
		if (h.length > WIRE_TEXT_MAX)
			h.length = WIRE_TEXT_MAX;
		return channel_send(ch, &h, why->text, e);
	}
	h.arg = blocks;
	h.length = blocks * WIRE_UNIT;
	wire_put_units(body, unit, blocks);
	return channel_send(ch, &h, body, e);
}
