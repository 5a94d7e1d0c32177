/* SPDX-License-Identifier: GPL-2.0-only */
/* The beginning of each connection to a receiver: of a migration, a check, or a question. */
#ifndef GODWIT_HELLO_H
#define GODWIT_HELLO_H

#include "base/err.h"
#include "devstate/private_ram.h"
#include "net/channel.h"
#include "vmm/vm.h"

/**
 * struct hello_peer - the receiver
 * @addr: its ADDR:PORT
 * @tls: NULL: in the clear
 * @timeout_ms: how long to wait for the connection; then, some round trips more, for the peer
 * @until_ns: nothing is waited for any longer; 0: no such limit. After that an error may be without
 *	words (channel_set_end())
 */
struct hello_peer {
	const char *addr;
	struct tls_creds *tls;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
	uint64_t until_ns;
};

/**
 * hello() - connect, and agree on version and features
 * @out: the control connection; the caller frees it, also after an error
 * @agreed: see hello_exchange()
 * Errors: GW_USAGE, GW_UNREACHABLE, GW_VERSION, those of tls_handshake(), and those of a channel.
 */
int hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e);

/* The features that this godwit offers in its HELLO, and those that it does not do without. */
#define HELLO_FEATURES	(WIRE_VERDICTS | WIRE_OWN_RAM | WIRE_VIEWS | WIRE_ONE_WAY |               \
			 WIRE_RECONNECTS | WIRE_POSTCOPY | WIRE_EARLY | WIRE_REUSES | WIRE_LATE |  \
			 WIRE_LOSSES | WIRE_REUSES_SOON | WIRE_EMPTIES | HELLO_PACKING)
#define HELLO_PACKING	(WIRE_FILL | WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB | WIRE_LOADS | WIRE_DELTAS)
#define HELLO_NEEDS	WIRE_ONE_WAY

/**
 * hello_exchange() - send HELLO and read the peer's
 * @agreed: the features that both peers offer
 * Errors: GW_VERSION: another protocol, or one peer needs a feature that the other does not offer.
 */
int hello_exchange(struct channel *ch, uint64_t *agreed, struct err *e);

/**
 * hello_ready() - wait for READY, whose body is still to be read
 * The receiver empties its RAM first, of which it may have more than a channel's timeout lasts.
 * @features: that both peers offer
 * Errors: GW_BAD_PEER; those of a channel.
 */
int hello_ready(struct channel *ch, uint64_t features, struct wire_header *h, struct err *e);

/**
 * struct hello_pong - what a PING and its PONG have measured
 * @rtt_ns: the round trip
 * @offset_ns: the receiver's CLOCK_REALTIME minus ours; off by half of @rtt_ns at most
 */
struct hello_pong {
	uint64_t rtt_ns;
	int64_t offset_ns;
};

/**
 * struct hello_asked - PINGs that were sent at once
 * @n: so many have not come yet
 * @mono_ns, @real_ns: when they were sent, by both clocks
 */
#define HELLO_AT_ONCE	2u	/* on a long link noise is a small part of a round trip */
struct hello_asked {
	unsigned int n;
	uint64_t mono_ns[HELLO_AT_ONCE], real_ns[HELLO_AT_ONCE];
};

/* Sends a PING, and leaves its PONG to the caller. realtime: CLOCK_REALTIME, ns */
int hello_send_ping(struct channel *ch, uint32_t serial, uint64_t realtime, struct err *e);
/* One PING and its PONG, which also proves that the receiver has read all that was sent before. */
int hello_ping(struct channel *ch, uint32_t serial, struct hello_pong *pong, struct err *e);
/* A few PINGs: *best has the shortest round trip, and so the most exact clock offset. */
int hello_clocks(struct channel *ch, struct hello_pong *best, struct err *e);
/* Is it long enough that so few of them cost more time than all the rest? rtt_ns: TCP's */
bool hello_is_long(uint64_t rtt_ns);
/* For a long link: as many PINGs as are enough there, all at once. */
int hello_ask_clocks(struct channel *ch, struct hello_asked *asked, struct err *e);
/* Takes PONG, whose header has been read; *best as hello_clocks() has it. */
int hello_take_pong(struct channel *ch, const struct wire_header *h, struct hello_asked *asked,
		    struct hello_pong *best, struct err *e);

/*
 * Sends the table of RAM blocks, as WIRE_BLOCKS or WIRE_CHECK; before it, with WIRE_OWN_RAM, the
 * files of the blocks, and the table of QEMU's private RAM, if *ram has blocks.
 */
int hello_blocks(struct channel *ch, enum wire_type type, uint64_t features, const struct vm *vm,
		 const struct private_ram *ram, struct err *e);
/*
 * Reads the sender's table of h->arg blocks into *out, which the caller frees, also after an error.
 * what: names the blocks in the error.
 */
int hello_read_table(struct channel *ch, const struct wire_header *h, const char *what,
		     struct wire_block **out, struct err *e);

#endif
