/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The listening address once the sender has come: it lets in whoever knows the secret, and hangs up on everybody else.
 * A stranger that connects, and says something else or nothing, holds nobody up: all is non-blocking, and when too
 * many wait to be heard the one that has waited longest has to go.
 */
#ifndef GODWIT_DOOR_H
#define GODWIT_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

#define DOOR_GUESTS	(2 * WIRE_STREAMS_MAX)

/* A connection that has not said all of its JOIN. */
struct door_guest {
	int fd;
	unsigned int len;
	uint8_t said[WIRE_HEADER + WIRE_SECRET];
};

/**
 * struct door
 * @lfd: the listener; not ours
 * @want: streams 0 to @want - 1 are to come
 * @fds: those that have; -1: not yet
 * @guests: in the order of their coming
 */
struct door {
	int lfd;
	uint8_t secret[WIRE_SECRET];
	unsigned int want;
	int fds[WIRE_STREAMS_MAX];
	unsigned int nr_guests;
	struct door_guest guests[DOOR_GUESTS];
};

/* Makes up the secret. 0 or -errno. */
int door_init(struct door *d, int lfd);
/*
 * Waits until somebody comes or speaks, other_fd is readable, or ms have passed; serves the former.
 * 1: all have joined. 0: not yet. -errno: of the listener.
 */
int door_step(struct door *d, int other_fd, int ms);
/* The descriptors of the @want streams, now the caller's. */
void door_take(struct door *d, int *fds);
/* Everybody who was not taken is hung up on. */
void door_close(struct door *d);

#endif
