/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The other end of a QMP socket, for tests: a thread that serves one client of a unix socket in a directory of its own
 * with what a test's script tells it. It never asserts (cmocka cannot, in a thread); what it missed is in peer->missed.
 */
#ifndef GODWIT_QMP_PEER_H
#define GODWIT_QMP_PEER_H

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "qmp/qmp.h"

#define GREETING "{\"QMP\": {\"version\": {\"qemu\": {\"micro\": 22, \"minor\": 2, \"major\": 7}, " \
		 "\"package\": \"Debian\"}, \"capabilities\": [\"oob\"]}}\r\n"

struct peer;
typedef void peer_script(struct peer *p);

/**
 * struct peer
 * @line: heard last
 * @passed_fd: that came with it, or -1
 * @missed: "" or the first thing that was not heard
 */
struct peer {
	char dir[64], path[96];
	int listener, fd, passed_fd;
	pthread_t thread;
	peer_script *script;
	const void *arg;
	char line[65536];
	char missed[256];
};

static inline void peer_write(struct peer *p, const char *text, size_t len)
{
	while (len) {
		ssize_t n = send(p->fd, text, len, MSG_NOSIGNAL);

		if (n <= 0)
			return;		/* the client has seen enough */
		text += n;
		len -= (size_t)n;
	}
}

static inline void peer_say(struct peer *p, const char *text)
{
	peer_write(p, text, strlen(text));
}

static inline void peer_nap(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

/* One byte, and a descriptor if one comes with it. */
static inline int peer_byte(struct peer *p, char *c)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { c, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(p->fd, &msg, MSG_CMSG_CLOEXEC);
	struct cmsghdr *h = CMSG_FIRSTHDR(&msg);

	if (n == 1 && h && h->cmsg_type == SCM_RIGHTS)
		memcpy(&p->passed_fd, CMSG_DATA(h), sizeof(int));
	return n == 1;
}

/* A line; false at the end, or after two seconds of silence. */
static inline int peer_line(struct peer *p)
{
	size_t len = 0;

	while (len + 1 < sizeof(p->line) && peer_byte(p, p->line + len) && p->line[len] != '\n')
		len++;
	p->line[len] = '\0';
	return len > 0;
}

static inline void peer_hear(struct peer *p, const char *part)
{
	if ((!peer_line(p) || !strstr(p->line, part)) && !*p->missed)
		snprintf(p->missed, sizeof(p->missed), "missed %.100s, heard %.100s", part, p->line);
}

static inline long long peer_id(struct peer *p)
{
	json_t *j = json_loads(p->line, 0, NULL);
	long long id = json_integer_value(json_object_get(j, "id"));

	json_decref(j);
	return id;
}

/* Answers the line heard last. kind: "return" or "error". */
static inline void peer_reply(struct peer *p, const char *kind, const char *value)
{
	char *text;

	if (asprintf(&text, "{\"%s\": %s, \"id\": %lld}\r\n", kind, value, peer_id(p)) < 0)
		return;
	peer_say(p, text);
	free(text);
}

static inline void peer_negotiate(struct peer *p)
{
	peer_say(p, GREETING);
	peer_hear(p, "\"execute\":\"qmp_capabilities\"");
	peer_reply(p, "return", "{}");
}

static inline void *peer_main(void *arg)
{
	struct timeval two_seconds = { .tv_sec = 2 };
	struct peer *p = arg;
	struct pollfd pfd = { .fd = p->listener, .events = POLLIN };

	if (poll(&pfd, 1, 2000) == 1)
		p->fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	if (p->fd < 0) {
		snprintf(p->missed, sizeof(p->missed), "no client came");
		return NULL;
	}
	setsockopt(p->fd, SOL_SOCKET, SO_RCVTIMEO, &two_seconds, sizeof(two_seconds));
	setsockopt(p->fd, SOL_SOCKET, SO_SNDTIMEO, &two_seconds, sizeof(two_seconds));
	p->script(p);
	close(p->fd);
	return NULL;
}

/* A socket that listens; without a script its connections are never accepted. 0 or -1. */
static inline int peer_start(struct peer *p, peer_script *script, const void *arg, int backlog)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	memset(p, 0, sizeof(*p));
	p->fd = p->passed_fd = -1;
	p->script = script;
	p->arg = arg;
	strcpy(p->dir, "/tmp/godwit-test-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	snprintf(p->path, sizeof(p->path), "%s/qmp", p->dir);
	strcpy(sun.sun_path, p->path);
	p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(p->listener, (struct sockaddr *)&sun, sizeof(sun)) < 0 || listen(p->listener, backlog) < 0)
		return -1;
	return script ? pthread_create(&p->thread, NULL, peer_main, p) : 0;
}

/* Close the client first: a script may wait for that. */
static inline void peer_stop(struct peer *p)
{
	if (p->script)
		pthread_join(p->thread, NULL);
	close(p->listener);
	if (p->passed_fd >= 0)
		close(p->passed_fd);
	unlink(p->path);
	rmdir(p->dir);
}

/* How many descriptors this process has. */
static inline int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/**
 * struct peer_answer - what a scripted QEMU says to a command
 * @command, @with: both must be part of the line; the first that fits answers
 * @ret: the value to return; NULL: an error
 */
struct peer_answer {
	const char *command;
	const char *with;
	const char *ret;
};

/* A script: answers from the table in p->arg, which ends with a NULL command, until the client goes. */
static inline void peer_serve(struct peer *p)
{
	peer_negotiate(p);
	while (peer_line(p)) {
		const struct peer_answer *a = p->arg;

		while (a->command && !(strstr(p->line, a->command) && strstr(p->line, a->with)))
			a++;
		if (a->command && a->ret)
			peer_reply(p, "return", a->ret);
		else
			peer_reply(p, "error", "{\"class\": \"GenericError\", \"desc\": \"Property not found\"}");
	}
}

/* A QEMU that answers from this table, and the client that asks it. NULL: that could not be had, *e may say why. */
static inline struct qmp *peer_qemu(struct peer *p, const struct peer_answer *answers, struct err *e)
{
	struct qmp *q = NULL;

	if (!peer_start(p, peer_serve, answers, 4))
		qmp_open(p->path, 2000, &q, e);
	return q;
}

static inline void peer_qemu_end(struct peer *p, struct qmp *q)
{
	qmp_close(q);
	peer_stop(p);
}

#endif
