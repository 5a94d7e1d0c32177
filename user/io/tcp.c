// SPDX-License-Identifier: GPL-2.0-only
/* TCP by "ADDR:PORT". Names may mean several addresses; the first one that works is taken. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"

#define BACKLOG		64	/* all streams of one sender at once, and some strangers */
#define NONBLOCK	(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/**
 * struct host_port - "ADDR:PORT" taken apart
 * @v6: it stood in brackets: an IPv6 address and no name
 */
struct host_port {
	char host[256];
	char port[6];
	bool v6;
};

static void free_addrs(struct addrinfo **ai)
{
	if (*ai)
		freeaddrinfo(*ai);
}

/* Digits only: getaddrinfo() would take service names and wrap large numbers. */
static bool port_ok(const char *port)
{
	size_t len = strspn(port, "0123456789");

	return len && len < sizeof(((struct host_port *)0)->port) && !port[len] && atoi(port) <= 65535;
}

static int split(const char *addr, struct host_port *hp)
{
	const char *colon = strrchr(addr, ':');
	size_t len;

	if (!colon || !port_ok(colon + 1))
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
	/* Without brackets nobody can tell where a v6 address ends and the port begins. */
	return !hp->v6 && strpbrk(hp->host, ":[] ") ? -EINVAL : 0;
}

/* -EINVAL: malformed; -EHOSTUNREACH: a name that means nothing. */
static int resolve(const char *addr, int flags, struct addrinfo **out)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags };
	struct host_port hp;
	int r = split(addr, &hp);

	*out = NULL;
	if (r)
		return r;
	if (hp.v6) {
		hints.ai_family = AF_INET6;
		hints.ai_flags |= AI_NUMERICHOST;
	}
	if (getaddrinfo(hp.host, hp.port, &hints, out)) {
		*out = NULL;
		return hp.v6 ? -EINVAL : -EHOSTUNREACH;
	}
	return 0;
}

/* 0, -ETIMEDOUT, -EINTR, or what became of a connect() under way. */
static int connected(int fd, uint64_t deadline)
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

static int connect_one(const struct addrinfo *ai, uint64_t deadline)
{
	int fd = socket(ai->ai_family, NONBLOCK, 0);
	int r = 0;

	if (fd < 0)
		return -errno;
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0)
		r = errno == EINPROGRESS || errno == EINTR ? connected(fd, deadline) : -errno;
	if (r) {
		close(fd);
		return r;
	}
	return fd;
}

static unsigned int count(const struct addrinfo *ai)
{
	unsigned int n = 0;

	for (; ai; ai = ai->ai_next)
		n++;
	return n;
}

int sock_tcp_connect(const char *addr, uint64_t deadline)
{
	__attribute__((cleanup(free_addrs))) struct addrinfo *all = NULL;
	int r = resolve(addr, 0, &all);

	for (struct addrinfo *ai = all; ai; ai = ai->ai_next) {
		uint64_t now = now_ns();
		/* One address that swallows packets must not eat the time of the others. */
		uint64_t share = deadline > now ? (deadline - now) / count(ai) : 0;

		r = connect_one(ai, now + share);
		if (r >= 0 || r == -EINTR)
			return r;
	}
	return r;
}

int sock_tcp_connect_again(int fd, uint64_t deadline)
{
	struct sockaddr_storage peer = { 0 };
	struct addrinfo ai = { .ai_addr = (struct sockaddr *)&peer, .ai_addrlen = sizeof(peer) };

	if (getpeername(fd, ai.ai_addr, &ai.ai_addrlen) < 0)
		return -errno;
	ai.ai_family = peer.ss_family;
	return connect_one(&ai, deadline);
}

static int listen_one(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, NONBLOCK, 0);
	int one = 1, r;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int sock_tcp_listen(const char *addr)
{
	__attribute__((cleanup(free_addrs))) struct addrinfo *all = NULL;
	int r = resolve(addr, AI_PASSIVE, &all);

	for (struct addrinfo *ai = all; ai; ai = ai->ai_next) {
		r = listen_one(ai);
		if (r >= 0)
			return r;
	}
	return r;
}

static bool v4_loopback(const uint8_t ip[4])
{
	return ip[0] == 127;
}

static bool is_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return v4_loopback((const uint8_t *)&((const struct sockaddr_in *)sa)->sin_addr);
	if (sa->sa_family == AF_INET6) {
		const struct in6_addr *ip = &((const struct sockaddr_in6 *)sa)->sin6_addr;

		return IN6_IS_ADDR_LOOPBACK(ip) || (IN6_IS_ADDR_V4MAPPED(ip) && v4_loopback(ip->s6_addr + 12));
	}
	return false;
}

int sock_is_loopback(const char *addr)
{
	__attribute__((cleanup(free_addrs))) struct addrinfo *all = NULL;
	int r = resolve(addr, 0, &all);

	if (r)
		return r == -EHOSTUNREACH ? 0 : r;	/* connect or listen will tell what is wrong with the name */
	for (struct addrinfo *ai = all; ai; ai = ai->ai_next)
		if (!is_loopback(ai->ai_addr))
			return 0;
	return 1;
}

/*
 * Bytes that wait in the socket for their turn, on top of what is on its way. With more, the peer's acknowledgements push them
 * out, on the receiver's CPU where both share a host, and what is written is out of the cache before it is sent: over
 * loopback into huge pages that took 0.55 s/GiB of CPU time of both ends, and takes 0.40. What is on its way is as much as
 * ever, so distance does not matter.
 */
#define NOTSENT	(128 << 10)

int sock_tune(int fd, unsigned int timeout_ms)
{
	/* Three probes without an answer fit into the timeout. */
	int probe_s = timeout_ms >= 4000 ? (int)(timeout_ms / 4000) : 1;
	const struct { int level, name, value; } opts[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT },
		{ IPPROTO_TCP, TCP_KEEPIDLE, probe_s },
		{ IPPROTO_TCP, TCP_KEEPINTVL, probe_s },
		{ IPPROTO_TCP, TCP_KEEPCNT, 3 },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, (int)timeout_ms },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};

	for (size_t i = 0; i < sizeof(opts) / sizeof(opts[0]); i++)
		if (setsockopt(fd, opts[i].level, opts[i].name, &opts[i].value, sizeof(int)) < 0)
			return -errno;
	return 0;
}

int sock_accept(int fd)
{
	int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	/* A connection that was gone again before we looked is none. */
	if (peer < 0)
		return errno == ECONNABORTED || errno == EINTR || errno == EWOULDBLOCK ? -EAGAIN : -errno;
	return peer;
}
