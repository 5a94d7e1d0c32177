/* SPDX-License-Identifier: GPL-2.0-only */
/* The first words to a receiver, for whoever migrates and for whoever only asks. */
#ifndef GODWIT_HELLO_H
#define GODWIT_HELLO_H

#include "err.h"
#include "io/channel.h"
#include "vmm/private.h"
#include "vmm/vm.h"

/**
 * hello() - connect, and agree on version and features
 * @addr: the receiver's ADDR:PORT
 * @agreed: see hello_exchange()
 * @out: the control connection; the caller frees it, also after an error
 * Errors: GW_USAGE, GW_UNREACHABLE, GW_VERSION, and those of a channel.
 */
int hello(const char *addr, const struct engine_ops *engine, unsigned int timeout_ms, struct channel **out, uint64_t *agreed,
	  struct err *e);

/* What this godwit can, as WIRE_HELLO has it. */
#define HELLO_FEATURES	(WIRE_VERDICTS | WIRE_OWN_RAM | WIRE_VIEWS)

/**
 * hello_exchange() - HELLO, in both directions at once
 * @agreed: the features that both sides offer
 * Errors: GW_VERSION: another protocol, or a side needs what the other does not offer.
 */
int hello_exchange(struct channel *ch, uint64_t *agreed, struct err *e);

/**
 * struct hello_pong - what a PING has brought
 * @rtt_ns: there and back
 * @offset_ns: the other side's CLOCK_REALTIME minus ours; off by half of @rtt_ns at most
 */
struct hello_pong {
	uint64_t rtt_ns;
	int64_t offset_ns;
};

/* A PING; who listens hears the PONG. realtime: CLOCK_REALTIME, ns */
int hello_send_ping(struct channel *ch, uint32_t serial, uint64_t realtime, struct err *e);
/* One PING and its PONG, which also says that all that was sent before has been read. */
int hello_ping(struct channel *ch, uint32_t serial, struct hello_pong *pong, struct err *e);
/* A few of them: the one with the shortest way, which tells most about the other clock. */
int hello_clocks(struct channel *ch, struct hello_pong *best, struct err *e);
/*
 * The table of RAM blocks, as WIRE_BLOCKS or WIRE_CHECK; before it, if both sides have that feature, where they lie, and QEMU's
 * private RAM, if there is something in it.
 */
int hello_blocks(struct channel *ch, enum wire_type type, uint64_t features, const struct vm *vm, const struct private_ram *ram,
		 struct err *e);
/* The other side's, h->arg of them, for free(), also after an error; what: is in it. */
int hello_read_table(struct channel *ch, const struct wire_header *h, const char *what, struct wire_block **out, struct err *e);

#endif
