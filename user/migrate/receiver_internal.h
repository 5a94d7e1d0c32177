/* SPDX-License-Identifier: GPL-2.0-only */
/* The receiver's state, shared by admit.c (until all connections stand), answer.c (a check) and receiver.c (what comes over them). */
#ifndef GODWIT_RECEIVER_INTERNAL_H
#define GODWIT_RECEIVER_INTERNAL_H

#include "io/channel.h"
#include "io/door.h"
#include "migrate/devram.h"
#include "migrate/lanes.h"
#include "migrate/place.h"
#include "migrate/receiver.h"
#include "migrate/verify.h"
#include "vmm/migration.h"
#include "vmm/vm.h"

/**
 * struct receiver
 * @lfd: the listener, until all streams have joined; -1: none
 * @private: QEMU's, numbered as the sender does
 * @saved: the device state that comes was saved, not migrated
 * @last: the last round is in place
 * @committed: no RAM is written any more
 * @state_came: some of the device state itself has been passed on, behind COMMIT
 * @handed_over: QEMU has been given all
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
	struct private_ram private;
	bool saved;
	bool last;
	bool committed;
	bool state_came;
	bool handed_over;
};

/* A frame without a body. */
int receiver_send(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e);
int receiver_pong(struct receiver *r, const struct wire_header *h, struct err *e);

/* Listens until a sender comes, and agrees with it on version and RAM. Who only asks is answered meanwhile. */
int admit_sender(struct receiver *r, struct err *e);
/* Compares the sender's RAM blocks, the body of BLOCKS or CHECK, with ours, and numbers ours like them. */
int agree_on_ram(struct receiver *r, const struct wire_header *h, struct err *e);
/* Serves a check to its end; r->ch is closed then. */
void answer_check(struct receiver *r, const struct wire_header *check);
/* Lets its streams in. */
int admit_streams(struct receiver *r, struct err *e);

#endif
