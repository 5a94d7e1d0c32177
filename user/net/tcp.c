// SPDX-License-Identifier: GPL-2.0-only
/* TCP by "ADDR:PORT". A name may resolve to several addresses; the first one that works counts. */
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/sock.h"

#define NONBLOCK	(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/**
 * struct host_port - "ADDR:PORT" taken apart
 * @v6: the host stood in brackets: an IPv6 address, not a name
 */
struct host_port {
	char host[256];
	char port[6];
	bool v6;
};

static void tcp_free_addrs(struct addrinfo **ai)
{
	if (*ai)
		freeaddrinfo(*ai);
}

/* Digits only: getaddrinfo() would accept service names, and wrap large numbers. */
static bool tcp_port_ok(const char *port)
{
	size_t len = strspn(port, "0123456789");

	return len && len < sizeof(((struct host_port *)0)->port) && !port[len] &&
	       atoi(port) <= 65535;
}

static int tcp_split(const char *addr, struct host_port *hp)
{
	const char *colon = strrchr(addr, ':');
	size_t len;

	if (!colon || !tcp_port_ok(colon + 1))
		return -EINVAL;
	len = (size_t)(colon - addr);
	hp->v6 = len > 2 && addr[0] == '[' && addr[len - 1] == ']';
	if (hp->v6) {
		addr++;
		len -= 2;
	}
	if (!len || len >= sizeof(hp->host))
		return -EINVAL;
	memcpy(hp->host, addr, len);
	hp->host[len] = '\0';
	strcpy(hp->port, colon + 1);
	/* Without brackets "::1:80" could be an address as well as an address and a port. */
	return !hp->v6 && strpbrk(hp->host, ":[] ") ? -EINVAL : 0;
}

/* -EINVAL: malformed; -ENONET: a name that does not resolve. */
static int tcp_resolve(const char *addr, int flags, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags };
	struct host_port hp;
	int r = tcp_split(addr, &hp);

	*out = NULL;
	if (r)
		return r;
	if (hp.v6) {
		hints.ai_family = AF_INET6;
		hints.ai_flags |= AI_NUMERICHOST;
	}
	if (getaddrinfo(hp.host, hp.port, &hints, out)) {
		*out = NULL;
		return hp.v6 ? -EINVAL : -ENONET;
	}
	return 0;
}

int sock_tcp_connected(int fd, uint64_t deadline)
{
	socklen_t len = sizeof(int);
	int r, err = 0;

	do {
		uint64_t slice = now_ns() + STOP_SLICE_NS;

		if (stop_requested())
			return -EINTR;
		r = sock_wait(fd, POLLOUT, slice < deadline ? slice : deadline);
	} while (r == -ETIMEDOUT && now_ns() < deadline);
	if (r)
		return r;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0 ? -errno : -err;
}

/* Begins to connect. Return: the descriptor, for sock_tcp_connected(), or -errno. */
static int tcp_begin(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	if (!connect(fd, ai->ai_addr, ai->ai_addrlen) || errno == EINPROGRESS || errno == EINTR)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

static int tcp_connect_one(const struct addrinfo *ai, uint64_t deadline)
{
	int fd = tcp_begin(ai);
	int r = fd < 0 ? fd : sock_tcp_connected(fd, deadline);

	if (!r)
		return fd;
	if (fd >= 0)
		close(fd);
	return r;
}

static unsigned int tcp_count(const struct addrinfo *ai)
{
	unsigned int n = 0;

	for (; ai; ai = ai->ai_next)
		n++;
	return n;
}

int sock_tcp_connect(const char *addr, uint64_t deadline)
{
	__attribute__((cleanup(tcp_free_addrs))) struct addrinfo *all = NULL;
	int r = tcp_resolve(addr, 0, &all);

	for (struct addrinfo *ai = all; ai; ai = ai->ai_next) {
		uint64_t now = now_ns();
		/* An address that drops packets must not use up the time of the others. */
		uint64_t share = deadline > now ? (deadline - now) / tcp_count(ai) : 0;

		r = tcp_connect_one(ai, now + share);
		if (r >= 0 || r == -EINTR)
			return r;
	}
	return r;
}

int sock_tcp_peer(int fd, char *addr, size_t len)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t n = sizeof(peer);
	char host[80], port[8];
	int most;

	if (getpeername(fd, (struct sockaddr *)&peer, &n) < 0)
		return -errno;
	if (getnameinfo((struct sockaddr *)&peer, n, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EADDRNOTAVAIL;
	most = snprintf(addr, len, peer.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return most < 0 || (size_t)most >= len ? -ENAMETOOLONG : 0;
}

int sock_tcp_begin_again(int fd)
{
	struct sockaddr_storage peer = { 0 };
	struct addrinfo ai = { .ai_addr = (struct sockaddr *)&peer, .ai_addrlen = sizeof(peer) };

	if (getpeername(fd, ai.ai_addr, &ai.ai_addrlen) < 0)
		return -errno;
	ai.ai_family = peer.ss_family;
	return tcp_begin(&ai);
}

static int tcp_listen_one(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, NONBLOCK, 0);
	int one = 1, r;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, SOCK_BACKLOG) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int sock_tcp_listen(const char *addr)
{
	__attribute__((cleanup(tcp_free_addrs))) struct addrinfo *all = NULL;
	int r = tcp_resolve(addr, AI_PASSIVE, &all);

	for (struct addrinfo *ai = all; ai; ai = ai->ai_next) {
		r = tcp_listen_one(ai);
		if (r >= 0)
			return r;
	}
	return r;
}

static bool tcp_is_loopback_v4(const uint8_t ip[4])
{
	return ip[0] == 127;
}

static bool tcp_addr_is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET) {
		const struct in_addr *ip = &((const struct sockaddr_in *)sa)->sin_addr;

		return tcp_is_loopback_v4((const uint8_t *)ip);
	}
	if (sa->sa_family == AF_INET6) {
		const struct in6_addr *ip = &((const struct sockaddr_in6 *)sa)->sin6_addr;

		return IN6_IS_ADDR_LOOPBACK(ip) ||
		       (IN6_IS_ADDR_V4MAPPED(ip) && tcp_is_loopback_v4(ip->s6_addr + 12));
	}
	return false;
}

