/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets with deadlines, for everything that is small: QMP, control frames. Deadlines are absolute,
 * CLOCK_MONOTONIC, nanoseconds. All descriptors are non-blocking and close-on-exec. SIGPIPE never comes.
 * Return 0 or -errno; -ETIMEDOUT when the deadline passed, -ECONNRESET when the peer closed too early.
 */
#ifndef GODWIT_SOCK_H
#define GODWIT_SOCK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

uint64_t now_ns(void);		/* CLOCK_MONOTONIC */
uint64_t realtime_ns(void);	/* CLOCK_REALTIME */
void nap_ms(unsigned int ms);	/* between two looks; a signal ends it early */
static inline uint64_t deadline_ms(uint64_t ms) { return now_ns() + ms * 1000000; }

/* Connect to an AF_UNIX stream socket; returns the descriptor or -errno. */
int sock_unix_connect(const char *path);
/*
 * "ADDR:PORT" or "[V6]:PORT"; returns the descriptor or -errno (-EINVAL: not an address, -EHOSTUNREACH: does not
 * resolve, -EINTR: a stop was asked for while connecting). Nothing else here heeds a stop: QEMU must be spoken to
 * after it.
 */
int sock_tcp_connect(const char *addr, uint64_t deadline);
/* To where fd is connected to: a name may mean several hosts. */
int sock_tcp_connect_again(int fd, uint64_t deadline);
int sock_tcp_listen(const char *addr);
/* A connection that waits, or -EAGAIN. */
int sock_accept(int fd);
/* -EINVAL: not an address; else 1 when every address it means is loopback, 0 when not, or when it means none. */
int sock_is_loopback(const char *addr);
/* NODELAY, keepalive, user timeout: a peer that is gone is noticed. */
int sock_tune(int fd, unsigned int timeout_ms);

/* Wait until fd is readable (POLLIN) or writable (POLLOUT). */
int sock_wait(int fd, short events, uint64_t deadline);
/* Exactly len bytes. */
int sock_recv(int fd, void *buf, size_t len, uint64_t deadline);
int sock_send(int fd, const void *buf, size_t len, uint64_t deadline);
/* sock_send with one descriptor attached to the first byte (SCM_RIGHTS, AF_UNIX). */
int sock_send_fd(int fd, const void *buf, size_t len, int passed_fd, uint64_t deadline);
/* What is there now: bytes, 0 at end of file, -EAGAIN when nothing. */
ssize_t sock_recv_some(int fd, void *buf, size_t len);

#endif
