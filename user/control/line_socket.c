// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "control/line_socket.h"
#include "net/sock.h"
#include "net/unix.h"

int line_socket_listen(struct line_socket *l, const char *path)
{
	int fd;

	if (strlen(path) >= sizeof(l->path))
		return -ENAMETOOLONG;
	fd = sock_unix_listen(path, LINE_SOCKET_CLIENTS);
	if (fd < 0)
		return fd;
	memset(l, 0, sizeof(*l));
	l->lfd = fd;
	strcpy(l->path, path);
	return 0;
}

static void line_socket_drop(struct line_socket *l, unsigned int i)
{
	close(l->clients[i].fd);
	l->nr--;
	memmove(&l->clients[i], &l->clients[i + 1], (l->nr - i) * sizeof(l->clients[0]));
}

/* Does not wait: a client that does not read gets a part of the answer, or nothing. */
static void line_socket_answer(struct line_socket *l, unsigned int i, const char *text)
{
	size_t len = strnlen(text, LINE_SOCKET_LINE - 1);
	char line[LINE_SOCKET_LINE];

	memcpy(line, text, len);
	line[len] = '\n';
	sock_send(l->clients[i].fd, line, len + 1, 0);
	line_socket_drop(l, i);
}

static void line_socket_accept(struct line_socket *l)
{
	int fd;

	while ((fd = sock_accept(l->lfd)) >= 0) {
		if (l->nr == LINE_SOCKET_CLIENTS)
			line_socket_drop(l, 0);
		l->clients[l->nr].fd = fd;
		l->clients[l->nr].len = 0;
		l->clients[l->nr++].waits = false;
	}
}

/* 1: the client has sent its line, 0: not yet, -1: drop it. */
static int line_socket_read(struct line_socket_client *c)
{
	ssize_t n = sock_recv_some(c->fd, c->line + c->len, sizeof(c->line) - c->len);
	char *end;

	if (n == -EAGAIN)
		return 0;
	/*
	 * Also after the line: a client that has gone wants no answer, and may send one line only.
	 */
	if (n <= 0 || c->waits)
		return -1;
	c->len += (size_t)n;
	end = memchr(c->line, '\n', c->len);
	if (!end)
		return c->len == sizeof(c->line) ? -1 : 0;
	*end = '\0';
	c->waits = true;
	return 1;
}

void line_socket_step(struct line_socket *l, line_socket_fn *answer, void *arg)
{
	char text[LINE_SOCKET_LINE];
	unsigned int i = 0;

	if (l->lfd < 0)
		return;
	line_socket_accept(l);
	while (i < l->nr) {
		int r = line_socket_read(&l->clients[i]);

		if (r < 0)
			line_socket_drop(l, i);
		else if (r && answer(arg, l->clients[i].line, text))
			line_socket_answer(l, i, text);
		else
			i++;
	}
}

void line_socket_answer_all(struct line_socket *l, const char *text)
{
	unsigned int i = 0;

	while (i < l->nr)
		if (l->clients[i].waits)
			line_socket_answer(l, i, text);
		else
			i++;
}

void line_socket_close(struct line_socket *l)
{
	if (l->lfd < 0)
		return;
	while (l->nr)
		line_socket_drop(l, 0);
	unlink(l->path);
	close(l->lfd);
	l->lfd = -1;
}

static int line_socket_read_answer(int fd, char *answer, uint64_t deadline)
{
	size_t len = 0;

	while (len < LINE_SOCKET_LINE) {
		ssize_t n = sock_recv_some(fd, answer + len, LINE_SOCKET_LINE - len);
		uint64_t slice = now_ns() + STOP_SLICE_NS;
		char *end;
		int r;

		if (n > 0) {
			len += (size_t)n;
			end = memchr(answer, '\n', len);
			if (end)
				*end = '\0';
			if (end)
				return 0;
			continue;
		}
		if (n != -EAGAIN)
			return -ECONNRESET;
		if (stop_requested())
			return -EINTR;
		r = sock_wait(fd, POLLIN, slice < deadline ? slice : deadline);
		if (r && (r != -ETIMEDOUT || now_ns() >= deadline))
			return r;
	}
	return -EPROTO;
}

int line_socket_ask(const char *path, const char *line, char answer[LINE_SOCKET_LINE],
		    uint64_t deadline)
{
	char question[LINE_SOCKET_LINE];
	size_t len = strlen(line);
	int fd, r;

	if (len >= sizeof(question))
		return -EMSGSIZE;
	memcpy(question, line, len);
	question[len] = '\n';
	fd = sock_unix_connect(path);
	if (fd < 0)
		return fd;
	r = sock_send(fd, question, len + 1, deadline);
	if (!r)
		r = line_socket_read_answer(fd, answer, deadline);
	close(fd);
	return r;
}