int sock_is_loopback(const char *addr)
{
	__attribute__((cleanup(tcp_free_addrs))) struct addrinfo *all = NULL;
	int r = tcp_resolve(addr, 0, &all);

	/* The connect or listen that follows reports what is wrong with the name. */
	if (r)
		return r == -ENONET ? 0 : r;
	for (struct addrinfo *ai = all; ai; ai = ai->ai_next)
		if (!tcp_addr_is_loopback(ai->ai_addr))
			return 0;
	return 1;
}

/*
 * Bytes that wait in the socket to be sent, beside those in flight. With more of them, the peer's
 * acknowledgements push them out, on the receiver's CPU where both ends share a host, and they have
 * left the cache before they are sent: over loopback into huge pages both ends together took 0.55
 * s/GiB of CPU time without this limit, and take 0.40 with it. The limit does not count bytes in
 * flight, so distance does not matter.
 */
#define NOTSENT_BYTES	(128 << 10)
#define KEEPALIVE_S	45

int sock_tune(int fd, unsigned int timeout_ms)
{
	/*
	 * Three probes without an answer fit into the timeout. And firewalls and NAT forget a
	 * connection that is idle for long, many after a minute: a stream may be, while the other
	 * streams send, or the guest stands still.
	 */
	int probe_s = timeout_ms >= 4000 ? (int)(timeout_ms / 4000) : 1;
	int idle_s = probe_s < KEEPALIVE_S ? probe_s : KEEPALIVE_S;
	const struct { int level, name, value; } opts[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_BYTES },
		{ IPPROTO_TCP, TCP_KEEPIDLE, idle_s },
		{ IPPROTO_TCP, TCP_KEEPINTVL, idle_s },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, (int)timeout_ms },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};

	for (size_t i = 0; i < sizeof(opts) / sizeof(opts[0]); i++)
		if (setsockopt(fd, opts[i].level, opts[i].name, &opts[i].value, sizeof(int)) < 0)
			return -errno;
	return 0;
}

void sock_set_unsent(int fd, unsigned int bytes)
{
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof(bytes));
}

void sock_set_buffer(int fd, uint64_t bytes)
{
	/* The kernel makes it twice as much, for what it needs itself: for pages that is little. */
	const int half = bytes / 2 < INT_MAX ? (int)(bytes / 2) : INT_MAX;

	/* Beyond net.core.wmem_max: with less than this the link would be idle at times. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &half, sizeof(half)) < 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
}

uint64_t sock_unread(int fd)
{
	int bytes = 0;

	return ioctl(fd, FIONREAD, &bytes) < 0 ? 0 : (uint64_t)bytes;
}

int sock_accept(int fd)
{
	int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (peer >= 0)
		return peer;
	/* A connection that the peer closed before accept4() is none. */
	return errno == ECONNABORTED || errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
}
