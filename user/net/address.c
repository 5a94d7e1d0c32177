// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/address.h"
#include "net/sock.h"
#include "net/unix.h"

#define UNIX_PREFIX	"unix:"	/* and a path from the root */
#define ROOM_MS		5000	/* for the receiver to take those that wait */

const char *address_error(int r)
{
	return r == -ENONET ? "the name of the host does not resolve" : strerror(-r);
}

const char *address_path(const char *addr)
{
	const size_t len = sizeof(UNIX_PREFIX) - 1;

	return strncmp(addr, UNIX_PREFIX, len) || addr[len] != '/' ? NULL : addr + len;
}

int address_is_local(const char *addr)
{
	return address_path(addr) ? 1 : sock_is_loopback(addr);
}

/* Where TCP goes on asking, a UNIX socket says that its queue is full. */
static int address_connect_path(const char *path, uint64_t deadline)
{
	int fd = sock_unix_connect_until(path, deadline);

	if (fd == -EAGAIN)
		return stop_requested() ? -EINTR : -ETIMEDOUT;
	return fd;
}

int address_connect(const char *addr, uint64_t deadline)
{
	const char *path = address_path(addr);

	return path ? address_connect_path(path, deadline) : sock_tcp_connect(addr, deadline);
}

int address_connect_again(const char *addr, int fd)
{
	const char *path = address_path(addr);

	return path ? address_connect_path(path, deadline_ms(ROOM_MS)) : sock_tcp_begin_again(fd);
}

int address_of_peer(const char *addr, int fd, char again[ADDRESS_MAX])
{
	if (!address_path(addr))
		return sock_tcp_peer(fd, again, ADDRESS_MAX);
	if (strlen(addr) >= ADDRESS_MAX)
		return -ENAMETOOLONG;
	strcpy(again, addr);
	return 0;
}

int address_listen(const char *addr)
{
	const char *path = address_path(addr);

	return path ? sock_unix_listen(path, SOCK_BACKLOG) : sock_tcp_listen(addr);
}

/*
 * A port that does not listen goes to whoever else on this host may share it (SO_REUSEADDR), whose
 * user does not matter. To listen beside connections that go on, it must be shared again.
 */
static int address_share_port(int lfd, int share)
{
	return setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &share, sizeof(share));
}

/* A UNIX socket that was shut never listens again. */
int address_refuse(const char *addr, int lfd)
{
	const char *path = address_path(addr);
	int fd;

	if (!path)
		return address_share_port(lfd, 0) < 0 || shutdown(lfd, SHUT_RD) < 0 ? -errno : 0;
	/* One that somebody has removed refuses already. */
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	/* Those that wait are told, as TCP does. */
	while ((fd = sock_accept(lfd)) >= 0)
		close(fd);
	return 0;
}

int address_listen_again(const char *addr, int lfd)
{
	const char *path = address_path(addr);
	int fd, r = 0;

	if (!path)
		return address_share_port(lfd, 1) < 0 || listen(lfd, SOCK_BACKLOG) < 0 ? -errno : 0;
	fd = sock_unix_listen(path, SOCK_BACKLOG);
	if (fd < 0)
		return fd;
	if (dup3(fd, lfd, O_CLOEXEC) < 0) {
		r = -errno;
		unlink(path);
	}
	close(fd);
	return r;
}

void address_close(const char *addr, int lfd, bool listens)
{
	const char *path = address_path(addr);

	/* In this order: a path whose listener is closed may be another's by now. */
	if (path && listens)
		unlink(path);
	close(lfd);
}
