/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One question and one answer over a UNIX socket: a client connects and sends a line, the server
 * sends a line and closes the connection. Only the socket's owner (and root) can connect. The
 * server's memory is bounded and it never waits: it drops a client that sends too much or does not
 * read, and when too many clients are connected it drops the one that came first.
 */
#ifndef GODWIT_LINE_SOCKET_H
#define GODWIT_LINE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE_SOCKET_CLIENTS	8
#define LINE_SOCKET_LINE	2048	/* bytes of a question or an answer, newline included */

/**
 * struct line_socket_client
 * @len: bytes of @line
 * @waits: the client has sent all of its line, and waits for the answer
 */
struct line_socket_client {
	int fd;
	size_t len;
	bool waits;
	char line[LINE_SOCKET_LINE];
};

/**
 * struct line_socket - a server; all zeros but lfd -1: closed
 * @clients: in the order in which they connected
 */
struct line_socket {
	int lfd;
	char path[108];
	unsigned int nr;
	struct line_socket_client clients[LINE_SOCKET_CLIENTS];
};

/*
 * Makes the answer's text, at most LINE_SOCKET_LINE - 1 bytes with its NUL, no newline. false:
 * there is no answer yet, see line_socket_answer_all().
 */
typedef bool line_socket_fn(void *arg, const char *line, char answer[LINE_SOCKET_LINE]);

/*
 * Listens at path, for the owner only; replaces the socket of a server that was killed. 0 or
 * -errno: -EADDRINUSE: another server listens there, or the path is no socket. -ENAMETOOLONG: the
 * path has more than 107 bytes.
 */
int line_socket_listen(struct line_socket *l, const char *path);
/* Serves the clients that have connected, without waiting. */
void line_socket_step(struct line_socket *l, line_socket_fn *answer, void *arg);
/* Sends text to all clients that still wait for an answer. */
void line_socket_answer_all(struct line_socket *l, const char *text);
/* Drops all clients, and removes the path. */
void line_socket_close(struct line_socket *l);

/*
 * The client: sends a line, and waits for the answer until @deadline (CLOCK_MONOTONIC). 0, or
 * -errno: -ECONNREFUSED, -ENOENT: no server listens there. -ECONNRESET: the server sent no answer.
 * -EINTR: a stop was requested. -EMSGSIZE: the line is too long.
 */
int line_socket_ask(const char *path, const char *line, char answer[LINE_SOCKET_LINE],
		    uint64_t deadline);

#endif
