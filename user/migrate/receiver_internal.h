/* SPDX-License-Identifier: GPL-2.0-only */
/* The receiver's state, shared by admit.c (until all connections stand), answer.c (a check) and receiver.c (what comes over them). */
#ifndef GODWIT_RECEIVER_INTERNAL_H
#define GODWIT_RECEIVER_INTERNAL_H

#include "claim/claim.h"
#include "io/channel.h"
#include "io/door.h"
#include "migrate/devram.h"
#include "migrate/lanes.h"
#include "migrate/place.h"
#include "migrate/receiver.h"
#include "migrate/verify.h"
#include "txn/commit.h"
#include "txn/record.h"
#include "vmm/migration.h"
#include "vmm/vm.h"

/**
 * struct receiver
 * @lfd: the listener; -1: none. @mute: it refuses connections since all streams have joined
 * @own: a block of ours that is the source's own RAM file; NULL: none is, or the sender does not say
 * @private: QEMU's, numbered as the sender does
 * @saved: the device state that comes was saved, not migrated
 * @last: the last round is in place, so the sender may end the migration at any moment
 * @committed: COMMIT has come: no RAM is written any more, and the device state is kept in @state, a memfd
 * @runs: the guest ran at the source, and is to run here
 * @commit: see txn/commit.h
 * @resumed_ns: QEMU's RESUME, CLOCK_REALTIME
 * @told: the sender knows how it ended. @closed: it has closed its end, or given up, so it does if
 *	it lives
 * @verdicts: the sender may ask by @token, and @record answers, also when we are gone
 */
struct receiver {
	const struct receiver_options *o;
	struct receiver_result *res;
	struct qmp *qmp;
	struct vm vm;
	struct migration migration;
	struct placement place;
	struct verify_result verify;
	struct channel *ch;
	struct lanes *lanes;
	int lfd;
	bool mute;
	const struct ram_block *own;
	struct private_ram private;
	bool saved;
	bool last;
	bool committed;
	bool runs;
	int state;
	uint64_t state_bytes;
	enum commit_state commit;
	uint64_t resumed_ns;
	bool verdicts;
	uint8_t token[WIRE_SECRET];
	struct record record;
	struct claim claim;
	bool told, closed;
};

/* A frame without a body. */
int receiver_send(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e);
int receiver_pong(struct receiver *r, const struct wire_header *h, struct err *e);

/* Until somebody comes who says HELLO, and what else: *h. until_ns: 0, or when to give up (-ETIMEDOUT, *e is left alone). */
int receiver_greet(struct receiver *r, struct wire_header *h, uint64_t until_ns, struct err *e);
/* Listens until a sender comes, and agrees with it on version and RAM. Who only asks is answered meanwhile. */
int admit_sender(struct receiver *r, struct err *e);
/* Compares the sender's RAM blocks, the body of BLOCKS or CHECK, with ours, and numbers ours like them. */
int agree_on_ram(struct receiver *r, const struct wire_header *h, struct err *e);
/* Serves a check to its end; r->ch is closed then. */
void answer_check(struct receiver *r, const struct wire_header *check);
/* Lets its streams in. */
int admit_streams(struct receiver *r, struct err *e);

/* The verdict on this migration, from now on; for whoever asks, also when we have been killed. */
void verdict_open(struct receiver *r);
void verdict_write(struct receiver *r);
/*
 * Serves ASK, whose header has come, to its end; r->ch is closed then. Return: it was about this
 * migration, and is final.
 */
bool verdict_reply(struct receiver *r);
/* The sender may not know how it ended: waits for it to ask. */
void verdict_linger(struct receiver *r);

#endif
