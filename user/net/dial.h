/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's side of join.h: opens the connections of the streams, all at once, so that they take
 * as many round trips as one does.
 */
#ifndef GODWIT_DIAL_H
#define GODWIT_DIAL_H

#include "base/err.h"
#include "tls/tls.h"
#include "wire/wire.h"

/**
 * struct dial
 * @n: how many
 * @addr: where to, for messages
 * @creds: NULL: in the clear
 * @keep_keys: see tls_keep_keys()
 * @secret: what JOIN shows
 * @patience_ms: how long each wait may take
 * @fds, @tls: the connections
 */
struct dial {
	unsigned int n, patience_ms;
	const char *addr;
	const struct tls_creds *creds;
	bool keep_keys;
	uint8_t secret[WIRE_SECRET];
	int fds[WIRE_STREAMS_MAX];
	struct tls *tls[WIRE_STREAMS_MAX];
};

/* No connection has begun. */
void dial_init(struct dial *d);
/*
 * Begins to connect to the address that fd is connected to, where that has not begun; closes what
 * is more than @n.
 */
int dial_begin(struct dial *d, int fd, struct err *e);
/* Has each of them come about, or failed? */
bool dial_is_connected(const struct dial *d);
/*
 * Waits for the connections, and says JOIN on each. Errors of both: GW_UNREACHABLE, GW_LINK_LOST,
 * and those of tls_handshake().
 */
int dial_join(struct dial *d, struct err *e);
/* The connections become the caller's. */
void dial_take(struct dial *d, int *fds, struct tls **tls);
/* Also after an error. */
void dial_close(struct dial *d);

#endif
