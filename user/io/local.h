/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Questions over a UNIX socket: a client connects, says a line, hears a line, and is hung up on. Only the socket's owner
 * (and root) can connect. Memory is bounded and nothing waits: one who says too much, or does not listen, is hung up on,
 * and when too many are there the one that has been there longest has to go.
 */
#ifndef GODWIT_LOCAL_H
#define GODWIT_LOCAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCAL_CLIENTS	8
#define LOCAL_LINE	2048	/* bytes of a question or an answer, newline included */

/**
 * struct local_client
 * @len: bytes of @said
 * @asked: it has said all of its line, and waits
 */
struct local_client {
	int fd;
	size_t len;
	bool asked;
	char said[LOCAL_LINE];
};

/**
 * struct local - a server; all zeros but lfd -1: closed
 * @clients: in the order of their coming
 */
struct local {
	int lfd;
	char path[108];
	unsigned int nr;
	struct local_client clients[LOCAL_CLIENTS];
};

/* The answer's text, at most LOCAL_LINE - 1 bytes with its NUL, no newline. false: none yet, see local_tell(). */
typedef bool local_fn(void *arg, const char *line, char answer[LOCAL_LINE]);

/*
 * Listens at path, for the owner only; what a server that was killed has left there is replaced. 0 or -errno:
 * -EADDRINUSE: somebody listens there, or it is no socket. -ENAMETOOLONG: 107 bytes are the most.
 */
int local_listen(struct local *l, const char *path);
/* Serves who is there, without waiting. */
void local_step(struct local *l, local_fn *answer, void *arg);
/* To all that still wait for an answer. */
void local_tell(struct local *l, const char *text);
/* Hangs up on everybody, and the path goes. */
void local_close(struct local *l);

/*
 * The client: asks, and waits for the answer until then (CLOCK_MONOTONIC). 0, or -errno: -ECONNREFUSED, -ENOENT: nobody is
 * there. -ECONNRESET: no answer. -EINTR: a stop was asked for. -EMSGSIZE: the line is too long.
 */
int local_ask(const char *path, const char *line, char answer[LOCAL_LINE], uint64_t deadline);

#endif
