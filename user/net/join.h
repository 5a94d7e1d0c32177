/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The listener while the sender's streams are to join: accepts each connection whose JOIN has the
 * secret, and rejects all others. A stranger that connects, and sends something else or nothing,
 * delays no stream: all is non-blocking, and when too many connections have sent no JOIN yet, the
 * one that has waited longest is closed. With TLS each has a handshake first.
 */
#ifndef GODWIT_JOIN_H
#define GODWIT_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "tls/tls.h"
#include "wire/wire.h"

#define JOIN_CANDIDATES	(2 * WIRE_STREAMS_MAX)

/**
 * struct join_candidate - a connection whose JOIN has not arrived whole
 * @tls: NULL: in the clear; @secure: its handshake is done
 * @len: bytes of @frame that have arrived
 */
struct join_candidate {
	int fd;
	struct tls *tls;
	bool secure;
	unsigned int len;
	uint8_t frame[WIRE_HEADER + WIRE_SECRET];
};

/**
 * struct join
 * @lfd: the listener, the caller's
 * @creds: NULL: streams join in the clear; the caller's
 * @keep_keys: see tls_keep_keys()
 * @secret: what a JOIN must have
 * @want: streams 0 to @want - 1 are to join
 * @fds, @tls: those that have joined; -1: not yet
 * @candidates: in the order in which they connected
 */
struct join {
	int lfd;
	const struct tls_creds *creds;
	bool keep_keys;
	uint8_t secret[WIRE_SECRET];
	unsigned int want;
	int fds[WIRE_STREAMS_MAX];
	struct tls *tls[WIRE_STREAMS_MAX];
	unsigned int nr_candidates;
	struct join_candidate candidates[JOIN_CANDIDATES];
};

/* The time does not depend on where a and b differ: no peer can find the secret byte by byte. */
bool join_secret_ok(const uint8_t *a, const uint8_t *b);
/* Makes a random secret. 0 or -errno. */
int join_init(struct join *j, int lfd);
/*
 * Waits until a connection or bytes arrive, other_fd is readable, or ms have passed. Serves the
 * listener and the candidates, and leaves other_fd to the caller.
 * 1: all streams have joined. 0: not yet. -errno: of the listener, or of the wait.
 */
int join_step(struct join *j, int other_fd, int ms);
/* The descriptors and sessions of the @want streams, now the caller's. */
void join_take(struct join *j, int *fds, struct tls **tls);
/* Closes each connection that join_take() has not given away. */
void join_close(struct join *j);

#endif
