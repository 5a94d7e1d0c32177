/* SPDX-License-Identifier: GPL-2.0-only */
/* UNIX stream sockets by their path. What these functions make is as sock.h says. */
#ifndef GODWIT_UNIX_H
#define GODWIT_UNIX_H

#include <stdint.h>
#include <sys/types.h>

/* Return: the descriptor or -errno. -EAGAIN: as many clients wait there as the server lets wait. */
int sock_unix_connect(const char *path);
/*
 * The socket itself that is at this path now, O_PATH: the path may be another's later. Return: the
 * descriptor or -errno.
 */
int sock_unix_hold(const char *path);
/*
 * As sock_unix_connect_until(), to a socket that is held, under whatever path it is, or under none.
 */
int sock_unix_connect_held(int held, uint64_t deadline);
/* Tries again as long as it is -EAGAIN, until then or until a stop is requested. */
int sock_unix_connect_until(const char *path, uint64_t deadline);
/* The process at the other end, in our pid namespace (SO_PEERCRED); 0: not known. */
pid_t sock_unix_peer(int fd);
/*
 * Listens at path, for the owner only; replaces the socket of a server that was killed. backlog: as
 * of listen(2). Return: the descriptor or -errno: -EADDRINUSE: another server listens there, or the
 * path is no socket. -ENAMETOOLONG: the path has more than 107 bytes.
 */
int sock_unix_listen(const char *path, int backlog);

#endif
