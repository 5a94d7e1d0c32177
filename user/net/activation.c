// SPDX-License-Identifier: GPL-2.0-only
/*
 * Without libsystemd: sd_listen_fds() would replace activation_count() only, and no check of the
 * socket. So the tool runs on hosts that have no systemd, and loads no library as root for the sake
 * of two variables.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/activation.h"

#define FIRST_FD	3	/* SD_LISTEN_FDS_START */

/*
 * How many sockets were passed to this process. Variables with another PID were meant for a parent
 * that did not remove them.
 */
static unsigned long activation_count(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	unsigned long n = 0;

	if (pid && fds && strtoul(pid, NULL, 10) == (unsigned long)getpid())
		n = strtoul(fds, NULL, 10);
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	return n;
}

static bool activation_is_listener(int fd)
{
	int type = 0, listens = 0;
	socklen_t len = sizeof(int);

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) && type == SOCK_STREAM &&
	       !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) && listens;
}

/* Writes the address to name, which is empty before. false: of another kind, or without a name. */
static bool activation_address(int fd, char name[ADDRESS_MAX])
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un path;
	} sa = { 0 };
	socklen_t len = sizeof(sa);
	char ip[INET6_ADDRSTRLEN];

	if (getsockname(fd, &sa.any, &len) < 0)
		return false;
	if (sa.any.sa_family == AF_INET && inet_ntop(AF_INET, &sa.v4.sin_addr, ip, sizeof(ip)))
		snprintf(name, ADDRESS_MAX, "%s:%u", ip, ntohs(sa.v4.sin_port));
	else if (sa.any.sa_family == AF_INET6 &&
		 inet_ntop(AF_INET6, &sa.v6.sin6_addr, ip, sizeof(ip)))
		snprintf(name, ADDRESS_MAX, "[%s]:%u", ip, ntohs(sa.v6.sin6_port));
	else if (sa.any.sa_family == AF_UNIX && *sa.path.sun_path)
		snprintf(name, ADDRESS_MAX, "unix:%.*s", (int)sizeof(sa.path.sun_path),
			 sa.path.sun_path);
	return *name;
}

int activation_socket(int *fd, char name[ADDRESS_MAX], struct err *e)
{
	unsigned long n = activation_count();

	*fd = -1;
	*name = '\0';
	if (!n)
		return 0;
	if (n > 1)
		return err_set(e, GW_USAGE, EINVAL,
			       "%lu sockets were passed where one is due: leave one ListenStream= in the socket unit",
			       n);
	if (!activation_is_listener(FIRST_FD) || !activation_address(FIRST_FD, name))
		return err_set(e, GW_USAGE, EINVAL,
			       "descriptor 3, which was passed, is not a listening TCP or UNIX socket: set ListenStream=ADDR:PORT, or a path, and Accept=no in the socket unit");
	if (fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(FIRST_FD, F_SETFL, O_RDWR | O_NONBLOCK) < 0)
		return err_set(e, GW_INTERNAL, errno, "cannot set the flags of the socket that was passed: %s",
			       strerror(errno));
	*fd = FIRST_FD;
	return 0;
}
