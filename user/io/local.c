// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "io/local.h"
#include "io/sock.h"
#include "io/stop.h"

static int bind_to(int fd, const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	memcpy(sun.sun_path, path, strlen(path));
	return bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : 0;
}

/* A socket that nobody listens at any more. */
static bool left_behind(const char *path)
{
	struct stat st;
	int fd;

	if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	fd = sock_unix_connect(path);
	if (fd >= 0)
		close(fd);
	return fd == -ECONNREFUSED;
}

int local_listen(struct local *l, const char *path)
{
	int fd, r;

	if (!*path)
		return -ENOENT;
	if (strlen(path) >= sizeof(l->path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Before it has a name: nobody finds it with another mode. */
	r = fchmod(fd, 0600) < 0 ? -errno : bind_to(fd, path);
	if (r == -EADDRINUSE && left_behind(path))
		r = unlink(path) < 0 ? -errno : bind_to(fd, path);
	if (!r && listen(fd, LOCAL_CLIENTS) < 0) {
		r = -errno;
		unlink(path);
	}
	if (r) {
		close(fd);
		return r;
	}
	memset(l, 0, sizeof(*l));
	l->lfd = fd;
	strcpy(l->path, path);
	return 0;
}

static void hang_up(struct local *l, unsigned int i)
{
	close(l->clients[i].fd);
	l->nr--;
	memmove(&l->clients[i], &l->clients[i + 1], (l->nr - i) * sizeof(l->clients[0]));
}

/* All of it goes out at once, or the client does not listen. */
static void say(struct local *l, unsigned int i, const char *text)
{
	size_t len = strnlen(text, LOCAL_LINE - 1);
	char line[LOCAL_LINE];

	memcpy(line, text, len);
	line[len] = '\n';
	sock_send(l->clients[i].fd, line, len + 1, 0);
	hang_up(l, i);
}

static void let_in(struct local *l)
{
	int fd;

	while ((fd = sock_accept(l->lfd)) >= 0) {
		if (l->nr == LOCAL_CLIENTS)
			hang_up(l, 0);
		l->clients[l->nr].fd = fd;
		l->clients[l->nr].len = 0;
		l->clients[l->nr++].asked = false;
	}
}

/* 1: it has said a line, 0: not yet, -1: hang up. */
static int hear(struct local_client *c)
{
	ssize_t n = sock_recv_some(c->fd, c->said + c->len, sizeof(c->said) - c->len);
	char *end;

	if (n == -EAGAIN)
		return 0;
	/* Also behind the line: who has gone waits for nothing, and there is one line only. */
	if (n <= 0 || c->asked)
		return -1;
	c->len += (size_t)n;
	end = memchr(c->said, '\n', c->len);
	if (!end)
		return c->len == sizeof(c->said) ? -1 : 0;
	*end = '\0';
	c->asked = true;
	return 1;
}

void local_step(struct local *l, local_fn *answer, void *arg)
{
	char text[LOCAL_LINE];
	unsigned int i = 0;

	if (l->lfd < 0)
		return;
	let_in(l);
	while (i < l->nr) {
		int r = hear(&l->clients[i]);

		if (r < 0)
			hang_up(l, i);
		else if (r && answer(arg, l->clients[i].said, text))
			say(l, i, text);
		else
			i++;
	}
}

void local_tell(struct local *l, const char *text)
{
	unsigned int i = 0;

	while (i < l->nr)
		if (l->clients[i].asked)
			say(l, i, text);
		else
			i++;
}

void local_close(struct local *l)
{
	if (l->lfd < 0)
		return;
	while (l->nr)
		hang_up(l, 0);
	close(l->lfd);
	unlink(l->path);
	l->lfd = -1;
}

static int hear_answer(int fd, char *answer, uint64_t deadline)
{
	size_t len = 0;

	while (len < LOCAL_LINE) {
		ssize_t n = sock_recv_some(fd, answer + len, LOCAL_LINE - len);
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

int local_ask(const char *path, const char *line, char answer[LOCAL_LINE], uint64_t deadline)
{
	char question[LOCAL_LINE];
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
		r = hear_answer(fd, answer, deadline);
	close(fd);
	return r;
}
