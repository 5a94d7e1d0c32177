/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sockets with deadlines, for small transfers: QMP, control frames. Deadlines are absolute:
 * nanoseconds of CLOCK_MONOTONIC. All descriptors that these functions make are non-blocking and
 * close-on-exec. No call raises SIGPIPE. Return: 0 or -errno; -ETIMEDOUT when the deadline passed,
 * -ECONNRESET when the peer closed too early.
 */
#ifndef GODWIT_SOCK_H
#define GODWIT_SOCK_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of a receiver's listener: all streams of one sender at once, and some other connections. */
#define SOCK_BACKLOG	64

/* TCP, for net/address.h, which says what these return. */
int sock_tcp_connect(const char *addr, uint64_t deadline);
int sock_tcp_begin_again(int fd);
int sock_tcp_connected(int fd, uint64_t deadline);
int sock_tcp_listen(const char *addr);
/* The next connection that waits at the listener, or -errno; -EAGAIN: none waits. */
int sock_accept(int fd);
/* 1: all addresses that addr resolves to are loopback; 0: not all, or none; -EINVAL: malformed. */
int sock_is_loopback(const char *addr);
int sock_tcp_peer(int fd, char *addr, size_t len);
/*
 * Sets the TCP options: keepalive and the user timeout detect a peer that is gone. -errno on
 * another kind of socket, whose next end, at least, is on this host.
 */
int sock_tune(int fd, unsigned int timeout_ms);
/*
 * So many bytes may wait in the socket beyond what its window lets go at once. What sock_tune()
 * sets is good for throughput.
 */
void sock_set_unsent(int fd, unsigned int bytes);
/* So many bytes may be under way, or wait in the socket, from now on: about, and for good. */
void sock_set_buffer(int fd, uint64_t bytes);

/*
 * TCP's smoothed round trip, ns; 0: not known, as on a socket that is not TCP's. While the peer
 * works on an answer its ACK is delayed, by up to 40 ms, and that is in it.
 */
uint64_t sock_rtt_ns(int fd);
/* The shortest that TCP has seen: how long the link is. 0: as above. */
uint64_t sock_least_rtt_ns(int fd);

/*
 * Bytes that have been sent, and the peer's kernel has not acknowledged; of a UNIX socket the
 * memory that those take which the peer has not read.
 */
uint64_t sock_queued(int fd);
/**
 * sock_room() - how many bytes would leave at once if they were sent now, and a small frame behind
 * @least: what there is room for at least while nothing is under way. No ACK is due then that could
 *	make more room, and TCP asks for a window only when it has something to send.
 * UINT64_MAX: TCP does not say: another kind of socket, or a connection that has broken. The next
 * send says more.
 */
uint64_t sock_room(int fd, uint64_t least);

/**
 * struct sock_progress - what TCP says of the bytes that were sent; zeros on another kind of socket
 * @acked: that have arrived at the peer's host, since the connection began, which is one of them
 * @waiting: that have not left the socket, or wait on their way, by what round trips show
 */
struct sock_progress {
	uint64_t acked;
	uint64_t waiting;
};

struct sock_progress sock_progress(int fd);

/**
 * struct sock_sent - what TCP has counted since the connection began; zeros on another kind of
 *	socket
 * @segments: with data, each as often as it was sent
 * @again: of these, those that were sent again, but for what the peer says it had twice: so many
 *	were lost
 * @segment: bytes that one carries at most
 * @busy_ns: how long there was something to send, or to be acknowledged. Of that:
 * @window_ns: the peer's receive window was full
 * @buffer_ns: this host's send buffer was full
 */
struct sock_sent {
	uint64_t segments, again;
	uint32_t segment;
	uint64_t busy_ns, window_ns, buffer_ns;
};

struct sock_sent sock_sent(int fd);
/* Bytes that have come, and wait to be read. */
uint64_t sock_unread(int fd);

/*
 * Closes fd when the other end has done so too, or after a while: a connection that is closed with
 * bytes to read is reset, and what was sent last is lost with it.
 */
void sock_close_read(int fd);

/* Waits until fd is readable (POLLIN) or writable (POLLOUT). */
int sock_wait(int fd, short events, uint64_t deadline);
/* Receives, or sends, exactly len bytes. */
int sock_recv(int fd, void *buf, size_t len, uint64_t deadline);
int sock_send(int fd, const void *buf, size_t len, uint64_t deadline);
/* sock_send() with one descriptor attached to the first byte (SCM_RIGHTS, AF_UNIX). */
int sock_send_fd(int fd, const void *buf, size_t len, int passed_fd, uint64_t deadline);
/* Receives what has arrived, without a wait. Return: bytes, 0 at the end, -EAGAIN: nothing yet. */
ssize_t sock_recv_some(int fd, void *buf, size_t len);

/* Has neither end closed it, and TCP not given it up? Asks the kernel only. */
bool sock_is_open(int fd);

#endif
