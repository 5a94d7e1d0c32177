// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/unix.h"

#define AGAIN_MS	10
#define BEGINS_MS	20	/* between the bind and the listen of a server that starts */

/* A socket that has no name yet, and the one that it is to have. */
static int unix_open(const char *path, struct sockaddr_un *sun)
{
	int fd;

	if (!*path)
		return -ENOENT;
	if (strlen(path) >= sizeof(sun->sun_path))
		return -ENAMETOOLONG;
	*sun = (struct sockaddr_un) { .sun_family = AF_UNIX };
	memcpy(sun->sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int sock_unix_connect(const char *path)
{
	struct sockaddr_un sun;
	int fd = unix_open(path, &sun), r;

	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

int sock_unix_connect_until(const char *path, uint64_t deadline)
{
	int fd;

	while ((fd = sock_unix_connect(path)) == -EAGAIN && now_ns() < deadline &&
	       !stop_requested())
		nap_ms(AGAIN_MS);
	return fd;
}

int sock_unix_hold(const char *path)
{
	int fd = open(path, O_PATH | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int sock_unix_connect_held(int held, uint64_t deadline)
{
	char path[32];

	if (held < 0)
		return -EBADF;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", held);
	return sock_unix_connect_until(path, deadline);
}

pid_t sock_unix_peer(int fd)
{
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ? 0 : cred.pid;
}

static int unix_bind(int fd, const struct sockaddr_un *sun)
{
	return bind(fd, (const struct sockaddr *)sun, sizeof(*sun)) < 0 ? -errno : 0;
}

static bool unix_refuses(const char *path)
{
	int fd = sock_unix_connect(path);

	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

/* Is the path a socket that no process listens at any more, and none is about to? */
static bool unix_is_stale(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode) || !unix_refuses(path))
		return false;
	nap_ms(BEGINS_MS);
	return unix_refuses(path);
}

int sock_unix_listen(const char *path, int backlog)
{
	struct sockaddr_un sun;
	int fd = unix_open(path, &sun), r;

	if (fd < 0)
		return fd;
	/* Before the socket has a name: no process can find it with another mode. */
	r = fchmod(fd, 0600) < 0 ? -errno : unix_bind(fd, &sun);
	if (r == -EADDRINUSE && unix_is_stale(path))
		r = unlink(path) < 0 ? -errno : unix_bind(fd, &sun);
	if (!r && listen(fd, backlog) < 0) {
		r = -errno;
		unlink(path);
	}
	if (!r)
		return fd;
	close(fd);
	return r;
}
