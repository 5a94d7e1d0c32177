/* SPDX-License-Identifier: GPL-2.0-only */
/* POSTCOPY: may pages be owed at the receiver? (wire/owed.h) */
#ifndef GODWIT_POSTCOPY_ASK_H
#define GODWIT_POSTCOPY_ASK_H

#include "net/channel.h"

/**
 * postcopy_ask() - asks the receiver, and waits for its answer
 * @features: those that both ends offer
 * @unit: out: of each block
 * Errors: GW_VERSION (-EPROTONOSUPPORT): the receiver is too old; -EOPNOTSUPP: it cannot, with its
 * own exit status and reason: after both the connection goes on. GW_BAD_PEER, the channel's.
 */
int postcopy_ask(struct channel *ch, uint64_t features, uint32_t *unit, unsigned int blocks,
		 struct err *e);
/* The two halves of it: other frames may travel in between. */
int postcopy_ask_send(struct channel *ch, uint64_t features, struct err *e);
int postcopy_ask_take(struct channel *ch, uint32_t *unit, unsigned int blocks, struct err *e);
/* The receiver's answer: unit of each block; or, if there is an error, why not. */
int postcopy_answer(struct channel *ch, const uint32_t *unit, unsigned int blocks,
		    const struct err *why, struct err *e);

#endif
