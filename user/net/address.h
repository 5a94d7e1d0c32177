/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a receiver is: "ADDR:PORT" or "[V6]:PORT" (TCP), or "unix:/PATH", a UNIX socket, for the
 * end of a tunnel (ssh -L) or a receiver in another container of this host: a path that starts at
 * the root, as it counts at both ends. Deadlines and
 * descriptors as in sock.h; -EINVAL: not an address.
 */
#ifndef GODWIT_ADDRESS_H
#define GODWIT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_FORM	"ADDR:PORT or unix:/PATH"
#define ADDRESS_MAX	120	/* bytes with the NUL: a path, or an address in numbers */

/* strerror(), but for -ENONET, which the name of a host has that does not resolve. */
const char *address_error(int r);
/* "/PATH" of "unix:/PATH"; NULL: the address is another kind. */
const char *address_path(const char *addr);
/* 1: only processes of this host reach it; 0: others do, or it is not known; -EINVAL. */
int address_is_local(const char *addr);
/*
 * Return: the descriptor or -errno (-ENONET: the name does not resolve, -EINTR: a stop was
 * requested meanwhile). No other wait here ends at a stop: godwit talks to QEMU after one.
 */
int address_connect(const char *addr, uint64_t deadline);
/*
 * Begins to connect once more to addr, where fd is connected to: a name may resolve to several
 * hosts.
 * Return: the descriptor, for sock_tcp_connected(), which knows a UNIX
 * socket's as well, or -errno; -EINTR: a stop was requested.
 */
int address_connect_again(const char *addr, int fd);
/*
 * Writes where fd is connected to, which was made with addr: to connect there again needs no
 * resolver. Not the peer's own name of a UNIX socket: it may have another in another container. 0
 * or -errno.
 */
int address_of_peer(const char *addr, int fd, char again[ADDRESS_MAX]);
/* The listener, or -errno. On a UNIX socket only its owner can connect. */
int address_listen(const char *addr);
/* Peers that connect are refused, until address_listen_again(). 0 or -errno. */
int address_refuse(const char *addr, int lfd);
/* The same descriptor listens again. 0 or -errno: somebody else has taken the address. */
int address_listen_again(const char *addr, int lfd);
/* listens: it does not refuse. */
void address_close(const char *addr, int lfd, bool listens);

#endif
