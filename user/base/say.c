// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/say.h"

/*
 * The same pipe or terminal, opened once more: O_NONBLOCK belongs to what was opened, which the
 * shell and other programs share with us. -1: this user may not, or /proc is not there.
 */
static int say_reopen(int fd)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/*
 * poll() promises room for PIPE_BUF bytes of a pipe, which is more than a line has, and for a byte
 * of a terminal.
 */
static ssize_t say_if_ready(int fd, const char *bytes, size_t len)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };

	if (poll(&p, 1, 0) == 1)
		return write(fd, bytes, len);
	errno = EAGAIN;
	return -1;
}

int say_bytes(int fd, const char *bytes, size_t len)
{
	struct stat st;
	ssize_t n;
	int own;

	if (fstat(fd, &st))
		return -errno;
	if (S_ISSOCK(st.st_mode)) {
		n = send(fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		own = say_reopen(fd);
		n = own < 0 ? say_if_ready(fd, bytes, len) : write(own, bytes, len);
		if (own >= 0) {
			int error = errno;

			close(own);
			errno = error;
		}
	} else {
		n = write(fd, bytes, len);
	}
	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EAGAIN;
}

static void say_line(int fd, const char *fmt, va_list ap)
{
	char line[sizeof(((struct err *)NULL)->text) + 512] = "godwit: ";
	size_t n = strlen(line);

	vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	n = strlen(line);
	line[n++] = '\n';
	say_bytes(fd, line, n);
}

void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_line(STDERR_FILENO, fmt, ap);
	va_end(ap);
}

void say_out(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_line(STDOUT_FILENO, fmt, ap);
	va_end(ap);
}
